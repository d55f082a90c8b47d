"""`weft group`: real processes that talk with a member in this one."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import weft.blocking
from tests.channel.joined import QUICK
from tests.commands.running import new_channel, running, wait_until
from weft.cli import app
from weft.commands.errors import Mistake
from weft.commands.group_talk import Speech, message_named, read_line, read_object
from weft.commands.group_telling import Numbered, history_line, message_json, tree
from weft.groups import Here, Member, Message, MessageId, Settings
from weft.groups.blocking import Group, Groups

SOON = Settings(answer_s=0.2, hold_s=0.4, presence_s=0.5, suspect_s=0.4, ask_after_s=0.2)


@contextmanager
def anna(channel: str) -> Iterator[tuple[Groups, Group]]:
    """Somebody who is there and has made a group."""
    with weft.blocking.connect(channel, settings=QUICK) as joined, joined.groups("Anna", settings=SOON) as here:
        yield here, here.create("Chess club")


def where(group: Group, name: str) -> Here | None:
    return next((here for member, here in group.members().items() if member.name == name), None)


def test_talking_through_pipes() -> None:
    """Both see each answer with its question; whoever has no store leaves for good; nobody paints another's screen."""
    channel = new_channel()
    with anna(channel) as (_, club):
        club.send_text("Who plays \x1b[2Jwhite?\nOr black?")
        with running("group", "join", channel, "chess club", "--name", "Ben\x1b[31m") as ben:
            ben.until("1 Anna: Who plays \\x1b[2Jwhite?\n    Or black?\n")
            ben.type(">1 I do\nNice weather\n")
            wait_until(lambda: len(club.history()) == 3, "three messages")
            question, answer, other = club.history()
            assert (answer.text, answer.parent, answer.name) == ("I do", question.id, "Ben\x1b[31m")
            assert (other.text, other.parent) == ("Nice weather", None)
            club.send_text("Fine", reply_to=answer)
            ben.until(f"2 Anna >{answer.author:016x}"[: len("2 Anna >") + 8] + "-1: Fine")
            ben.end_of_input()
            code, out, err = ben.ended()
        assert (code, err) == (0, "")
        assert "\x1b" not in out
        wait_until(lambda: where(club, "Ben\x1b[31m") is Here.LEFT, "his leaving")


def test_a_program_has_json_on_both_sides() -> None:
    channel = new_channel()
    with anna(channel) as (_, club):
        question = club.send_text("Who plays white?")
        with running("group", "join", channel, "Chess club", "--name", "bot", "--json", "--stay") as bot:
            bot.until('"text": "Who plays white?"')
            bot.type(json.dumps({"text": "I do", "reply_to": str(question.id)}) + "\nas it is\n")
            bot.type(json.dumps({"data": "/w=="}) + "\n")
            bot.until('"data": "/w=="')
            bot.type('{"texts": "I do"}\n')
            code, out, err = bot.ended()
        assert (code, "line 4 was not said: an object has text (or data)" in err) == (1, True)
        told = [json.loads(line) for line in out.splitlines()]
        assert [told[0][name] for name in ("event", "description", "name")] == ["joined", "Chess club", "bot"]
        said = [(each.get("text"), each["parent"], each["own"]) for each in told if "id" in each]
        assert said == [
            ("Who plays white?", None, False),
            ("I do", str(question.id), True),
            ("as it is", None, True),
            (None, None, True),
        ]
        assert [each.data for each in club.history()] == [b"Who plays white?", b"I do", b"as it is", b"\xff"]


