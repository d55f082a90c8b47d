"""The conversations page: groups, their threads, and a message box."""

from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from broadloom.groups import GroupId, GroupInfo, GroupMessage, MessageId
from broadloom.web.group_client import TEXT_CHARS_MAX, GroupClient, GroupTranscript, display_text
from broadloom.web.pages.layout import button, empty_state, every, guarded, heading, keep_joining, paragraph
from broadloom.web.sources import Sources

REFRESH_S = 0.5
MESSAGES_SHOWN_MAX = 300
"""Messages on the page; the oldest threads are removed first."""


def build(sources: Sources) -> None:
    client = sources.group_client
    if not client.is_available:
        heading("Conversations")
        empty_state(
            "No channel is joined here.",
            "Start `broadloom demo` or join a channel: `broadloom web chat/lobby`.",
        )
        return
    heading("Conversations", "The groups of this channel, and what their members write.")
    client.start_joining()
    Conversations(client)


def author_label(message: GroupMessage) -> str:
    """The author, the name on its ticket if that differs, and whether the message is unproven."""
    return f"{message.author_name or 'unknown'} {message.author_note}".rstrip()


class GroupEntry:
    """A group in the list."""

    def __init__(self, on_click: Callable[[], Awaitable[None]]) -> None:
        with ui.element("li") as self.item:
            self._button = ui.element("button").props("type=button").classes("bl-group")
            with self._button:
                self._description = ui.label().classes("bl-guarantee")
                self._members = ui.label().classes("bl-quiet bl-small")
            self._button.on("click", guarded(on_click))

    def update(self, info: GroupInfo, *, is_chosen: bool) -> None:
        self._description.set_text(info.description)
        self._members.set_text(f"{info.online_count} of {info.member_count} members online")
        if is_chosen:
            self._button.props("aria-current=true")
        else:
            self._button.props(remove="aria-current")


class Conversations:
    """The list of groups, one conversation as a tree, and the message box."""

    def __init__(self, client: GroupClient) -> None:
        self._client = client
        self._transcript: GroupTranscript | None = None
        self._chosen: GroupId | None = None
        """Its group, or the one that is being opened."""
        self._next = 0
        self._listed: list[GroupInfo] | None = None
        self._entries: dict[GroupId, GroupEntry] = {}
        self._reply_to: GroupMessage | None = None
        self._wait_label = paragraph("Joining the channel …", "bl-quiet")
        with ui.element("div").classes("bl-talk") as self._all:
            with ui.element("nav").props('aria-label="Groups"').classes("bl-groups"):
                self._list = ui.element("ul")
                self._no_groups = paragraph("No groups yet. Existing ones appear within a few seconds.", "bl-quiet")
                with ui.element("div").classes("bl-do"):
                    self._new = ui.input("New group").props("outlined dense maxlength=200")
                    button("Create", self._create, "create")
            with ui.element("section").classes("bl-section bl-reading").props('aria-label="Conversation"'):
                with ui.element("h2"):
                    self._title = ui.label("Select a group")
                self._about = paragraph("", "bl-quiet bl-small")
                self._container = (
                    ui.element("div").classes("bl-tree").props('role=log aria-live=polite aria-label="Messages"')
                )
                self._tree = MessageTree(self._container, self._set_reply_to)
                self._build_composer()
        self._all.set_visibility(False)
        every(REFRESH_S, self._refresh)

    def _build_composer(self) -> None:
        with ui.element("div").classes("bl-writing") as self._composer:
            with ui.element("div").classes("bl-answered") as self._note:
                self._note_text = ui.label()
                ui.button("Start a new thread", on_click=lambda: self._set_reply_to(None), color=None).props(
                    "flat dense no-caps"
                )
            self._note.set_visibility(False)
            with ui.element("div").classes("bl-do"):
                self._input = (
                    ui.input("Message").props(f"outlined dense maxlength={TEXT_CHARS_MAX} id=say").classes("bl-line")
                )
                self._input.on("keydown.enter", guarded(self._send))
                button("Send", self._send, "send", is_primary=True)
        self._composer.set_visibility(False)

    async def _refresh(self) -> None:
        client = self._client
        if client.groups is None:
            keep_joining(client, self._wait_label)
            return
        self._wait_label.set_visibility(False)
        self._all.set_visibility(True)
        known = client.list_groups()
        if known != self._listed:
            self._listed = known
            self._list_groups()
        if self._chosen is None and known:
            await self._choose(known[0].id)
        if self._transcript is not None:
            self._next, fresh = self._transcript.since(self._next)
            for message in fresh:
                self._tree.add(message, is_ours=message.author == client.groups.me.id)
            self._show_membership()

    def _list_groups(self) -> None:
        """Entries stay in place, so that no click is lost when something changes."""
        listed = self._listed or []
        self._no_groups.set_visibility(not listed)
        for gone in self._entries.keys() - {each.id for each in listed}:
            self._entries.pop(gone).item.delete()
        for index, info in enumerate(listed):
            entry = self._entries.get(info.id)
            if entry is None:
                with self._list:
                    entry = self._entries[info.id] = GroupEntry(partial(self._choose, info.id))
            entry.update(info, is_chosen=info.id == self._chosen)
            if self._list.default_slot.children.index(entry.item) != index:
                entry.item.move(target_index=index)

    async def _choose(self, group_id: GroupId) -> None:
        self._chosen = group_id
        try:
            transcript = await self._client.open_group(group_id)
        except BaseException:
            self._chosen = self._transcript.group.id if self._transcript is not None else None
            raise
        if self._chosen != group_id:
            return  # another one was chosen while this one was opened
        self._transcript = transcript
        self._next = 0
        self._set_reply_to(None)
        self._tree.clear()
        self._title.set_text(self._transcript.group.description)
        self._composer.set_visibility(True)
        self._list_groups()

    def _show_membership(self) -> None:
        if self._transcript is None:
            return
        info = self._transcript.group.info
        coming = " Fetching history …" if self._transcript.group.is_catching_up else ""
        name = self._client.groups.me.name if self._client.groups is not None else ""
        part = f"You write as {name}." if info.is_joined else f"Your first message joins the group as {name}."
        self._about.set_text(f"{self._tree.count} messages shown. {part}{coming}")

    def _set_reply_to(self, message: GroupMessage | None) -> None:
        self._reply_to = message
        self._note.set_visibility(message is not None)
        if message is not None:
            self._note_text.set_text(f"Replying to {author_label(message)}: {display_text(message)[:80]}")
            self._input.run_method("focus")

    async def _send(self) -> None:
        text = str(self._input.value or "").strip()
        if not text or self._transcript is None:
            return
        parent_id: MessageId | None = self._reply_to.id if self._reply_to is not None else None
        self._input.set_value("")
        await self._client.send_text(self._transcript.group.id, text, parent_id)
        self._set_reply_to(None)
        await self._refresh()

    async def _create(self) -> None:
        text = str(self._new.value or "").strip()
        if text and self._client.groups is not None:
            self._new.set_value("")
            await self._choose(await self._client.create(text))


