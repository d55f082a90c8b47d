"""`broadloom record`, `broadloom tape info` and the tapes of `broadloom sim run`."""

import json
import resource
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.channel.status_socket import find_local_peers
from broadloom.cli.main import app
from tests.cli.harness import member, new_channel, run, running_command
from tests.support import wait_until

pytest.importorskip("pyarrow")


def delivered(channel: str) -> int:
    return sum(each.status["counters"]["delivered"] for each in find_local_peers(channel) if each.status is not None)


def test_record_writes_tape_that_tape_info_summarizes(tmp_path: Path, sockets: Path) -> None:
    channel = new_channel()
    with (
        member(channel) as other,
        running_command("record", channel, "--out", str(tmp_path), "--include-payload") as recorder,
    ):
        other.wait_for_peer()
        wait_until(lambda: any(sockets.glob("*.sock")), "the recorder to join")
        for number in range(3):
            other.channel.broadcast_json(number)
        other.channel.identify()
        wait_until(lambda: delivered(channel) == 4, "four messages")
        recorder.signal(signal.SIGINT)
        code, out, err = recorder.wait()
    assert (code, err) == (0, "")
    assert f"recorded to {tmp_path}: 1 files" in out
    code, out, err = run("tape", "info", str(tmp_path), "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["kinds"]["delivered"] == 4
    assert summary["kinds"]["identification"] == 1
    assert summary["kinds"]["left"] == 1
    assert summary["dropped_rows"] == 0
    shown = CliRunner().invoke(app, ["tape", "info", str(tmp_path)])
    assert shown.exit_code == 0
    assert "delivered 4" in " ".join(shown.output.split())


def test_record_stops_after_duration_at_a_terminal(tmp_path: Path) -> None:
    with running_command(
        "record", new_channel(), "--out", str(tmp_path), "--duration", "0.3", terminal=True
    ) as recorder:
        recorder.wait_for_output("recorded to")
        assert recorder.wait().code == 0


def test_record_fails_when_rows_are_lost(tmp_path: Path, sockets: Path) -> None:
    with running_command("record", new_channel(), "--out", str(tmp_path)) as recorder:
        wait_until(lambda: any(sockets.glob("*.sock")), "the recorder to join")
        resource.prlimit(recorder.process.pid, resource.RLIMIT_FSIZE, (100, 100))  # no file can grow beyond this
        recorder.signal(signal.SIGINT)
        code, _, err = recorder.wait()
    assert code == 1
    assert "rows lost" in err
    assert "Traceback" not in err


def test_sim_run_writes_tape_with_simulated_time(tmp_path: Path) -> None:
    played = CliRunner().invoke(
        app, ["sim", "run", "kill", "--peers", "12", "--seeds", "3", "--json", "--tape", str(tmp_path)]
    )
    assert played.exit_code == 0, played.output
    result = json.loads(played.stdout)
    summary = json.loads(CliRunner().invoke(app, ["tape", "info", str(tmp_path), "--json"]).stdout)
    assert summary["kinds"]["sent"] == result["messages"]
    assert summary["kinds"]["delivered"] == result["deliveries"]
    assert summary["kinds"]["joined"] == len(summary["peers"]) == 12
    assert summary["dropped_rows"] == 0
    assert summary["start_time"].startswith("2026-01-01T00:00:"), "simulated time"


def test_sim_run_records_only_a_single_seed(tmp_path: Path) -> None:
    code, _, err = run("sim", "run", "kill", "--seeds", "1..2", "--tape", str(tmp_path))
    assert (code, "a single run" in err) == (2, True)
