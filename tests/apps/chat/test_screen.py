"""The chat as a person sees and steers it, over real channels: by key, by mouse, on a large and on a small screen."""

from pathlib import Path

import pytest

from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import Groups, SqliteStore
from tests.apps.chat.at_screen import FAST_SETTINGS, LARGE, SMALL, chat_screen
from tests.channel.joined import connected_channels
from tests.support import eventually

TRICKS = "\x1b[2J\x1b[31m[bold]x[/bold] [/] [@click=app.quit]y[/] \u202etxet \x07\x9b"


@pytest.mark.parametrize("size", [LARGE, SMALL], ids=["large", "small"])
async def test_reader_accepts_an_invitation_and_replies(size: tuple[int, int]) -> None:
    async with (
        connected_channels(2) as (one, two),
        Groups(two, "Ben", settings=FAST_SETTINGS) as ben,
        chat_screen(one, "Anna", size) as anna,
    ):
        await anna.wait_for_text("No groups yet: press n", "connected · 1 neighbor")
        club = await ben.create("Chess club\nWednesdays at eight")
        await anna.wait_for_text("invitations (1)", "+ Chess club", "press i")
        await anna.press("i")
        await anna.wait_for_text("You are invited", "1 of 1 members are online")
        await anna.press("j")
        await anna.wait_for_text("No messages in “Chess club” yet")
        question = await club.send_text("Who plays white?")
        other = await club.send_text("Lunch?")
        first = await club.send_text("I do", reply_to=question)
        await anna.wait_for_text("▾ Ben  Who plays white?", "└── Ben  I do", "Ben  Lunch?")
        shown = [line for line in anna.lines() if "Ben  " in line]
        assert [word for line in shown for word in ("white", "I do", "Lunch") if word in line] == [
            "white", "I do", "Lunch",
        ]  # fmt: skip

        await anna.press("home", "down", "r")
        await anna.wait_for_text("reply to Ben: I do")
        await anna.type("And I black", "enter")
        await eventually(lambda: len(club.history()) == 4)
        answer = club.history()[-1]
        assert (answer.text, answer.author_name, answer.parent_id) == ("And I black", "Anna", first.id)
        await anna.wait_for_text("└── Anna  And I black")

        await anna.press("escape", "home", "space")
        await anna.wait_for_text("▸ Ben  Who plays white?", "▸ 2 replies")
        await club.send_text("Which opening?", reply_to=answer)
        await anna.wait_for_text("3 replies, 1 unread", "1 unread")
        await anna.press("u")
        await anna.wait_for_text("└── Ben  Which opening?")
        await eventually(lambda: not next(iter(anna.chat.group_models.values())).unread)

        await anna.press("slash")
        await anna.type("LUNCH", "enter")
        await anna.wait_for_text("1 of 1")
        selected = anna.app.conversation.selected
        assert selected is not None
        assert selected.message.id == other.id
        await anna.press("escape")

        if size == SMALL:
            assert " you " not in anna.text()
            await anna.press("p")
        await anna.wait_for_text("● Anna", " you ", "● Ben")
        await ben.aclose()
        await anna.wait_for_text("○ Ben", "offline")


async def test_groups_are_created_left_and_declined_in_dialogs() -> None:
    async with (
        connected_channels(2) as (one, two),
        Groups(two, "Ben", settings=FAST_SETTINGS) as ben,
        chat_screen(one, "Anna") as anna,
    ):
        await anna.press("n")
        await anna.wait_for_text("New group")
        await anna.press("enter")
        await anna.wait_for_text("A group needs a name.")
        await anna.type("Bridge", "enter")
        await anna.type("on Mondays", "enter")
        await anna.wait_for_text("▌ Bridge", "on Mondays")
        await eventually(lambda: [info.description for info in ben.list_groups()] == ["Bridge\non Mondays"])
        bridge = await ben.join(ben.list_groups()[0])

        await anna.press("w")
        await anna.type("line one", "ctrl+j")
        await anna.type("line two", "enter")
        await eventually(lambda: [each.text for each in bridge.history()] == ["line one\nline two"])
        await bridge.send_text("a very long one " * 100)
        await anna.wait_for_text("… v: full message")
        await anna.press("escape", "end", "v")
        await anna.wait_for_text("Ben  20", "a very long one a very")
        await anna.press("escape", "question_mark")
        await anna.wait_for_text("reply to the selected message")
        await anna.press("end")
        await anna.wait_for_text("control characters")
        await anna.press("escape")

        lunch = await ben.create("Lunch")
        await anna.wait_for_text("+ Lunch")
        await anna.click("+ Lunch")
        await anna.wait_for_text("You are invited")
        await anna.click("Decline (x)")
        await anna.wait_for_no_text("+ Lunch")
        assert next(info for info in anna.groups.list_groups() if info.id == lunch.id).is_declined

        await anna.press("x")
        await anna.wait_for_text("Leave “Bridge” permanently?")
        await anna.press("y")
        await eventually(lambda: not anna.chat.group_models)
        await anna.wait_for_text("No groups yet")
        await eventually(lambda: "left" in [here.value for here in bridge.members().values()])


