"""`broadloom record` and `broadloom tape`."""

import json
import resource
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.channel.status_socket import find_local_peers
from broadloom.cli.main import app
from tests.cli.running import member, new_channel, run, running_command, wait_until

pytest.importorskip("pyarrow")


def delivered(channel: str) -> int:
    return sum(each.status["counters"]["delivered"] for each in find_local_peers(channel) if each.status is not None)


def test_what_is_seen_is_on_the_tape(tmp_path: Path, sockets: Path) -> None:
    channel = new_channel()
    with member(channel) as other, running_command("record", channel, "--to", str(tmp_path), "--payload") as recorder:
        other.wait_for_peer()
        wait_until(lambda: any(sockets.glob("*.sock")), "the recorder's membership")
        for number in range(3):
            other.channel.broadcast_json(number)
        wait_until(lambda: delivered(channel) == 3, "three messages")
        recorder.signal(signal.SIGINT)
        code, out, err = recorder.wait()
    assert (code, err) == (0, "")
    assert f"recorded to {tmp_path}: 1 files" in out
    code, out, err = run("tape", str(tmp_path), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["kinds"]["delivered"] == 3
    assert told["kinds"]["left"] == 1
    assert told["lost"] == 0
    shown = CliRunner().invoke(app, ["tape", str(tmp_path)])
    assert shown.exit_code == 0
    assert "delivered 3" in " ".join(shown.output.split())


def test_recording_for_a_while_at_a_terminal(tmp_path: Path) -> None:
    with running_command("record", new_channel(), "--to", str(tmp_path), "--for", "0.3", terminal=True) as recorder:
        recorder.wait_for_output("recorded to")
        assert recorder.wait().code == 0


def test_a_full_disk_is_told_of(tmp_path: Path, sockets: Path) -> None:
    with running_command("record", new_channel(), "--to", str(tmp_path)) as recorder:
        wait_until(lambda: any(sockets.glob("*.sock")), "the recorder's membership")
        resource.prlimit(recorder.process.pid, resource.RLIMIT_FSIZE, (100, 100))  # no file can grow beyond this
        recorder.signal(signal.SIGINT)
        code, _, err = recorder.wait()
    assert code == 1
    assert "rows were lost" in err
    assert "Traceback" not in err


def test_the_simulator_writes_the_same_tape(tmp_path: Path) -> None:
    played = CliRunner().invoke(
        app, ["sim", "kill", "--peers", "12", "--seeds", "3", "--json", "--tape", str(tmp_path)]
    )
    assert played.exit_code == 0, played.output
    outcome = json.loads(played.stdout)
    told = json.loads(CliRunner().invoke(app, ["tape", str(tmp_path), "--json"]).stdout)
    assert told["kinds"]["sent"] == outcome["messages"]
    assert told["kinds"]["delivered"] == outcome["deliveries"]
    assert told["kinds"]["joined"] == len(told["observers"]) == 12
    assert told["lost"] == 0
    assert told["first"].startswith("2026-01-01T00:00:"), "time on it is that of the simulation"


def test_a_tape_of_the_simulator_is_of_one_history(tmp_path: Path) -> None:
    code, _, err = run("sim", "kill", "--seeds", "1..2", "--tape", str(tmp_path))
    assert (code, "one history" in err) == (2, True)
