"""The chat in a terminal. It draws what `Talks` knows, at most ten times a second, and turns keys into deeds.

Whatever comes from others goes to the screen as plain text that was cleaned (`safe.py`), never as markup.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Footer, Input, Static

from weft.apps.chat.composer import Composer
from weft.apps.chat.conversation import Conversation
from weft.apps.chat.deeds import COMMAND_KEYS, Deeds
from weft.apps.chat.panes import GroupRows, MemberRows
from weft.apps.chat.rows import Rows
from weft.apps.chat.safe import clean_line
from weft.apps.chat.talk import Talk
from weft.apps.chat.talks import Talks, invitation
from weft.apps.chat.teaching import about_conversation, state_of, when_empty
from weft.groups import GroupInfo

if TYPE_CHECKING:
    from weft.channel import Channel

REFRESH_S = 0.1
"""What came is drawn so often at most."""
WORK_S = 0.02
"""Of each such turn, so much is spent on taking messages in; the rest is for keys and drawing."""
LOAD_S = 0.06
"""The same while the history of the group that is shown is read from the store, ..."""
LOAD_DRAW_S = 0.5
"""... and it is drawn so often meanwhile, since drawing takes longer than reading."""
NOTICES_SHOWN = 3
"""At a time; more would hide the conversation."""
STATE_S = 0.5
SAVE_S = 5.0
LISTS_S = 0.4
LISTS_SHARE = 0.1
"""Lists of many thousands take long to make anew: that is done for at most this share of the time."""


class ChatApp(Deeds):
    CSS_PATH = Path(__file__).with_name("chat.tcss")
    TITLE = "weft chat"
    NOTIFICATION_TIMEOUT = 4.0
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, action, text, show=bool(text), priority=True) for key, action, text in COMMAND_KEYS),
        Binding("f1", "help", show=False),
        Binding("ctrl+q", "quit", "quit", priority=True),
    ]

    def __init__(self, talks: Talks, channel: "Channel") -> None:
        super().__init__(talks)
        self._channel = channel
        self._drawn_at = 0.0
        self._lists_again_at = 0.0
        self._has_lists = False
        self._is_alone = True
        self._where, self._state = Static(id="where"), Static(id="state")
        self._about, self._empty = Static(id="about"), Static(id="empty")
        self._member_rows = MemberRows(talks, id="members")
        self._groups_pane, self._members_pane = Vertical(id="groups-pane"), Vertical(id="members-pane")
        self._talk_pane = Vertical(id="talk-pane")
        self._groups_pane.border_title = "groups"
        self.composer.rest()
        self._texts: dict[Widget, str] = {}
        """What stands in the parts that hold text."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield self._where
            yield self._state
        with Horizontal(id="panes"):
            with self._groups_pane:
                yield self.group_rows
            with Vertical(id="middle"):
                with self._talk_pane:
                    yield self._about
                    yield self._empty
                    yield self.conversation
                yield self.search_bar
                yield self.composer
            with self._members_pane:
                yield self._member_rows
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        me, channel = clean_line(self.talks.here.me.name), clean_line(self._channel.name)
        self._where.update(Text.assemble((me, "bold"), (f" on {channel}", "dim")))
        self._show_state()
        order = self.talks.in_order()
        if order:
            self.open_group(next((talk for talk in order if talk.unread), order[0]))
        else:
            self.group_rows.focus()
        self.turn()
        self.set_interval(REFRESH_S, self.turn)
        self.set_interval(STATE_S, self._show_state)
        self.set_interval(SAVE_S, self._save)
        self._send_what_is_written()

    @work
    async def _send_what_is_written(self) -> None:
        await self.outbox.run()

    # -- each turn

    def turn(self) -> None:
        """Take in what came, and draw what changed."""
        view, talk = self.conversation, self.talks.shown
        self.talks.work(LOAD_S if talk is not None and talk.is_loading else WORK_S)
        if talk is not None and self.app_focus and len(self.screen_stack) == 1:
            if talk.looked_at(view.in_window(), time.monotonic()):
                self.talks.has_read()
        self._draw(is_urgent=False)

    def draw(self) -> None:
        self._draw(is_urgent=True)

    def _draw(self, *, is_urgent: bool) -> None:
        news = self.talks.news()
        talk, now = self.talks.shown, time.monotonic()
        is_due = is_urgent or talk is None or not talk.is_loading or now >= self._drawn_at + LOAD_DRAW_S
        if (news.conversation and is_due) or (news.groups and talk is None):
            self._drawn_at = now
            self._draw_conversation()
        self._has_lists |= news.groups or news.members
        if self._has_lists and (is_urgent or time.monotonic() >= self._lists_again_at):
            self._draw_lists()
        notices = list(dict.fromkeys(news.notices))
        for text in notices[:NOTICES_SHOWN]:
            self.tell(clean_line(text), is_problem=True)
        if len(notices) > NOTICES_SHOWN:
            self.tell(f"and {len(notices) - NOTICES_SHOWN:,} more", is_problem=True)
        if news.offered:
            self.tell(f"{invitation(news.offered)}: press i to join or reject")

    def _draw_conversation(self) -> None:
        talk = self.talks.shown
        empty = when_empty(self.talks, self._channel.name, is_alone=self._is_alone)
        about = about_conversation(talk) if talk is not None else ""
        self._put(self._empty, empty)
        self._put(self._about, about)
        self.conversation.set_class(bool(empty), "hidden")
        self.conversation.look_again()
        unread = f"{talk.unread:,} unread" if talk is not None and talk.unread else ""
        self._title(self._talk_pane, talk.title if talk is not None else "", unread)
        if self.composer.disabled != (talk is None):
            self.composer.disabled = talk is None
            self.composer.names = talk.names if talk is not None else None
            self.composer.rest()

    def _put(self, part: Static, text: str) -> None:
        """What has not changed is not drawn again: that would lay out the whole screen."""
        if self._texts.get(part) != text:
            self._texts[part] = text
            part.update(Content(text))
            part.set_class(not text, "hidden")

    def _title(self, pane: Widget, title: str, subtitle: str = "") -> None:
        if self._texts.get(pane) != f"{title}\n{subtitle}":
            self._texts[pane] = f"{title}\n{subtitle}"
            pane.border_title = Content(title) if title else None
            pane.border_subtitle = Content(subtitle) if subtitle else None

    def _draw_lists(self) -> None:
        began = time.monotonic()
        members = self._member_rows
        self.group_rows.look_again()
        members.look_again()
        present = f"{members.present():,} here" if members.count else "members"
        self._title(self._members_pane, present)
        ended = time.monotonic()
        self._has_lists = False
        self._lists_again_at = ended + max(LISTS_S, (ended - began) / LISTS_SHARE)

    def _show_state(self) -> None:
        status = self._channel.status()
        state = state_of(status)
        waiting = f"{self.outbox.waiting} to send · " if self.outbox.waiting else ""
        if not self._state.has_class(state.colour):
            self._state.set_classes(state.colour)
        self._put(self._state, waiting + state.text)
        if self._is_alone != (not status.neighbours):
            self._is_alone = not status.neighbours
            self._draw_conversation()

    def _save(self) -> None:
        try:
            self.talks.reading.save()
        except OSError as problem:
            self.tell(f"what was read cannot be saved: {problem}", is_problem=True)

    # -- what the parts tell

    @on(Conversation.Selected)
    def _selected(self) -> None:
        talk, view = self.talks.shown, self.conversation
        if talk is not None and view.selected is not None and view.selected.unread and view.has_focus:
            talk.read(view.selected)
            self.talks.has_read()

    @on(Conversation.Opened)
    def _answer_by_mouse(self) -> None:
        self.action_answer()

    @on(Rows.Opened)
    async def _row_opened(self, event: Rows.Opened) -> None:
        if isinstance(event.rows, GroupRows):
            entry = event.rows.entries[event.at]
            if isinstance(entry, Talk):
                self.open_group(entry)
            elif isinstance(entry, GroupInfo):
                self.decide(entry)

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        self.say(event.text, event.reply_to)

    @on(Composer.Back)
    def _back(self) -> None:
        self.screen.set_focus(self.conversation)

    @on(Input.Submitted, "#search")
    def _search_on(self) -> None:
        self.search()

    def on_key(self, event: Key) -> None:
        if not self.search_bar.has_focus:
            return
        if event.key == "escape":
            self.end_search()
        elif event.key in ("up", "down"):
            self.search(backward=event.key == "up")

    def action_pane(self, name: str) -> None:
        """Show or hide a pane; where there is room for one at most, the other gives way."""
        pane, other = self._groups_pane, self._members_pane
        if name == "members":
            pane, other = other, pane
        is_shown = bool(pane.display)
        pane.set_class(is_shown, "hidden")
        pane.set_class(not is_shown, "wanted")
        if not self.screen.has_class("-wide") and not is_shown:
            other.remove_class("wanted").add_class("hidden")
