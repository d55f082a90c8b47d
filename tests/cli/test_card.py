"""`broadloom card`, and the revocation lists of `broadloom ticket`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import listening, new_channel, run, running_command
from tests.cli.test_keys import run_cli


class Files:
    """The files of an owner."""

    def __init__(self, directory: Path) -> None:
        self.channel = new_channel()
        self.authority, self.card = directory / "club.authority", directory / "club.card"
        self.revoked = directory / "revoked.pem"
        self.ada, self.bob = directory / "ada.ticket", directory / "bob.ticket"
        assert run_cli("authority", "create", "--out", self.authority, "--channel", self.channel).exit_code == 0
        for ticket in (self.ada, self.bob):
            issued = run_cli("ticket", "issue", "--authority", self.authority, "--name", ticket.stem, "--out", ticket)
            assert issued.exit_code == 0

    def create(self, *options: object) -> Any:
        made = run_cli(
            "card",
            "create",
            "--authority",
            self.authority,
            "--channel",
            self.channel,
            "--out",
            self.card,
            "--json",
            *options,
        )
        assert made.exit_code == 0, made.output
        return json.loads(made.output)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_card_is_created_shown_replaced_and_checked(files: Files) -> None:
    first = files.create("--messages-per-s", 20, "--message-bytes-max", 1000)
    second = files.create("--role", "consumer", "--requests-per-s", 5, "--text", "be kind")
    assert second["number"] > first["number"]
    assert set(second["quotas"]) == {"producer", "consumer"}
    shown = run_cli("card", "show", files.card)
    assert shown.exit_code == 0
    for text in (files.channel, "20 messages/s, messages of at most 1,000 bytes", "5 requests/s", "be kind"):
        assert text in shown.output
    assert json.loads(run_cli("card", "show", files.card, "--json").output) == {
        key: value for key, value in second.items() if key != "file"
    }
    for option in (("--authority", files.authority), ("--ticket", files.ada)):
        checked = run_cli("card", "check", files.card, *option)
        assert (checked.exit_code, "valid" in checked.output) == (0, True)


def test_card_of_another_owner_and_closed_card_fail_the_check(files: Files, tmp_path: Path) -> None:
    files.create()
    other = tmp_path / "other.authority"
    run_cli("authority", "create", "--out", other)
    checked = run_cli("card", "check", files.card, "--authority", other, "--json")
    assert (checked.exit_code, json.loads(checked.output)["is_valid"]) == (1, False)
    assert run_cli("card", "close", "--authority", other, files.card).exit_code != 0
    closed = run_cli("card", "close", "--authority", files.authority, files.card, "--text", "over", "--json")
    assert (closed.exit_code, json.loads(closed.output)["state"]) == (0, "closed")
    assert run_cli("card", "check", files.card, "--ticket", files.ada).exit_code == 1


@pytest.mark.parametrize("options", [("--degree", 1), ("--messages-per-s", 0), ("--burst", 0, "--bytes-per-s", 5)])
def test_impossible_card_is_a_usage_error(files: Files, options: tuple[object, ...]) -> None:
    made = run_cli(
        "card", "create", "--authority", files.authority, "--channel", files.channel, "--out", files.card, *options
    )
    assert made.exit_code == 2
    assert not files.card.exists()


def test_revocation_list_is_shown_checked_and_published(files: Files, tmp_path: Path) -> None:
    assert (
        run_cli(
            "ticket", "revoke", "--authority", files.authority, "--revocation-list", files.revoked, files.bob
        ).exit_code
        == 0
    )
    shown = json.loads(run_cli("ticket", "revoked", files.revoked, "--ticket", files.ada, "--json").output)
    bob = json.loads(run_cli("ticket", "show", files.bob, "--json").output)
    assert shown["revoked"] == [bob["serial"]]
    other = tmp_path / "other.authority"
    run_cli("authority", "create", "--out", other)
    assert run_cli("ticket", "revoked", files.revoked, "--authority", other).exit_code == 1
    with (
        listening(files.channel, "--ticket", str(files.ada), "--events"),
        listening(files.channel, "--ticket", str(files.bob), "--events") as removed,
    ):
        code, out, err = run("ticket", "publish", files.channel, str(files.revoked), "--ticket", str(files.ada))
        assert (code, err) == (0, "")
        assert "published" in out
        removed.wait_for_output("was revoked")


def test_command_joins_with_the_degree_of_the_card(files: Files) -> None:
    files.create("--degree", 8)
    given = "--ticket", str(files.ada), "--card", str(files.card)
    code, _, err = run("send", files.channel, "x", *given)
    assert code == 1
    assert "the card says degree=8, this peer uses degree=4; use --degree" in err
    with listening(files.channel, "--degree", "8", "--ticket", str(files.bob), "--card", str(files.card)) as listener:
        code, _, err = run("send", files.channel, "hello", "--degree", "8", *given)
        assert (code, err) == (0, "")
        listener.wait_for_output("hello")


def test_published_closed_card_ends_all_programs(files: Files) -> None:
    files.create()
    with listening(files.channel, "--ticket", str(files.ada)) as listener:
        code, _, err = run("card", "publish", files.channel, str(files.card), "--ticket", str(files.bob))
        assert (code, err) == (0, "")
        run_cli("card", "close", "--authority", files.authority, files.card, "--text", "moved away")
        code, _, err = run("card", "publish", files.channel, str(files.card), "--ticket", str(files.bob))
        assert (code, err) == (0, "")
        assert "! the owner has closed the channel: moved away" in listener.wait().out
    code, _, err = run("send", files.channel, "x", "--ticket", str(files.ada), "--card", str(files.card))
    assert code == 1
    assert "the owner has closed this channel: moved away" in err


def test_listener_shows_the_closing_text_of_the_owner(files: Files) -> None:
    files.create()
    run_cli("card", "close", "--authority", files.authority, files.card, "--text", "moved away")
    with running_command("listen", files.channel, "--ticket", str(files.ada)) as listener:
        published = run("card", "publish", files.channel, str(files.card), "--ticket", str(files.bob))
        assert (published.code, published.err) == (0, "")
        code, _, err = listener.wait()
    assert code == 0
    assert err == f"broadloom listen: {files.channel}: the owner has closed this channel: moved away\n"


@pytest.mark.parametrize("command", ["listen", "join", "record"])
def test_command_fails_when_its_ticket_is_revoked(files: Files, tmp_path: Path, command: str) -> None:
    options = {"join": ("--keep-open",), "record": ("--out", str(tmp_path / "tapes"))}.get(command, ())
    revoke = ("ticket", "revoke", "--authority", files.authority, "--revocation-list", files.revoked, files.bob)
    assert run_cli(*revoke).exit_code == 0
    with running_command(command, files.channel, "--ticket", str(files.bob), *options) as removed:
        published = run("ticket", "publish", files.channel, str(files.revoked), "--ticket", str(files.ada))
        assert (published.code, published.err) == (0, "")
        code, out, err = removed.wait()
    assert code == 1
    assert "revoked" in err
    assert "closed" not in err
    assert "recorded to" in out or command != "record"


def test_publishing_without_other_members_fails(files: Files) -> None:
    files.create()
    published = run_cli("card", "publish", files.channel, files.card, "--ticket", files.ada, "--timeout", "1")
    assert published.exit_code == 1
    assert "no other peers" in published.output
