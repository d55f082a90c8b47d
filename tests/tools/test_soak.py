"""The soak: what it runs in which time, what it reports, and its processes."""

import json
import shlex
from collections import Counter

import pytest

from broadloom.testing.sim.scenario import builtin_names
from tests.tools import seed_functions
from tools import seed_pool, soak
from tools.seed_pool import Job, JobResult, SeedFunction, SeedPool
from tools.sweeps import SWEEPS, FunctionRun, ScenarioRun, Sweep

DEADLINE_S = 120.0
"""For a seed that ends at once, on a busy machine."""


class FakePool(SeedPool):
    """Runs seeds one after the other, in virtual time."""

    def __init__(self, seconds: dict[str, float], interrupt_after: int = -1) -> None:
        super().__init__(1)
        self.seconds = seconds
        self.clock = 0.0
        self.jobs: list[Job] = []
        self.started: Counter[str] = Counter()
        self.interrupt_after = interrupt_after

    def now(self) -> float:
        return self.clock

    @property
    def has_room(self) -> bool:
        return not self.jobs

    @property
    def is_busy(self) -> bool:
        return bool(self.jobs)

    def start(self, job: Job) -> None:
        self.jobs.append(job)
        self.started[job.name] += 1

    def wait(self, timeout_s: float) -> list[JobResult]:
        if self.started.total() == self.interrupt_after:
            raise KeyboardInterrupt
        job = self.jobs.pop()
        self.clock += self.seconds[job.name]
        return [JobResult(job, job.function(job.seed), self.seconds[job.name])]


def sweep(name: str, target: int = 1000, function: SeedFunction = seed_functions.passes, **options: float) -> Sweep:
    return Sweep(name, "for a test", function, target, options.get("seed_s", 1.0), weight=options.get("weight", 1.0))


def run(pool: SeedPool, *sweeps: Sweep, minutes: float | None = None, as_json: bool = False) -> int:
    with pool:
        return soak.run(soak.choose_sweeps(sweeps, "", "", 1), minutes, pool, as_json=as_json)


# -- time


def test_time_is_kept_and_divided_by_weight() -> None:
    pool = FakePool({"slow": 4.0, "quick": 1.0, "heavy": 1.0})
    assert run(pool, sweep("slow"), sweep("quick"), sweep("heavy", weight=2.0), minutes=2) == 0
    assert 115 < pool.clock <= 120
    assert pool.started["slow"] == pytest.approx(30 / 4, abs=1)
    assert pool.started["quick"] == pytest.approx(30, abs=2)
    assert pool.started["heavy"] == pytest.approx(60, abs=4)


def test_sweep_stops_at_its_target_and_others_get_its_time() -> None:
    pool = FakePool({"small": 1.0, "large": 1.0})
    run(pool, sweep("small", 5), sweep("large"), minutes=1)
    assert pool.started["small"] == 5
    assert pool.started["large"] > 50


def test_every_sweep_runs_a_seed_before_any_runs_a_second() -> None:
    pool = FakePool({"one": 8.0, "two": 1.0, "three": 1.0}, interrupt_after=3)
    run(pool, sweep("one", seed_s=8), sweep("two"), sweep("three"), minutes=1)
    assert pool.started == {"one": 1, "two": 1, "three": 1}


def test_seed_that_takes_longer_than_its_share_is_left_out_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    pool = FakePool({"long": 50.0, "short": 1.0})
    run(pool, sweep("long", seed_s=50), sweep("short"), minutes=1)
    assert pool.started["long"] == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not run: a seed takes 50 s, its share is 30 s" in shown
    assert "1 sweeps have not run" in shown


def test_soak_without_time_for_any_seed_fails() -> None:
    assert run(FakePool({"long": 100.0}), sweep("long", seed_s=100.0), minutes=1) == 1


def test_no_seed_starts_after_the_time_even_if_seeds_take_longer_than_expected() -> None:
    pool = FakePool({"one": 100.0, "two": 1.0})
    run(pool, sweep("one"), sweep("two", seed_s=2), minutes=1)
    assert pool.started == {"one": 1}


def test_sweeps_without_time_limit_run_to_their_target() -> None:
    pool = FakePool({"one": 500.0, "two": 1.0})
    run(pool, sweep("one", 7), sweep("two", 9))
    assert pool.started == {"one": 7, "two": 9}


# -- results


def test_failed_seed_gives_status_1_and_its_replay_command_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    failing = sweep("failing", 5, seed_functions.fails_at_three)
    assert run(FakePool({"good": 1.0, "failing": 1.0}), sweep("good", 5), failing) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("FAILED failing: seed 3: three is too many\n")
    assert shown.out.splitlines()[1] == "  replay: python -m tools.soak --only failing --seeds 3"
    assert "three is too many" in shown.err, "while the others still run"