async def test_mouse_selects_folds_and_scrolls() -> None:
    async with connected_channels(1) as (one,), chat_screen(one, "Anna") as anna:
        talk = await anna.chat.create("Club")
        second = await anna.chat.create("Other")
        root = await talk.group.send_text("root")
        await talk.group.send_text("answer", reply_to=root)
        for number in range(80):
            await talk.group.send_text(f"line {number}")
        await second.group.send_text("elsewhere")
        await anna.wait_for_text("Club", "Other")
        await anna.click("Club")
        await anna.wait_for_text("line 79")
        view = anna.app.conversation
        await anna.pilot.click(view, offset=(view.size.width - 1, 0))
        await anna.wait_for_text("▾ Anna  root", "└── Anna  answer")
        await anna.click("▾ Anna  root")
        await anna.wait_for_text("▸ Anna  root  ▸ 1 reply")
        await anna.click("line 3")
        assert view.selected is not None
        assert view.selected.message.text == "line 3"
        await anna.click("line 5", times=2)
        await anna.wait_for_text("reply to Anna: line 5")
        await anna.type("unsent")
        await anna.click("Other")
        await anna.wait_for_text("elsewhere")
        assert "unsent" not in anna.text(), "what was begun in one group does not go to another"
        await anna.click("Club")
        await anna.wait_for_text("unsent")


async def test_hostile_text_does_not_reach_the_screen() -> None:
    async with (
        connected_channels(2) as (one, two),
        Groups(two, TRICKS[:20], settings=FAST_SETTINGS) as ben,
        chat_screen(one, "Anna") as anna,
    ):
        club = await ben.create(f"{TRICKS}\n{TRICKS}")
        await anna.wait_for_text("invitations (1)")
        await anna.press("i")
        await anna.wait_for_text("You are invited", r"\x1b[2J\x1b[31m[bold]x[/bold] [/]", "[@click=app.quit]y[/]")
        await anna.press("j")
        said = await club.send_text(TRICKS)
        await club.send_text("\n" * 50 + "Anna  I said this", reply_to=said)
        await club.send(b"\xff\xfe\x00\x1b")
        await anna.wait_for_text(
            r"\x1b[2J\x1b[31m[bold]x[/bold] [/]", "4 bytes that are no text", r"\u202etxet \x07\x9b"
        )
        await anna.press("home", "r")
        await anna.wait_for_text("reply to ")
        await anna.press("escape", "v")
        await anna.wait_for_text("20")
        for line in anna.lines():
            assert line.isprintable(), ascii(line)


async def test_returning_reader_has_history_and_unread_messages(tmp_path: Path) -> None:
    async with connected_channels(2) as (one, two), Groups(two, "Ben", settings=FAST_SETTINGS) as ben:
        club = await ben.create("Chess club")
        await club.send_text("before")
        db, read = tmp_path / "a.db", tmp_path / "a.read"
        async with chat_screen(one, "Anna", store=SqliteStore(db), read_state=ReadState(read)) as anna:
            await anna.wait_for_text("+ Chess club")
            await anna.press("i", "j")
            await anna.wait_for_text("Ben  before")
            await eventually(lambda: not next(iter(anna.chat.group_models.values())).unread)
            await anna.press("w")
            await anna.type("mine", "enter")
            await eventually(lambda: len(club.history()) == 2)
        for number in range(100):
            await club.send_text(f"missed {number}")
        async with chat_screen(one, "Anna", store=SqliteStore(db), read_state=ReadState(read)) as anna:
            talk = next(iter(anna.chat.group_models.values()))
            await eventually(lambda: talk.tree is not None and len(talk.tree) == 102)
            assert talk.tree is not None
            await anna.wait_for_text("missed 99", "unread")
            assert {node.message.text for node in talk.tree if not node.unread} >= {"before", "mine"}
            assert talk.unread > 50, "only what was on the screen for long enough was read"
            await anna.press("u")
            selected = anna.app.conversation.selected
            assert selected is not None
            assert selected.message.text == "missed 0"
            await anna.press("home")
            await anna.wait_for_text("Ben  before", "Anna  mine", "● " if talk.unread else "")
            await anna.press("M")
            await eventually(lambda: talk.unread == 0)
        again = ReadState(read)
        assert again.unread_count(club.id, ben._participant.conversations[club.id].order.received) <= 1, (
            "all but our own"
        )
