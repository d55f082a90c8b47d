"""`broadloom rules`, and `--rules` of the commands that send."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.rules import HeldMessages, Outgoing, Way
from tests.cli.harness import ProcessResult, listening, member, new_channel, run

RULES = """\
# plans
RULE "keys" IF { matches(/PRIVATE KEY/) } THEN { refuse "a private key" }
IF { subject("hold") } THEN { hold "ask Anna" }
IF { to("com") } THEN { redact emails; compress }
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "out.rules"
    path.write_text(RULES)
    return path


def run_here(*args: str, typed: str | None = None) -> ProcessResult:
    """Without a process of its own, for commands that join no channel."""
    result = CliRunner().invoke(app, args, input=typed)
    return ProcessResult(result.exit_code, result.stdout, result.stderr)


def test_check_lists_mistakes_with_their_place(rules: Path) -> None:
    assert run_here("rules", "check", str(rules)).out == f"{rules}: 3 rules, no mistakes\n"
    rules.write_text('IF { to("x) } THEN { }\nIF { true } THEN { crypto_prg $ }\nIF { size } THEN { x | y }')
    result = run_here("rules", "check", str(rules))
    assert result.code == 2
    assert "line 1, column 9" in result.err
    assert "line 3, column 22" in result.err
    mistakes = json.loads(run_here("rules", "check", str(rules), "--json").out)["mistakes"]
    assert [(each["line"], each["column"]) for each in mistakes] == [(1, 9), (3, 22)]
    rules.write_text("IF { unheard_of } THEN { crypto_prg $\n stamp }")
    assert (
        f"{rules}: line 1, column 1: there is no condition `unheard_of`" in run_here("rules", "check", str(rules)).err
    )
    mistakes = json.loads(run_here("rules", "check", str(rules), "--json").out)["mistakes"]
    assert [(each["line"], each["column"]) for each in mistakes] == [(1, 1)]
    known = ("--rule-program", "crypto_prg=gpg --encrypt", "--python", "unheard_of", "--python", "stamp")
    assert run_here("rules", "check", str(rules), *known).code == 0


def test_try_shows_each_step_and_whether_it_would_be_sent(rules: Path) -> None:
    result = run_here("rules", "try", str(rules), "--to", "com", "--subject", "plans", "mail", "a@b.example", "x" * 200)
    assert result.code == 0
    assert 'IF to("com")  → true' in result.out
    assert "redact emails" in result.out
    assert "zlib" in result.out.splitlines()[-1]
    refused = run_here("rules", "try", str(rules), "--json", typed="-----BEGIN PRIVATE KEY")
    assert refused.code == 1
    shown = json.loads(refused.out)
    assert shown["sent"] is None
    assert "a private key" in shown["reason"]
    assert run_here("rules", "try", str(rules), "--way", "pigeon", "x").code == 2


def test_try_refuses_to_encode_what_a_channel_sends_without_headers(rules: Path) -> None:
    rules.write_text("IF { true } THEN { compress }")
    sent = {way: run_here("rules", "try", str(rules), "--way", way, "x" * 200).code == 0 for way in Way}
    assert [way for way in Way if sent[way]] == [Way.BROADCAST, Way.FILE, Way.REQUEST, Way.TELL]


def test_format_keeps_comments_and_can_replace_the_file(rules: Path) -> None:
    assert run_here("rules", "format", str(rules), "--check").code == 1
    printed = run_here("rules", "format", str(rules)).out
    assert printed.startswith('# plans\nRULE "keys" IF { matches(/PRIVATE KEY/) }\nTHEN {\n  refuse')
    assert run_here("rules", "format", str(rules), "--write").code == 0
    assert rules.read_text() == printed
    assert run_here("rules", "format", str(rules), "--check").code == 0


def test_send_passes_the_rules_of_option_or_environment(rules: Path, tmp_path: Path) -> None:
    channel = new_channel()
    assert run_here("rules", "key", "--out", str(tmp_path / "com")).code == 0
    rules.write_text(RULES + 'IF { to("com") } THEN { encrypt for "com.pub" }')
    secret = "-----BEGIN PRIVATE KEY"
    with listening(channel, "--private-key", str(tmp_path / "com.key")) as listener:
        refused = run("send", channel, "--", secret, env={"BROADLOOM_RULES": str(rules)})
        assert refused.code == 1
        assert "a private key" in refused.err
        sent = run("send", channel, "--rules", str(rules), "--header", "to=com", "ask a@b.example")
        assert sent.code == 0
        listener.wait_for_output("ask [redacted]")
        assert "PRIVATE" not in listener.out


def test_held_messages_are_listed_released_and_dropped(rules: Path) -> None:
    channel, held = new_channel(), f"{rules}.held"
    with member(channel) as reader:
        result = run("send", channel, "--rules", str(rules), "--header", "subject=hold", "first")
        assert result.code == 1
        assert "held as" in result.err
        HeldMessages(Path(held)).put(Outgoing(b"second", channel=channel), "rule", "ask Anna")
        entries = [json.loads(line) for line in run_here("rules", "held", "list", held, "--json").out.splitlines()]
        assert [(each["channel"], each["reason"], each["state"]) for each in entries] == [
            (channel, "ask Anna", "held")
        ] * 2
        assert run_here("rules", "held", "release", channel, held, entries[0]["id"]).code == 2
        released = run("rules", "held", "release", channel, held, entries[0]["id"], "--rules", str(rules))
        assert released.code == 0, released.err
        assert reader.text() == "first"
    assert run_here("rules", "held", "release", channel, held, entries[0]["id"], "--rules", str(rules)).code == 2
    assert run_here("rules", "held", "drop", held, entries[1]["id"]).code == 0
    assert run_here("rules", "held", "list", held, "--json").out == ""
    assert run_here("rules", "held", "drop", held, entries[1]["id"]).code == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--rules", "missing.rules", "x"), "cannot read the rules missing.rules"),
        (("--rules", ".", "x"), "a directory, not a file of rules"),
        (("--header", "subject", "x"), "must be a name and a value"),
        (("--rules", "missing.rules", "--rule-program", "prg=", "x"), "the command is missing"),
        (("--rules", "missing.rules", "--rule-program", "prg='x", "x"), "No closing quotation"),
        (("--private-key", "missing.key", "x"), "cannot read the private key"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: tuple[str, ...], expected: str) -> None:
    result = run_here("send", new_channel(), *arguments)
    assert result.code == 2
    assert expected in result.err