def test_results_so_far_are_printed_after_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakePool({"good": 1.0}, interrupt_after=4), sweep("good")) == soak.INTERRUPTED
    assert "3 seeds, 0 failed" in capsys.readouterr().out
    run(FakePool({"one": 1.0, "two": 1.0}, interrupt_after=1), sweep("one"), sweep("two"))
    shown = capsys.readouterr().out
    assert "2 sweeps have not run." in shown
    assert "--minutes" not in shown


def test_json_has_one_object_per_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    failing = sweep("failing", 5, seed_functions.fails_at_three)
    run(FakePool({"good": 1.0, "failing": 1.0}), sweep("good", 2), failing, as_json=True)
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert (good["sweep"], good["seeds"], good["failed"]) == ("good", 2, [])
    assert [each["seed"] for each in bad["failed"]] == [3]


def test_progress_is_reported_every_minute(capsys: pytest.CaptureFixture[str]) -> None:
    run(FakePool({"good": 1.0}), sweep("good"), minutes=5)
    assert capsys.readouterr().err.count("1 of 1 sweeps") >= 4


def test_seeds_are_chosen() -> None:
    sweeps = sweep("kill"), sweep("kill-half"), sweep("grow")
    assert [each.first for each in soak.choose_sweeps(sweeps, "", "", 500)] == [500, 500, 500]
    (chosen,) = soak.choose_sweeps(sweeps, "kill", "17..20", 1)
    assert (chosen.first, chosen.target) == (17, 4)
    assert len(soak.choose_sweeps(sweeps, "kill*", "", 1)) == 2
    with pytest.raises(ValueError, match="no sweep 'kil'; use kill, kill-half, grow"):
        soak.choose_sweeps(sweeps, "kil", "", 1)
    with pytest.raises(ValueError, match="--seeds needs --only"):
        soak.choose_sweeps(sweeps, "", "1..5", 1)
    with pytest.raises(ValueError, match="leave out --first"):
        soak.choose_sweeps(sweeps, "kill", "1..5", 7)
    with pytest.raises(ValueError, match="seeds begin with 1"):
        soak.choose_sweeps(sweeps, "kill", "0", 1)


# -- processes


def result_of(pool: SeedPool, function: SeedFunction, deadline_s: float = DEADLINE_S) -> JobResult:
    pool.start(Job("", function, 1, deadline_s))
    while not (results := pool.wait(DEADLINE_S)):
        pass
    return results[0]


def test_seed_that_hangs_crashes_or_raises_fails_and_the_pool_goes_on() -> None:
    with SeedPool(1) as pool:
        assert result_of(pool, seed_functions.hangs, 0.5).outcome.problem == "seed 1: no end after 0 s"
        assert "ended with status 7" in result_of(pool, seed_functions.crashes).outcome.problem
        assert "ValueError: 1 is wrong" in result_of(pool, seed_functions.raises).outcome.problem
        assert not result_of(pool, seed_functions.passes).outcome.problem


def test_process_that_is_killed_fails_its_seed_and_the_pool_goes_on() -> None:
    with SeedPool(1) as pool:
        assert "ended with status -9" in result_of(pool, seed_functions.dies_in_its_answer).outcome.problem
        result_of(pool, seed_functions.passes)
        (idle,) = pool._idle
        idle.process.kill()
        idle.process.join()
        assert "ended with status -9" in result_of(pool, seed_functions.passes).outcome.problem
        assert not result_of(pool, seed_functions.passes).outcome.problem


def test_process_that_has_used_much_memory_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def process() -> float:
        return result_of(pool, seed_functions.passes).outcome.metrics["process"]

    with SeedPool(1) as pool:
        first = process()
        assert process() == first
        monkeypatch.setattr(seed_pool, "MEMORY_MB_MAX", 0)
        assert process() == first
        assert process() != first


# -- the table


def test_every_scenario_is_swept() -> None:
    assert {each.run.scenario for each in SWEEPS if isinstance(each.run, ScenarioRun)} == set(builtin_names())


def test_names_are_unique_and_seeds_can_be_replayed() -> None:
    assert len({each.name for each in SWEEPS}) == len(SWEEPS)
    for each in SWEEPS:
        assert "17" in shlex.split(each.replay(17))
        if isinstance(each.run, FunctionRun):
            assert callable(each.run.load())


def test_no_sweep_is_left_out_in_the_default_time_on_two_cores() -> None:
    with SeedPool(2) as pool:
        chosen = soak.Soak(soak.choose_sweeps(SWEEPS, "", "", 1), soak.MINUTES, pool)
    assert [each.note for each in chosen.sweeps.values() if each.note] == []