class MessageTree:
    """Messages below those that they respond to. Only what is new is sent to the browser."""

    def __init__(self, container: ui.element, on_reply: Callable[[GroupMessage], None]) -> None:
        self._container = container
        self._on_reply = on_reply
        self._replies: dict[MessageId, ui.element] = {}
        self._roots: dict[MessageId, tuple[ui.element, list[MessageId]]] = {}
        self._root_of: dict[MessageId, MessageId] = {}

    @property
    def count(self) -> int:
        return len(self._replies)

    def clear(self) -> None:
        self._container.clear()
        for each in (self._replies, self._roots, self._root_of):
            each.clear()

    def add(self, message: GroupMessage, *, is_ours: bool) -> None:
        if message.id in self._replies:
            return
        parent = self._replies.get(message.parent_id) if message.parent_id is not None else None
        root = self._root_of[message.parent_id] if parent is not None and message.parent_id is not None else message.id
        with parent if parent is not None else self._container, ui.element("div").classes("bl-thread") as thread:
            self._render_message(message, is_ours=is_ours, is_orphan=message.parent_id is not None and parent is None)
            self._replies[message.id] = ui.element("div").classes("bl-answers")
        self._root_of[message.id] = root
        if root == message.id:
            thread.move(target_index=0)  # the newest thread is on top
            self._roots[root] = (thread, [])
        self._roots[root][1].append(message.id)
        while len(self._replies) > MESSAGES_SHOWN_MAX and len(self._roots) > 1:
            self._drop(next(iter(self._roots)))

    def _render_message(self, message: GroupMessage, *, is_ours: bool, is_orphan: bool) -> None:
        with ui.element("article").classes("bl-said").props(f'data-message="{message.id}"'):
            with ui.element("div").classes("bl-who"):
                ui.label(f"{author_label(message)}{' (you)' if is_ours else ''}").classes("bl-guarantee")
                with ui.element("time").classes("bl-quiet bl-small"):
                    ui.label(f"{message.sent_at:%H:%M:%S}" if message.sent_at is not None else "unknown time")
                if is_orphan:
                    ui.label("reply to a message that is not available").classes("bl-quiet bl-small")
                reply = ui.element("button").props("type=button").classes("bl-reply")
                reply.props["aria-label"] = f"Reply to {author_label(message)}"
                with reply:
                    ui.label("Reply")
                reply.on("click", lambda: self._on_reply(message))
            ui.label(display_text(message)).classes("bl-text")

    def _drop(self, root: MessageId) -> None:
        thread, inside = self._roots.pop(root)
        thread.delete()
        for each in inside:
            del self._replies[each]
            del self._root_of[each]
