"""`broadloom switch`."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import broadloom.sync
from broadloom.cli.main import app
from broadloom.switch import MessageState, SqliteQueue
from broadloom.switch.sync import Switch
from tests.channel.joined import QUICK
from tests.cli.harness import CommandProcess, new_channel, run, running_command
from tests.support import TIMEOUT_S, wait_until

ANNA = ("--session", "anna", "--no-tls")


@contextmanager
def switch_here(channel: str) -> Iterator[Switch]:
    with (
        broadloom.sync.connect(channel, tls=False, settings=QUICK) as joined,
        Switch(joined, session="anna") as switch,
    ):
        yield switch


@contextmanager
def handling(channel: str, operation: str, *words: str) -> Iterator[tuple[CommandProcess, Switch]]:
    with (
        running_command("switch", "handle", channel, operation, *ANNA, "--json", "--", *words) as handler,
        switch_here(channel) as switch,
    ):
        switch.wait_for_handler(operation, timeout_s=TIMEOUT_S)
        yield handler, switch


def test_request_is_handled_by_a_command() -> None:
    channel = new_channel()
    with handling(channel, "upper", "tr", "a-z", "A-Z") as (handler, switch):
        assert run("switch", "request", channel, "upper", "hello", *ANNA) == (0, "HELLO\n", "")
        code, out, _ = run("switch", "request", channel, "lower", *ANNA, "--json")
        assert (code, json.loads(out)["reason"]) == (1, "no_handler")
        assert switch.request("upper", b"abc", timeout_s=TIMEOUT_S).data == b"ABC"
        handler.signal(signal.SIGINT)
        code, out, _ = handler.wait()
        assert (code, [json.loads(line)["state"] for line in out.splitlines()]) == (0, ["ready", "handled", "handled"])


def test_notice_is_handled_or_only_sent() -> None:
    channel = new_channel()
    with switch_here(channel) as switch:
        handled: list[str] = []
        switch.handle("saved")(lambda notice: handled.append(notice.text))
        assert run("switch", "notify", channel, "saved", "notes", *ANNA) == (0, "handled\n", "")
        code, out, _ = run("switch", "notify", channel, "printed", *ANNA, "--json")
        assert (code, json.loads(out)["operation"], json.loads(out)["state"]) == (0, "printed", "sent")
        wait_until(lambda: handled)
        assert handled == ["notes"]


def test_messages_about_a_file_are_observed() -> None:
    channel = new_channel()
    with (
        running_command("switch", "observe", channel, "saved", "--file", "notes", *ANNA, "--json") as observer,
        switch_here(channel) as switch,
    ):
        wait_until(lambda: any(each.patterns for each in switch.registrations()))
        for operation, file in (("saved", "letters"), ("printed", "notes"), ("saved", "notes")):
            switch.notify(operation, b"now", file=file)
        observer.wait_for_output('"saved"')
        observer.signal(signal.SIGINT)
        code, out, _ = observer.wait()
        (message,) = [json.loads(line) for line in out.splitlines()]
        assert (code, message["file"], message["state"], message["text"]) == (0, "notes", "sent", "now")


def test_registrations_are_listed() -> None:
    channel = new_channel()
    with switch_here(channel) as switch:
        switch.handle("upper", rank=3)(lambda request: request.data.upper())
        switch.observe("saved", file="notes")
        code, out, _ = run("switch", "list", channel, "--no-tls", "--json")
        (listed,) = [json.loads(line) for line in out.splitlines()]
        assert (code, listed["session"], listed["files"]) == (0, "anna", ["notes"])
        patterns = [(each["kind"], each["operations"], each["rank"]) for each in listed["patterns"]]
        assert patterns == [("handle", ["upper"], 3), ("observe", ["saved"], 0)]
        code, out, _ = run("switch", "list", channel, "--no-tls")
        assert (code, "upper" in out, "saved" in out) == (0, True, True)


@pytest.mark.long
def test_messages_are_followed_listed_and_observed() -> None:
    channel = new_channel()
    with (
        running_command("switch", "observe", channel, *ANNA, "--json") as observer,
        handling(channel, "upper", "tr", "a-z", "A-Z"),
    ):
        code, out, _ = run("switch", "request", channel, "upper", "hello", *ANNA, "--json", "--follow")
        steps = [json.loads(line) for line in out.splitlines()]
        assert (code, [each["state"] for each in steps]) == (0, ["sent", "accepted", "handled"])
        assert steps[-1]["data"] == "HELLO"
        code, out, _ = run("switch", "request", channel, "upper", "a", *ANNA, "--all", "--json")
        assert (code, json.loads(out)["data"]) == (0, "A")
        code, out, err = run("switch", "request", channel, "lower", *ANNA)
        assert (code, out) == (1, "")
        assert "no program handles 'lower'" in err
        assert run("switch", "notify", channel, "upper", "x", *ANNA) == (0, "handled\n", "")
        observer.wait_for_output('"state": "failed", "reason": "no_handler"')
        code, out, _ = run("switch", "list", channel, "--no-tls")
        assert code == 0
        assert "upper" in out
        observer.signal(signal.SIGINT)
        assert observer.wait().code == 0


@pytest.mark.long
def test_command_that_fails_fails_the_request_with_its_errors() -> None:
    channel = new_channel()
    with handling(channel, "print", sys.executable, "-c", "import sys; sys.exit('no paper')"):
        code, _, err = run("switch", "request", channel, "print", *ANNA)
        assert code == 1
        assert "refused" in err
        assert "exited with status 1: no paper" in err


def test_host_queues_and_the_queue_is_listed_and_dropped(tmp_path: Path) -> None:
    channel, store, programs = new_channel(), tmp_path / "queue.db", tmp_path / "programs.toml"
    programs.write_text('[[programs.starcalc.handles]]\noperation = "calc"\nabsent = "queue"\n')
    with (
        running_command("switch", "host", channel, str(programs), *ANNA, "--store", str(store)) as host,
        switch_here(channel) as switch,
    ):
        wait_until(lambda: any(each.patterns for each in switch.registrations()))
        assert switch.notify("calc", b"1+1") is MessageState.QUEUED
        host.signal(signal.SIGINT)
        assert host.wait().code == 0
    listed = CliRunner().invoke(app, ["switch", "queue", str(store), "--json"])
    fields = json.loads(listed.output)
    assert (listed.exit_code, fields["operation"], fields["program"]) == (0, "calc", "starcalc")
    assert CliRunner().invoke(app, ["switch", "queue", str(store), "--drop", "starcalc"]).exit_code == 0
    opened = SqliteQueue(store)
    assert opened.load() == []
    opened.close()


def test_mistakes_in_files_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs = tmp_path / "programs.toml"
    programs.write_text('[programs.x]\nstart = "rm -rf /"\n')
    wrong = CliRunner().invoke(app, ["switch", "check", str(programs)])
    assert wrong.exit_code == 2
    assert "programs.x.start must be a list of words" in wrong.output
    programs.write_text('[programs.x]\nstart = ["x"]\n[[programs.x.handles]]\noperation = "y"\nabsent = "start"\n')
    right = CliRunner().invoke(app, ["switch", "check", str(programs), "--json"])
    assert json.loads(right.output)["start"] == ["x"]
    for words in (("check", "missing"), ("queue", "missing.db")):
        assert CliRunner().invoke(app, ["switch", words[0], str(tmp_path / words[1])]).exit_code == 2