def test_a_person_at_a_terminal_comes_back(tmp_path: Path) -> None:
    """What is typed is shown once, with its number; Ctrl-C is the usual end; who has a store goes on where it was."""
    channel = new_channel()
    words = ("group", "join", channel, "Chess club", "--name", "Ben", "--store", str(tmp_path / "ben.db"))
    with anna(channel) as (_, club):
        with running(*words, terminal=True) as ben:
            ben.until("in Chess club as Ben")
            ben.type("Anybody here?\n")
            ben.until("1 Ben: Anybody here?")
            ben.type(">7 Anybody?\n")
            ben.until("! no message 7 was shown here")
            wait_until(lambda: len(club.history()) == 1, "what he said")
            club.send_text("I am", reply_to=club.history()[0])
            ben.until("2 Anna >1: I am")
            ben.signal(signal.SIGINT)
            assert ben.ended().code == 0
            assert ben.out.count("1 Ben: Anybody here?") == 1
            assert "> Anybody here?\r\n" not in ben.out
        wait_until(lambda: where(club, "Ben") is Here.GONE, "his going")
        club.send_text("Where are you?")
        with running(*words) as ben:
            ben.until("1 Anna: Where are you?")
            ben.type("Back\n")
            ben.end_of_input()
            assert ben.ended().code == 0
            assert "I am" not in ben.out, "that was seen before"
        wait_until(lambda: len(club.history()) == 4, "what he said")
        first, *_, last = club.history()
        assert (last.author, last.sequence) == (first.author, 2), "the same member, with its next number"


def ran(*words: str) -> tuple[int, str, str]:
    """In this process, and so without starting one."""
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_groups_are_made_listed_and_read() -> None:
    channel = new_channel()
    with anna(channel) as (here, club):
        question = club.send_text("Who plays white?")
        club.send_text("Nice weather")
        club.send_text("I do", reply_to=question)
        code, out, _ = ran("group", "create", channel, "[red]Go\x1b[2J", "--keep-messages", "9", "--name", "Ben")
        made = out.strip()
        assert (code, len(made)) == (0, 16)
        wait_until(lambda: len(here.known()) == 2, "the new group")
        code, out, _ = ran("group", "list", channel, "--json")
        told = {each["group"]: each for each in map(json.loads, out.splitlines())}
        assert (code, told[made]["left"], told[made]["keep"]["messages"]) == (0, 1, 9)
        chess = told[f"{club.id:016x}"]
        assert [chess[name] for name in ("description", "present", "gone", "left", "held")] == [
            "Chess club",
            1,
            0,
            0,
            0,
        ]
        assert [(each["name"], each["here"]) for each in chess["members"]] == [("Anna", "present")]
        code, out, _ = ran("group", "list", channel)
        assert code == 0
        assert re.search(r"Chess club +1 \(Anna\) +0 +0 +0", out)
        assert "[red]Go\\x1b[2J" in out
        code, out, _ = ran("group", "history", channel, f"{club.id:016x}"[:8])
        shown = [re.sub(r"[0-9a-f]{8}-(\d) [0-9: -]+", r"\1 ", line) for line in out.splitlines()]
        assert (code, shown) == (0, ["1 Anna: Who plays white?", "    3 Anna: I do", "2 Anna: Nice weather"])
        assert [member.name for member in club.members()] == ["Anna"], "whoever reads is in no list"
        code, _, err = ran("group", "history", channel, "Chess")
        assert (code, "no group is called 'Chess'; there are: " in err) == (1, True)


def test_mistakes_are_told_before_anybody_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("no store, but long enough to be told from an empty file, which it is not")
    for words, code, text in (
        (("list", "x/y", "--store", str(tmp_path / "no.db")), 2, "is no history of groups"),
        (("list", "x/y", "--store", str(tmp_path / "nowhere" / "x.db")), 2, "is there such a folder"),
        (("join", "x/y", "club", "--reply-to", "7"), 2, "'7' names no message"),
        (("history", "no-channel", "club"), 2, "TYPE/INSTANCE"),
    ):
        ended = ran("group", *words)
        assert (ended[0], text in ended[2]) == (code, True), ended


