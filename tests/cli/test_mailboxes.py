"""`broadloom keep` and `broadloom mailbox`."""

import json
import signal
from pathlib import Path

import broadloom.sync
from broadloom.mailboxes.sync import Mailboxes
from tests.channel.joined import QUICK
from tests.cli.harness import new_channel, run, running_command


def test_value_outlives_owner_and_keeper_and_is_watched_read_and_listed(tmp_path: Path) -> None:
    channel, store = new_channel(), tmp_path / "values.db"
    with running_command("keep", channel, "--store", str(store)) as keeper:
        keeper.wait_for_output(": 0 mailboxes\n")
        code, out, err = run("mailbox", "put", channel, "kiln/temperature", "21.5", "--as", "kiln", "--copies", "1")
        assert (code, out, err) == (0, "revision 2\n", "")
        keeper.signal(signal.SIGKILL)
        keeper.wait()
    with (
        running_command("keep", channel, "--store", str(store), "--json") as keeper,
        running_command("mailbox", "watch", channel, "kiln/*", "--json") as watcher,
    ):
        keeper.wait_for_output('"mailboxes": 1')
        watcher.wait_for_output('"21.5"')
        code, out, err = run("mailbox", "put", channel, "kiln/temperature", "22", "--as", "kiln", "--if-revision", "2")
        assert (code, out, err) == (0, "revision 3\n", "")
        watcher.wait_for_output('"22"')
        first, second = [json.loads(line) for line in watcher.out.splitlines()]
        assert (first["text"], second["event"], second["text"], second["revision"]) == ("21.5", "put", "22", 3)
        code, out, err = run("mailbox", "get", channel, "kiln/temperature")
        assert (code, out, err) == (0, "22\n", "")
        code, out, _ = run("mailbox", "list", channel, "--json")
        (listed,) = [json.loads(line) for line in out.splitlines()]
        assert (code, listed["owner"], listed["class"], listed["is_valid"]) == (0, "kiln", 10, True)
        watcher.signal(signal.SIGINT)
        assert watcher.wait().code == 0


def test_letter_is_posted_to_a_mailbox_of_a_member() -> None:
    channel = new_channel()
    with (
        broadloom.sync.connect(channel, settings=QUICK, name="kiln") as joined,
        Mailboxes(joined) as boxes,
    ):
        jobs = boxes.bind("jobs", keep="queue", receive="polled")
        assert run("mailbox", "post", channel, "kiln", "jobs", "heat to 900") == (0, "", "")
        code, out, err = run("mailbox", "post", channel, "kiln", "jobs", "--json", typed="cool down")
        assert (code, json.loads(out), err) == (0, {"name": "jobs", "owner": "kiln", "arrived": True}, "")
        letters = list(iter(jobs.receive_nowait, None))
        assert [each.text for each in letters] == ["heat to 900", "cool down"], "they have arrived"
        code, out, err = run("mailbox", "post", channel, "kiln", "plans", "heat to 900")
        assert (code, out) == (1, "")
        assert "plans" in err


def test_missing_mailbox_and_owner_are_errors() -> None:
    channel = new_channel()
    code, out, err = run("mailbox", "get", channel, "temperature")
    assert (code, out) == (1, "")
    assert "no mailbox 'temperature' is known" in err
    code, _, err = run("mailbox", "put", channel, "temperature", "1")
    assert code == 2
    assert "--as" in err
