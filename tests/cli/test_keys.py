"""`broadloom key`, `broadloom authority`, `broadloom ticket` and `broadloom ports`."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from broadloom.cli.main import app
from tests.cli.harness import listening, member, new_channel, run


def run_cli(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_generated_keys_differ_and_admit_to_channel(tmp_path: Path) -> None:
    first, second = run_cli("key", "generate").output.strip(), run_cli("key", "generate").output.strip()
    assert first != second
    assert first.startswith("broadloom-")
    channel, key_file = new_channel(), tmp_path / "key"
    assert run_cli("key", "generate", "--out", key_file).exit_code == 0
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    first = key_file.read_text().strip()
    with listening(channel, "--key-file", str(key_file), "--count", "1") as listener:
        assert run("send", channel, "x", env={"BROADLOOM_KEY": first}).code == 0
        assert listener.wait()[::2] == (0, "")
    key_file.chmod(0o644)
    with listening(channel, "--key-file", str(key_file)) as listener:
        listener.wait_for_output(f"chmod 600 {key_file}", "err")
    with listening(channel, env={"BROADLOOM_KEY": first}):
        code, _, err = run("send", channel, "x", "--key", second, "--timeout", "3")
        assert code == 1
        assert len(err.splitlines()) == 1


def test_ticket_is_issued_shown_used_and_revoked(tmp_path: Path) -> None:
    channel = new_channel()
    authority, revocation_list = tmp_path / "authority", tmp_path / "revoked.pem"
    alice, bob = tmp_path / "alice.ticket", tmp_path / "bob.ticket"
    created = run_cli("authority", "create", "--out", authority, "--channel", channel)
    assert created.exit_code == 0
    assert stat.S_IMODE(authority.stat().st_mode) == 0o600
    assert (
        run_cli(
            "ticket", "issue", "--authority", authority, "--name", "alice", "--role", "consumer", "--out", alice
        ).exit_code
        == 0
    )
    assert (
        run_cli("ticket", "issue", "--authority", authority, "--name", "bob", "--days", 1, "--out", bob).exit_code == 0
    )

    shown = run_cli("ticket", "show", alice)
    assert shown.exit_code == 0
    assert "alice" in shown.output
    assert "consumer" in shown.output
    assert "PRIVATE" not in shown.output
    shown = json.loads(run_cli("ticket", "show", bob, "--json").output)
    assert (shown["name"], shown["role"], shown["is_expired"]) == ("bob", "producer", False)

    with listening(channel, "--ticket", str(alice)) as listener:
        assert run("send", channel, "hello", "--ticket", str(bob)) == (0, "", "")
        listener.wait_for_output("bob: hello")
        code, _, err = run("send", channel, "hello", "--ticket", str(alice))
        assert code == 1
        assert "may only receive" in err

    revoked = run_cli("ticket", "revoke", "--authority", authority, "--revocation-list", revocation_list, bob)
    assert revoked.exit_code == 0
    assert shown["serial"] in revoked.output
    with listening(channel, "--ticket", str(alice), "--revocation-list", str(revocation_list)):
        code, _, err = run("send", channel, "hello", "--ticket", str(bob), "--timeout", "10")
        assert code == 1
        assert "withdrawn" in err or "revoked" in err
    other = run("listen", "test/other", "--ticket", str(alice))
    assert other.code == 1
    assert "another channel" in other.err


def test_send_with_consumer_ticket_fails_before_joining(tmp_path: Path) -> None:
    """Before joining: the timeout is longer than the test would wait."""
    authority, ticket = tmp_path / "authority", tmp_path / "ticket"
    run_cli("authority", "create", "--out", authority)
    run_cli("ticket", "issue", "--authority", authority, "--name", "a", "--role", "consumer", "--out", ticket)
    code, out, err = run("send", new_channel(), "x", "--ticket", str(ticket), "--timeout", "600")
    assert (code, out) == (1, "")
    assert "the ticket has the role consumer, which may only receive" in err


def test_empty_revocation_list_is_created_and_used(tmp_path: Path) -> None:
    authority, ticket, revocation_list = tmp_path / "authority", tmp_path / "ticket", tmp_path / "revoked.pem"
    run_cli("authority", "create", "--out", authority)
    run_cli("ticket", "issue", "--authority", authority, "--name", "a", "--out", ticket)
    created = run_cli("ticket", "revoke", "--authority", authority, "--revocation-list", revocation_list)
    assert created.exit_code == 0, created.output
    assert "no tickets added" in created.output
    with listening(new_channel(), "--ticket", str(ticket), "--revocation-list", str(revocation_list)):
        pass


def test_ticket_is_revoked_by_serial_number(tmp_path: Path) -> None:
    authority, revocation_list = tmp_path / "authority", tmp_path / "revoked.pem"
    run_cli("authority", "create", "--out", authority)
    assert (
        run_cli(
            "ticket", "revoke", "--authority", authority, "--revocation-list", revocation_list, "00ff" * 4, "12" * 8
        ).exit_code
        == 0
    )
    result = run_cli(
        "ticket", "revoke", "--authority", authority, "--revocation-list", revocation_list, tmp_path / "no.ticket"
    )
    assert result.exit_code == 2
    assert "not a ticket serial number" in result.output


def test_ticket_show_fails_when_ticket_has_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, out = tmp_path / "authority", tmp_path / "t"
    run_cli("authority", "create", "--out", authority)
    run_cli("ticket", "issue", "--authority", authority, "--name", "eve", "--out", out)
    monkeypatch.setattr("broadloom.security.ticket.Ticket.is_expired", lambda *_: True)
    result = run_cli("ticket", "show", out)
    assert result.exit_code == 1
    assert "(expired)" in result.output


def test_ticket_usage_errors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    authority, foreign, ticket = tmp_path / "authority", tmp_path / "foreign", tmp_path / "eve.ticket"
    run_cli("authority", "create", "--out", authority)
    run_cli("authority", "create", "--out", foreign)
    assert run_cli("ticket", "issue", "--authority", authority, "--name", "eve").exit_code == 0
    assert ticket.exists()  # the file is named after the member
    for words, expected in (
        (("authority", "create", "--out", authority), "already exists and is not overwritten"),
        (("authority", "create", "--channel", "chess/x"), "--out"),
        (("authority", "create", "--out", "new", "--channel", "chess"), "a channel is named TYPE/INSTANCE"),
        (("authority", "create", "--out", tmp_path / "no" / "where"), "cannot write"),
        (("ticket", "issue", "--authority", authority, "--name", "eve"), "already exists and is not overwritten"),
        (("ticket", "issue", "--authority", authority, "--name", "../eve"), "--out"),
        (("ticket", "issue", "--authority", authority, "--name", "x" * 99, "--out", "x"), "at most 64"),
        (("ticket", "issue", "--authority", authority, "--name", "x", "--days", "0"), "in the past"),
        (("ticket", "issue", "--authority", authority, "--name", "x", "--role", "king"), "king"),
        (("ticket", "issue", "--authority", ticket, "--name", "x"), "is a ticket, not an authority file"),
        (("ticket", "show", authority), "is incomplete"),
        (("ticket", "show", "missing"), "cannot read the ticket"),
        (("ticket", "revoke", "--authority", foreign, "--revocation-list", "l", ticket), "issued by another authority"),
        (("ticket", "revoke", "--authority", authority, "--revocation-list", ticket, "12" * 8), "is damaged"),
    ):
        result = run_cli(*words)
        assert result.exit_code == 2, words
        assert expected in " ".join(result.output.split()), words
        assert "Traceback" not in result.output


def test_ports_lists_ports_that_peers_listen_on() -> None:
    channel = new_channel()
    code, out, err = run("ports", channel, "--count", "3")
    assert (code, err) == (0, "")
    assert [int(line) for line in out.split()] == json.loads(run("ports", channel, "--count", "3", "--json").out)[
        "ports"
    ]
    with member(channel) as here:
        assert here.channel.status().address == f"127.0.0.1:{out.split()[0]}"
    assert run("ports", "nothing").code == 2
