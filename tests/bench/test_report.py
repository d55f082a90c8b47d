"""Tables and plots from a stored run."""

from pathlib import Path

import pytest

from bench import plots, store, tables
from bench.__main__ import argument_parser, main, plan_of
from bench.plan import FULL, QUICK, WORKLOADS
from bench.run import steps_of
from bench.systems import SYSTEMS
from bench.workloads.frozen import Sample, longest_stall_s, rate_per_s, samples_between

SMALL = Path(__file__).parent / "small.json"


def test_markdown_has_a_table_for_each_case_and_lists_failed_systems():
    text = tables.markdown(store.load(SMALL))
    assert "## throughput, 8 receivers, 100 B, plain" in text
    assert "## throughput, 8 receivers, 100 B, encrypted" in text
    assert "- jgroups: no numbers. from ten members on some do not join" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") > 5 for line in lines)
    assert any(line.startswith("| broadloom |") and "×" in line for line in lines)


def test_all_plots_are_drawn(tmp_path):
    drawn = plots.draw(store.load(SMALL), tmp_path)
    assert {path.name for path in drawn} == {"throughput.svg", "cpu.svg", "wire.svg", "latency.svg", "scale.svg"}
    assert all(path.read_text().startswith("<?xml") for path in drawn)


def test_command_reports_a_stored_run_again(tmp_path, capsys):
    assert main(["--report", str(SMALL), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "tables.md").exists()
    assert "broadloom" in capsys.readouterr().out


def test_a_stored_run_comes_back_as_it_was(tmp_path):
    result = store.load(SMALL)
    store.save(result, tmp_path / "again.json")
    assert store.load(tmp_path / "again.json").rows == result.rows


@pytest.mark.parametrize("plan", [FULL, QUICK])
def test_plans_name_known_systems_and_take_turns(plan):
    steps = steps_of(plan)
    assert {step.system.name for step in steps} <= set(SYSTEMS)
    assert {step.case.workload for step in steps} <= set(WORKLOADS)
    assert [step.round for step in steps] == sorted(step.round for step in steps)


def test_options_change_the_plan_and_unknown_names_are_refused():
    plan = plan_of(argument_parser().parse_args(["--quick", "--systems", "broadloom,nats:tls", "--receivers", "2,4"]))
    assert (plan.systems, plan.receivers, plan.rounds) == (("broadloom", "nats:tls"), (2, 4), QUICK.rounds)
    with pytest.raises(ValueError, match="no system 'kafka'"):
        plan_of(argument_parser().parse_args(["--systems", "kafka"]))


def test_another_version_is_measured_next_to_this_one(tmp_path):
    def plan(*arguments):
        return plan_of(argument_parser().parse_args(["--systems", "broadloom,nats", *arguments]))

    with pytest.raises(ValueError, match=r"no src/broadloom"):
        plan("--before", str(tmp_path))
    (tmp_path / "src" / "broadloom").mkdir(parents=True)
    steps = steps_of(plan("--before", str(tmp_path), "--workloads", "latency,request"))
    for workload in ("latency", "request"):
        names = {step.system.name for step in steps if step.case.workload == workload}
        assert names == {"broadloom", "broadloom:before", "nats"}
    with pytest.raises(ValueError, match="--before DIR"):
        plan("--systems", "broadloom:before")


def test_a_stall_is_no_end():
    samples = [Sample(0.0, 0), Sample(1.0, 100), Sample(2.0, 100), Sample(3.0, 100)]
    stalled = samples_between(samples, 200, 0.0, 3.0)
    assert (rate_per_s(stalled), longest_stall_s(stalled)) == (100 / 3, 2.0)
    ended = samples_between(samples, 100, 0.0, 3.0)
    assert (rate_per_s(ended), longest_stall_s(ended)) == (100.0, 1.0)
