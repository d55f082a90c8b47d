"""`broadloom key` and `broadloom ticket`, from the owner's file to a member that is no longer admitted."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from broadloom.cli.main import app
from tests.cli.running import listening, member, new_channel, run


def run_cli(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_keys_differ_and_open_the_channel(tmp_path: Path) -> None:
    first, second = run_cli("key").output.strip(), run_cli("key").output.strip()
    assert first != second
    assert first.startswith("broadloom-")
    channel, key_file = new_channel(), tmp_path / "key"
    key_file.write_text(first + "\n")
    with listening(channel, "--key-file", str(key_file), "--count", "1") as listener:
        assert run("send", channel, "x", env={"BROADLOOM_KEY": first}).code == 0
        assert listener.wait().code == 0
    with listening(channel, env={"BROADLOOM_KEY": first}):
        code, _, err = run("send", channel, "x", "--key", second, "--timeout", "3")
        assert code == 1
        assert len(err.splitlines()) == 1


def test_from_the_owner_to_a_withdrawn_ticket(tmp_path: Path) -> None:
    channel = new_channel()
    owner, withdrawn = tmp_path / "owner", tmp_path / "withdrawn"
    alice, bob = tmp_path / "alice.ticket", tmp_path / "bob.ticket"
    made = run_cli("key", "--owner", owner, "--channel", channel)
    assert made.exit_code == 0
    assert stat.S_IMODE(owner.stat().st_mode) == 0o600
    assert (
        run_cli("ticket", "issue", "--owner", owner, "--name", "alice", "--role", "consumer", "--out", alice).exit_code
        == 0
    )
    assert run_cli("ticket", "issue", "--owner", owner, "--name", "bob", "--days", 1, "--out", bob).exit_code == 0

    shown = run_cli("ticket", "show", alice)
    assert shown.exit_code == 0
    assert "alice" in shown.output
    assert "consumer" in shown.output
    assert "PRIVATE" not in shown.output
    told = json.loads(run_cli("ticket", "show", bob, "--json").output)
    assert (told["name"], told["role"], told["expired"]) == ("bob", "producer", False)

    with listening(channel, "--ticket", str(alice)) as listener:
        assert run("send", channel, "hello", "--ticket", str(bob)) == (0, "", "")
        listener.wait_for_output("bob: hello")
        code, _, err = run("send", channel, "hello", "--ticket", str(alice))
        assert code == 1
        assert "may only receive" in err

    revoked = run_cli("ticket", "revoke", "--owner", owner, "--list", withdrawn, bob)
    assert revoked.exit_code == 0
    assert told["serial"] in revoked.output
    with listening(channel, "--ticket", str(alice), "--revoked", str(withdrawn)):
        code, _, err = run("send", channel, "hello", "--ticket", str(bob), "--timeout", "10")
        assert code == 1
        assert "withdrawn" in err or "revoked" in err
    other = run("listen", "test/other", "--ticket", str(alice))
    assert other.code == 1
    assert "another channel" in other.err


def test_tickets_are_withdrawn_by_number_too(tmp_path: Path) -> None:
    owner, withdrawn = tmp_path / "owner", tmp_path / "withdrawn"
    run_cli("key", "--owner", owner)
    assert run_cli("ticket", "revoke", "--owner", owner, "--list", withdrawn, "00ff" * 4, "12" * 8).exit_code == 0
    result = run_cli("ticket", "revoke", "--owner", owner, "--list", withdrawn, tmp_path / "no.ticket")
    assert result.exit_code == 2
    assert "not a ticket serial number" in result.output


def test_an_expired_ticket_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, out = tmp_path / "owner", tmp_path / "t"
    run_cli("key", "--owner", owner)
    run_cli("ticket", "issue", "--owner", owner, "--name", "eve", "--out", out)
    monkeypatch.setattr("broadloom.security.ticket.Ticket.is_expired", lambda *_: True)
    result = run_cli("ticket", "show", out)
    assert result.exit_code == 1
    assert "it has expired" in result.output


def test_mistakes_with_tickets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    owner, foreign, ticket = tmp_path / "owner", tmp_path / "foreign", tmp_path / "eve.ticket"
    run_cli("key", "--owner", owner)
    run_cli("key", "--owner", foreign)
    assert run_cli("ticket", "issue", "--owner", owner, "--name", "eve").exit_code == 0
    assert ticket.exists()  # the name of the member names the file
    for words, expected in (
        (("key", "--owner", owner), "already exists and is not overwritten"),
        (("key", "--channel", "chess/x"), "--channel belongs to --owner"),
        (("key", "--owner", "new", "--channel", "chess"), "a channel is named TYPE/INSTANCE"),
        (("key", "--owner", tmp_path / "no" / "where"), "cannot write"),
        (("ticket", "issue", "--owner", owner, "--name", "eve"), "already exists and is not overwritten"),
        (("ticket", "issue", "--owner", owner, "--name", "../eve"), "--out"),
        (("ticket", "issue", "--owner", owner, "--name", "x" * 99, "--out", "x"), "at most 64"),
        (("ticket", "issue", "--owner", owner, "--name", "x", "--days", "0"), "in the past"),
        (("ticket", "issue", "--owner", owner, "--name", "x", "--role", "king"), "king"),
        (("ticket", "issue", "--owner", ticket, "--name", "x"), "is a ticket, not an authority file"),
        (("ticket", "show", owner), "is incomplete"),
        (("ticket", "show", "missing"), "cannot read the ticket"),
        (("ticket", "revoke", "--owner", foreign, "--list", "l", ticket), "a ticket of another owner"),
        (("ticket", "revoke", "--owner", owner, "--list", ticket, "12" * 8), "is damaged"),
    ):
        result = run_cli(*words)
        assert result.exit_code == 2, words
        assert expected in " ".join(result.output.split()), words
        assert "Traceback" not in result.output


def test_the_ports_of_a_channel_are_where_its_peers_listen() -> None:
    channel = new_channel()
    code, out, err = run("ports", channel, "--count", "3")
    assert (code, err) == (0, "")
    assert [int(line) for line in out.split()] == json.loads(run("ports", channel, "--count", "3", "--json").out)
    with member(channel) as here:
        assert here.channel.status().address == f"127.0.0.1:{out.split()[0]}"
    assert run("ports", "nothing").code == 2
