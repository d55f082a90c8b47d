"""`broadloom group`, as processes that talk to a member in the test process, and its parsing and formatting."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import broadloom.sync
from broadloom.cli.exit_codes import UsageError
from broadloom.cli.group_formatting import (
    MessageNumbers,
    event_json,
    format_history_entry,
    history_entries,
    message_json,
)
from broadloom.cli.group_session import OutgoingPost, parse_line, parse_message_id, parse_object
from broadloom.cli.main import app
from broadloom.groups import GroupMessage, GroupSettings, Member, MemberJoined, MemberStatus, MessageId, ThreadEntry
from broadloom.groups.sync import Group, Groups
from tests.channel.joined import QUICK
from tests.cli.harness import new_channel, running_command
from tests.support import wait_until

FAST_SETTINGS = GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)


@contextmanager
def group_owner(channel: str) -> Iterator[tuple[Groups, Group]]:
    """A member that has created a group."""
    with (
        broadloom.sync.connect(channel, settings=QUICK) as joined,
        Groups(joined, "Anna", settings=FAST_SETTINGS) as groups,
    ):
        yield groups, groups.create("Chess club")


def status_of(group: Group, name: str) -> MemberStatus | None:
    return next((status for member, status in group.members().items() if member.name == name), None)


def test_group_join_posts_and_prints_lines_through_pipes() -> None:
    """Without a store the member leaves for good. Control characters do not reach the terminal."""
    channel = new_channel()
    with group_owner(channel) as (_, club):
        club.send_text("Who plays \x1b[2Jwhite?\nOr black?")
        with running_command("group", "join", channel, "chess club", "--name", "Ben\x1b[31m") as ben:
            ben.wait_for_output("1 Anna: Who plays \\x1b[2Jwhite?\n    Or black?\n")
            ben.type(">1 I do\nNice weather\n")
            wait_until(lambda: len(club.history()) == 3, "three messages")
            question, answer, other = club.history()
            assert (answer.text, answer.parent_id, answer.author_name) == ("I do", question.id, "Ben\x1b[31m")
            assert (other.text, other.parent_id) == ("Nice weather", None)
            club.send_text("Fine", reply_to=answer)
            ben.wait_for_output(f"2 Anna >{answer.author:016x}"[: len("2 Anna >") + 8] + "-1: Fine")
            ben.end_of_input()
            code, out, err = ben.wait()
        assert (code, err) == (0, "")
        assert "\x1b" not in out
        wait_until(lambda: status_of(club, "Ben\x1b[31m") is MemberStatus.LEFT, "his leaving")


def test_group_join_speaks_json_in_both_directions() -> None:
    channel = new_channel()
    with group_owner(channel) as (_, club):
        question = club.send_text("Who plays white?")
        with running_command("group", "join", channel, "Chess club", "--name", "bot", "--json", "--keep-open") as bot:
            bot.wait_for_output('"text": "Who plays white?"')
            bot.type(json.dumps({"text": "I do", "reply_to": str(question.id)}) + "\nas it is\n")
            bot.type(json.dumps({"data": "/w=="}) + "\n")
            bot.wait_for_output('"data": "/w=="')
            bot.type('{"texts": "I do"}\n')
            code, out, err = bot.wait()
        assert (code, "line 4 was not posted: unknown field 'texts'" in err) == (1, True)
        objects = [json.loads(line) for line in out.splitlines()]
        assert [objects[0][name] for name in ("event", "description", "name")] == ["joined", "Chess club", "bot"]
        posted = [(each.get("text"), each["reply_to"], each["own"]) for each in objects if "id" in each]
        assert posted == [
            ("Who plays white?", None, False),
            ("I do", str(question.id), True),
            ("as it is", None, True),
            (None, None, True),
        ]
        assert [each.data for each in club.history()] == [b"Who plays white?", b"I do", b"as it is", b"\xff"]


def test_member_with_store_resumes_where_it_stopped(tmp_path: Path) -> None:
    """A typed line is shown once, with its number. Ctrl-C is the normal way to stop."""
    channel = new_channel()
    words = ("group", "join", channel, "Chess club", "--name", "Ben", "--store", str(tmp_path / "ben.db"))
    with group_owner(channel) as (_, club):
        with running_command(*words, terminal=True) as ben:
            ben.wait_for_output("in Chess club as Ben")
            ben.type("Anybody here?\n")
            ben.wait_for_output("1 Ben: Anybody here?")
            ben.type(">7 Anybody?\n")
            ben.wait_for_output("! there is no message number 7")
            wait_until(lambda: len(club.history()) == 1, "what he said")
            club.send_text("I am", reply_to=club.history()[0])
            ben.wait_for_output("2 Anna >1: I am")
            ben.signal(signal.SIGINT)
            assert ben.wait().code == 0
            assert ben.out.count("1 Ben: Anybody here?") == 1
            assert "> Anybody here?\r\n" not in ben.out
        wait_until(lambda: status_of(club, "Ben") is MemberStatus.OFFLINE, "his going")
        club.send_text("Where are you?")
        with running_command(*words) as ben:
            ben.wait_for_output("1 Anna: Where are you?")
            ben.type("Back\n")
            ben.end_of_input()
            assert ben.wait().code == 0
            assert "I am" not in ben.out, "that was seen before"
        wait_until(lambda: len(club.history()) == 4, "what he said")
        first, *_, last = club.history()
        assert (last.author, last.sequence) == (first.author, 2), "the same member, with its next number"


def run_cli(*args: str) -> tuple[int, str, str]:
    """Run in the test process, which is faster."""
    done = CliRunner().invoke(app, args, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_groups_are_created_listed_and_read() -> None:
    channel = new_channel()
    with group_owner(channel) as (here, club):
        question = club.send_text("Who plays white?")
        club.send_text("Nice weather")
        club.send_text("I do", reply_to=question)
        code, out, _ = run_cli("group", "create", channel, "[red]Go\x1b[2J", "--retain-messages", "9", "--name", "Ben")
        made = out.strip()
        assert (code, len(made)) == (0, 16)
        wait_until(lambda: len(here.list_groups()) == 2, "the new group")
        code, out, _ = run_cli("group", "list", channel, "--json")
        listed = {each["group"]: each for each in map(json.loads, out.splitlines())}
        assert (code, listed[made]["left"], listed[made]["retention"]["messages_max"]) == (0, 1, 9)
        chess = listed[f"{club.id:016x}"]
        assert [chess[name] for name in ("description", "online", "offline", "left", "messages")] == [
            "Chess club",
            1,
            0,
            0,
            0,
        ]
        assert [(each["name"], each["status"]) for each in chess["members"]] == [("Anna", "online")]
        code, out, _ = run_cli("group", "list", channel)
        assert code == 0
        assert re.search(r"Chess club +1 \(Anna\) +0 +0 +0", out)
        assert "[red]Go\\x1b[2J" in out
        code, out, _ = run_cli("group", "history", channel, f"{club.id:016x}"[:8])
        shown = [re.sub(r"[0-9a-f]{8}-(\d) [0-9: -]+", r"\1 ", line) for line in out.splitlines()]
        assert (code, shown) == (0, ["1 Anna: Who plays white?", "    3 Anna: I do", "2 Anna: Nice weather"])
        assert [member.name for member in club.members()] == ["Anna"], "a reader is no member"
        code, _, err = run_cli("group", "history", channel, "Chess")
        assert (code, "no group matches 'Chess'; known groups: " in err) == (1, True)


def test_group_usage_errors_are_reported_before_joining(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("no store, but longer than an empty file")
    for words, code, text in (
        (("list", "x/y", "--store", str(tmp_path / "no.db")), 2, "is not a Broadloom store"),
        (("list", "x/y", "--store", str(tmp_path / "nowhere" / "x.db")), 2, "there is no directory"),
        (("join", "x/y", "club", "--reply-to", "7"), 2, "'7' is not a message id"),
        (("history", "no-channel", "club"), 2, "TYPE/INSTANCE"),
        (
            ("create", "x/y", "club", "--ticket", "missing", "--store", str(tmp_path / "new.db")),
            2,
            "cannot read the ticket",
        ),
        (("create", "x/y", "club", "--retain-messages", str(1 << 40)), 2, "messages_max must be between 0 and"),
    ):
        ended = run_cli("group", *words)
        assert (ended[0], text in ended[2]) == (code, True), ended
    assert [each.name for each in tmp_path.iterdir()] == ["no.db"], "no new store"


@pytest.mark.parametrize("args", [("create",), ("join", "--create"), ("history",)])
def test_empty_group_description_is_an_error(args: tuple[str, ...]) -> None:
    subcommand, *more = args
    code, out, err = run_cli("group", subcommand, new_channel(), " ", *more)
    assert (code, out) == (2, "")
    assert "the description of the group is empty" in err


def test_group_create_needs_other_peers_or_store(tmp_path: Path) -> None:
    channel = new_channel()
    code, _, err = run_cli("group", "create", channel, "club")
    assert (code, "no other peer on" in err) == (1, True)
    kept = ("--store", str(tmp_path / "anna.db"))
    code, made, _ = run_cli("group", "create", channel, "club", *kept)
    assert code == 0
    code, out, _ = run_cli("group", "list", channel, "--json", *kept)
    assert (code, json.loads(out)["group"], json.loads(out)["is_joined"]) == (0, made.strip(), True)


# -- without a channel


def make_message(
    author: int, sequence: int, text: str, parent: MessageId | None = None, name: str = "Anna"
) -> GroupMessage:
    return GroupMessage(1, MessageId(author, sequence), name, parent, 0, text.encode())


def test_history_is_printed_as_tree() -> None:
    root = make_message(10, 1, "root")
    answer = make_message(11, 1, "answer\nin two lines", root.id)
    late = make_message(12, 1, "late", MessageId(99, 9))
    shown = [
        format_history_entry(line)
        for line in history_entries(
            [root, late, answer, make_message(10, 2, "deep", answer.id), make_message(10, 3, "x")]
        )
    ]
    assert [line.partition("-")[0].rstrip("0123456789abcdef") for line in shown] == ["", "    ", "        ", "", ""]
    assert "\n        in two lines" in shown[1]
    assert "(replies to an unavailable message): late" in shown[3]
    deep = [
        make_message(1, 1, "0"),
        *(make_message(1, number, "x", MessageId(1, number - 1)) for number in range(2, 5001)),
    ]
    assert [line.depth for line in history_entries(deep)] == list(range(5000))


def test_reply_refers_to_message_by_number_or_id() -> None:
    numbered = MessageNumbers()
    first, second = make_message(0xABCD << 48, 3, "one"), make_message(0xABCE << 48, 3, "two", name="")
    assert numbered.format_message(first) == "1 Anna: one"
    assert numbered.format_message(second) == "2 abce0000: two"
    assert numbered.format_message(make_message(1, 1, "x", second.id)) == "3 Anna >2: x"
    assert numbered.resolve("2") == numbered.resolve("abce-3") == numbered.resolve(str(second.id)) == second.id
    for word in ("4", "abc-3", "abcd-4", "abcdabcdabcdabcd-0"):
        with pytest.raises(ValueError, match="message"):
            numbered.resolve(word)


@pytest.mark.parametrize(
    ("line", "post"),
    [
        (b"hello", OutgoingPost(b"hello", None)),
        (b">12 I do", OutgoingPost(b"I do", "12")),
        (b">abcd-7 I do", OutgoingPost(b"I do", "abcd-7")),
        (b"> quoted", OutgoingPost(b"> quoted", None)),
        (b">12", OutgoingPost(b">12", None)),
        (b" >12 plain", OutgoingPost(b" >12 plain", None)),
        (b">1 \xff", OutgoingPost(b"\xff", "1")),
    ],
)
def test_text_line_is_parsed_with_optional_reply_prefix(line: bytes, post: OutgoingPost) -> None:
    assert parse_line(line) == post


def test_json_line_is_parsed_and_validated() -> None:
    assert parse_object(b'{"text": "a", "reply_to": "b"}') == OutgoingPost(b"a", "b")
    assert parse_object(b'{"data": "/w=="}') == OutgoingPost(b"\xff", None)
    assert parse_object(b"plain") == OutgoingPost(b"plain", None)
    for wrong in (
        b"{",
        b"{}",
        b'{"text": 1}',
        b'{"text": "a", "data": "/w=="}',
        b'{"data": "?"}',
        b'{"text":"a","x":1}',
    ):
        with pytest.raises(ValueError, match=r"."):
            parse_object(wrong)
    with pytest.raises(UsageError):
        parse_message_id("0")


def test_event_json_names_group_and_member_as_other_objects_do() -> None:
    fields = json.loads(event_json(MemberJoined(0xAB, Member(0xCD, "Ben"))) or "")
    del fields["time"]
    assert fields == {
        "event": "member_joined", "group": "00000000000000ab", "member_id": "00000000000000cd", "name": "Ben"
    }  # fmt: skip


def test_unproven_message_is_marked_as_text_and_as_json() -> None:
    proven = replace(make_message(1, 2, "a"), verified_name="Anna")
    unproven = replace(make_message(1, 2, "a"), is_unproven=True)
    assert format_history_entry(ThreadEntry(0, unproven)).endswith(" Anna (unproven): a")
    assert MessageNumbers().format_message(unproven) == "1 Anna (unproven): a"
    assert MessageNumbers().format_message(replace(unproven, author_name="")) == "1 00000000 (unproven): a"
    assert json.loads(message_json(unproven))["is_unproven"] is True
    assert format_history_entry(ThreadEntry(0, proven)).endswith(" Anna: a")
    assert MessageNumbers().format_message(proven) == "1 Anna: a"
    assert "is_unproven" not in json.loads(message_json(proven))


def test_message_json_has_all_fields() -> None:
    fields = json.loads(message_json(replace(make_message(1, 2, "a", MessageId(3, 4)), is_orphan=True), depth=1))
    expected = {
        "id": "0000000000000001-2",
        "reply_to": "0000000000000003-4",
        "text": "a",
        "is_orphan": True,
        "depth": 1,
    }
    assert expected.items() <= fields.items()
    is_stripped = json.loads(message_json(replace(make_message(1, 2, ""), is_stripped=True)))
    assert (is_stripped["is_stripped"], "text" in is_stripped) == (True, False)
    assert str(Member(1, "")) == "0000000000000001"
