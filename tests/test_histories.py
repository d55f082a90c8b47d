"""The runner of histories: problems with the command that replays them, and the exit status of the program."""

from collections import Counter

import pytest

from tests.histories import SimHistory, main, problem_of, run_history


class Short(SimHistory):
    """Every third one fails."""

    def run(self) -> None:
        self.counts["runs"] += 1
        self.note("begins")
        if self.seed % 3 == 0:
            self.fail("three again")


def run_seed(seed: int) -> Short:
    return run_history(Short(seed))


def raises(seed: int) -> Counter[str]:
    raise KeyError(seed)


def test_problem_has_its_seed_its_replay_command_and_the_log() -> None:
    assert problem_of(run_seed, 1) == ""
    text = "seed 3: three again (at 0.000 s; replay: python -m tests.test_histories 3)\n0.00 begins"
    assert problem_of(run_seed, 3) == text
    assert "seed 3: KeyError(3) in raises, line " in problem_of(raises, 3)


@pytest.mark.parametrize(("seeds", "status"), [("1..5", 1), ("3", 1), ("4..5", 0)])
def test_program_runs_all_seeds_and_fails_if_one_does(
    seeds: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["histories", seeds])
    with pytest.raises(SystemExit) as ended:
        main(run_seed)
    assert ended.value.code == status
    assert f"{status} failed" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["1", "5"], ["all"]])
def test_program_without_a_range_of_seeds_explains_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["histories", *arguments])
    with pytest.raises(SystemExit) as ended:
        main(run_seed)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "Usage: SEED or FIRST..LAST, such as 17 or 1..200.\n"
