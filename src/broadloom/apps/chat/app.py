"""The chat in a terminal: draws `ChatModel` at most ten times per second and turns keys into actions.

Text from others reaches the screen sanitized (`sanitize.py`) and never as markup.
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

from broadloom.apps.chat.actions import COMMAND_KEYS, ChatActions
from broadloom.apps.chat.chat_model import ChatModel, invitation_text
from broadloom.apps.chat.composer import Composer
from broadloom.apps.chat.conversation_view import ConversationView
from broadloom.apps.chat.group_model import GroupModel
from broadloom.apps.chat.placeholders import conversation_summary, placeholder_text, status_text
from broadloom.apps.chat.sanitize import clean_line
from broadloom.apps.chat.sidebars import GroupList, MemberList, VirtualList
from broadloom.groups import GroupInfo

if TYPE_CHECKING:
    from broadloom.channel import Channel

REFRESH_S = 0.1
"""Refresh interval."""
WORK_S = 0.02
"""Time per refresh for taking in messages; the rest is for keys and drawing."""
LOAD_S = 0.06
"""The same while history of the shown group is read from the store."""
LOAD_DRAW_S = 0.5
"""Refresh interval meanwhile, since drawing takes longer than reading."""
NOTICES_SHOWN_MAX = 3
"""More would hide the conversation."""
STATUS_REFRESH_S = 0.5
SAVE_S = 5.0
LISTS_S = 0.4
LISTS_TIME_FRACTION = 0.1
"""Rebuilding lists of many thousands is slow; at most this share of the time goes into it."""


class ChatApp(ChatActions):
    CSS_PATH = Path(__file__).with_name("chat.tcss")
    TITLE = "broadloom chat"
    NOTIFICATION_TIMEOUT = 4.0
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, action, text, show=bool(text), priority=True) for key, action, text in COMMAND_KEYS),
        Binding("f1", "help", show=False),
        Binding("ctrl+q", "quit", "quit", priority=True),
    ]

    def __init__(self, chat: ChatModel, channel: "Channel") -> None:
        super().__init__(chat)
        self._channel = channel
        self._drawn_at = 0.0
        self._lists_due_at = 0.0
        self._lists_changed = False
        self._is_alone = True
        self._channel_label, self._status_label = Static(id="where"), Static(id="state")
        self._about, self._placeholder = Static(id="about"), Static(id="empty")
        self._member_list = MemberList(chat, id="members")
        self._groups_pane, self._members_pane = Vertical(id="groups-pane"), Vertical(id="members-pane")
        self._conversation_pane = Vertical(id="talk-pane")
        self._groups_pane.border_title = "groups"
        self.composer.show_hint()
        self._texts: dict[Widget, str] = {}
        """Contents of the text widgets."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield self._channel_label
            yield self._status_label
        with Horizontal(id="panes"):
            with self._groups_pane:
                yield self.group_list
            with Vertical(id="middle"):
                with self._conversation_pane:
                    yield self._about
                    yield self._placeholder
                    yield self.conversation
                yield self.search_bar
                yield self.composer
            with self._members_pane:
                yield self._member_list
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        me, channel = clean_line(self.chat.groups.me.name), clean_line(self._channel.name)
        self._channel_label.update(Text.assemble((me, "bold"), (f" on {channel}", "dim")))
        self._show_status()
        order = self.chat.sorted_groups()
        if order:
            self.open_group(next((group_model for group_model in order if group_model.unread), order[0]))
        else:
            self.group_list.focus()
        self.tick()
        self.set_interval(REFRESH_S, self.tick)
        self.set_interval(STATUS_REFRESH_S, self._show_status)
        self.set_interval(SAVE_S, self._save)
        self._run_outbox()

    @work
    async def _run_outbox(self) -> None:
        await self.outbox.run()

    # -- refresh

    def tick(self) -> None:
        """Take in new messages and draw what changed."""
        view, group_model = self.conversation, self.chat.shown
        self.chat.work(LOAD_S if group_model is not None and group_model.is_loading else WORK_S)
        if group_model is not None and self.app_focus and len(self.screen_stack) == 1:
            if group_model.note_visible(view.visible_nodes(), time.monotonic()):
                self.chat.on_read_state_changed()
        self._draw(is_urgent=False)

    def draw(self) -> None:
        self._draw(is_urgent=True)

    def _draw(self, *, is_urgent: bool) -> None:
        changes = self.chat.take_changes()
        group_model, now = self.chat.shown, time.monotonic()
        is_due = is_urgent or group_model is None or not group_model.is_loading or now >= self._drawn_at + LOAD_DRAW_S
        if (changes.conversation and is_due) or (changes.groups and group_model is None):
            self._drawn_at = now
            self._draw_conversation()
        self._lists_changed |= changes.groups or changes.members
        if self._lists_changed and (is_urgent or time.monotonic() >= self._lists_due_at):
            self._draw_lists()
        notices = list(dict.fromkeys(changes.notices))
        for text in notices[:NOTICES_SHOWN_MAX]:
            self.show_notice(clean_line(text), is_problem=True)
        if len(notices) > NOTICES_SHOWN_MAX:
            self.show_notice(f"and {len(notices) - NOTICES_SHOWN_MAX:,} more", is_problem=True)
        if changes.new_invitations:
            self.show_notice(f"{invitation_text(changes.new_invitations)}: press i to join or reject")

    def _draw_conversation(self) -> None:
        group_model = self.chat.shown
        placeholder = placeholder_text(self.chat, self._channel.name, is_alone=self._is_alone)
        about = conversation_summary(group_model) if group_model is not None else ""
        self._set_text(self._placeholder, placeholder)
        self._set_text(self._about, about)
        self.conversation.set_class(bool(placeholder), "hidden")
        self.conversation.refresh_view()
        unread = f"{group_model.unread:,} unread" if group_model is not None and group_model.unread else ""
        self._set_title(self._conversation_pane, group_model.title if group_model is not None else "", unread)
        if self.composer.disabled != (group_model is None):
            self.composer.disabled = group_model is None
            self.composer.names = group_model.names if group_model is not None else None
            self.composer.show_hint()

    def _set_text(self, part: Static, text: str) -> None:
        """Skip unchanged content: drawing it would lay out the whole screen."""
        if self._texts.get(part) != text:
            self._texts[part] = text
            part.update(Content(text))
            part.set_class(not text, "hidden")

    def _set_title(self, pane: Widget, title: str, subtitle: str = "") -> None:
        if self._texts.get(pane) != f"{title}\n{subtitle}":
            self._texts[pane] = f"{title}\n{subtitle}"
            pane.border_title = Content(title) if title else None
            pane.border_subtitle = Content(subtitle) if subtitle else None

    def _draw_lists(self) -> None:
        began = time.monotonic()
        members = self._member_list
        self.group_list.refresh_view()
        members.refresh_view()
        online = f"{members.online_count():,} online" if members.count else "members"
        self._set_title(self._members_pane, online)
        ended = time.monotonic()
        self._lists_changed = False
        self._lists_due_at = ended + max(LISTS_S, (ended - began) / LISTS_TIME_FRACTION)

    def _show_status(self) -> None:
        status = self._channel.status()
        state = status_text(status)
        waiting = f"{self.outbox.pending_count} to send · " if self.outbox.pending_count else ""
        if not self._status_label.has_class(state.color):
            self._status_label.set_classes(state.color)
        self._set_text(self._status_label, waiting + state.text)
        if self._is_alone != (not status.neighbors):
            self._is_alone = not status.neighbors
            self._draw_conversation()

    def _save(self) -> None:
        try:
            self.chat.read_state.save()
        except OSError as problem:
            self.show_notice(f"what was read cannot be saved: {problem}", is_problem=True)

    # -- messages from widgets

    @on(ConversationView.Selected)
    def _selected(self) -> None:
        group_model, view = self.chat.shown, self.conversation
        if group_model is not None and view.selected is not None and view.selected.unread and view.has_focus:
            group_model.mark_read(view.selected)
            self.chat.on_read_state_changed()

    @on(ConversationView.Opened)
    def _reply_by_mouse(self) -> None:
        self.action_reply()

    @on(VirtualList.Opened)
    async def _row_opened(self, event: VirtualList.Opened) -> None:
        if isinstance(event.source, GroupList):
            entry = event.source.entries[event.at]
            if isinstance(entry, GroupModel):
                self.open_group(entry)
            elif isinstance(entry, GroupInfo):
                self.review_invitation(entry)

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        self.send_message(event.text, event.reply_to)

    @on(Composer.Back)
    def _back(self) -> None:
        self.screen.set_focus(self.conversation)

    @on(Input.Submitted, "#search")
    def _search_next(self) -> None:
        self.search()

    def on_key(self, event: Key) -> None:
        if not self.search_bar.has_focus:
            return
        if event.key == "escape":
            self.end_search()
        elif event.key in ("up", "down"):
            self.search(backward=event.key == "up")

    def action_pane(self, name: str) -> None:
        """Toggle a sidebar; a narrow screen shows one at a time."""
        pane, other = self._groups_pane, self._members_pane
        if name == "members":
            pane, other = other, pane
        is_shown = bool(pane.display)
        pane.set_class(is_shown, "hidden")
        pane.set_class(not is_shown, "wanted")
        if not self.screen.has_class("-wide") and not is_shown:
            other.remove_class("wanted").add_class("hidden")