def test_nobody_there(tmp_path: Path) -> None:
    channel = new_channel()
    code, _, err = ran("group", "create", channel, "club")
    assert (code, "nobody else is on" in err) == (1, True)
    kept = ("--store", str(tmp_path / "anna.db"))
    code, made, _ = ran("group", "create", channel, "club", *kept)
    assert code == 0
    code, out, _ = ran("group", "list", channel, "--json", *kept)
    assert (code, json.loads(out)["group"], json.loads(out)["joined"]) == (0, made.strip(), True)


# -- without a channel


def said(author: int, sequence: int, text: str, parent: MessageId | None = None, name: str = "Anna") -> Message:
    return Message(1, MessageId(author, sequence), name, parent, 0, text.encode())


def test_a_history_is_a_tree() -> None:
    root = said(10, 1, "root")
    answer = said(11, 1, "answer\nin two lines", root.id)
    late = said(12, 1, "late", MessageId(99, 9))
    shown = [
        history_line(line) for line in tree([root, late, answer, said(10, 2, "deep", answer.id), said(10, 3, "x")])
    ]
    assert [line.partition("-")[0].rstrip("0123456789abcdef") for line in shown] == ["", "    ", "        ", "", ""]
    assert "\n        in two lines" in shown[1]
    assert "(answers what is not held): late" in shown[3]
    deep = [said(1, 1, "0"), *(said(1, number, "x", MessageId(1, number - 1)) for number in range(2, 5001))]
    assert [line.depth for line in tree(deep)] == list(range(5000))


def test_a_message_is_answered_by_its_number_or_its_name() -> None:
    numbered = Numbered()
    first, second = said(0xABCD << 48, 3, "one"), said(0xABCE << 48, 3, "two", name="")
    assert numbered.line(first) == "1 Anna: one"
    assert numbered.line(second) == "2 abce0000: two"
    assert numbered.line(said(1, 1, "x", second.id)) == "3 Anna >2: x"
    assert numbered.named("2") == numbered.named("abce-3") == numbered.named(str(second.id)) == second.id
    for word in ("4", "abc-3", "abcd-4", "abcdabcdabcdabcd-0"):
        with pytest.raises(ValueError, match=r"names|no message"):
            numbered.named(word)


@pytest.mark.parametrize(
    ("line", "speech"),
    [
        (b"hello", Speech(b"hello", None)),
        (b">12 I do", Speech(b"I do", "12")),
        (b">abcd-7 I do", Speech(b"I do", "abcd-7")),
        (b"> quoted", Speech(b"> quoted", None)),
        (b">12", Speech(b">12", None)),
        (b" >12 plain", Speech(b" >12 plain", None)),
        (b">1 \xff", Speech(b"\xff", "1")),
    ],
)
def test_a_line_of_a_person(line: bytes, speech: Speech) -> None:
    assert read_line(line) == speech


def test_a_line_of_a_program() -> None:
    assert read_object(b'{"text": "a", "reply_to": "b"}') == Speech(b"a", "b")
    assert read_object(b'{"data": "/w=="}') == Speech(b"\xff", None)
    assert read_object(b"plain") == Speech(b"plain", None)
    for wrong in (
        b"{",
        b"{}",
        b'{"text": 1}',
        b'{"text": "a", "data": "/w=="}',
        b'{"data": "?"}',
        b'{"text":"a","x":1}',
    ):
        with pytest.raises(ValueError, match=r"."):
            read_object(wrong)
    with pytest.raises(Mistake):
        message_named("0")


def test_json_has_all_of_a_message() -> None:
    told = json.loads(message_json(said(1, 2, "a", MessageId(3, 4))._replace(orphan=True), depth=1))
    expected = {"id": "0000000000000001-2", "parent": "0000000000000003-4", "text": "a", "orphan": True, "depth": 1}
    assert expected.items() <= told.items()
    hollow = json.loads(message_json(said(1, 2, "")._replace(hollow=True)))
    assert (hollow["hollow"], "text" in hollow) == (True, False)
    assert str(Member(1, "")) == "0000000000000001"
