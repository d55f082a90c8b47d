"""Groups and what is said in them: to read, and to answer."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from nicegui import ui

from weft.groups import GroupId, GroupInfo, Message, MessageId
from weft.web.pages.frame import button, every, guarded, heading, nothing_here, say
from weft.web.sources import Sources
from weft.web.talking import TEXT_MAX, Talk, Talking, text_of

LOOK_S = 0.5
SHOWN_MAX = 300
"""Messages on the page; the oldest threads give way."""


def build(sources: Sources) -> None:
    talking = sources.talking
    if not talking.is_possible:
        heading("Conversations")
        nothing_here(
            "No channel is joined here.",
            "Start `weft demo`, or take part in a channel: `weft web chat/lobby`.",
        )
        return
    heading("Conversations", "What is said in the groups of this channel. Who answers here does so as one more member.")
    talking.begin()
    Conversations(talking)


class Conversations:
    """One page: the list of groups, one group's tree, and the line to write."""

    def __init__(self, talking: Talking) -> None:
        self._talking = talking
        self._talk: Talk | None = None
        self._next = 0
        self._listed: list[GroupInfo] | None = None
        self._answered: Message | None = None
        self._wait = say("Joining the channel as one more member …", "w-quiet")
        with ui.element("div").classes("w-talk") as self._all:
            with ui.element("nav").props('aria-label="Groups"').classes("w-groups"):
                self._list = ui.element("ul")
                with ui.element("div").classes("w-do"):
                    self._new = ui.input("New group").props("outlined dense maxlength=200")
                    button("Create", self._create, "create")
            with ui.element("section").classes("w-section w-reading").props('aria-label="Conversation"'):
                with ui.element("h2"):
                    self._title = ui.label("Choose a group")
                self._about = say("", "w-quiet w-small")
                self._place = (
                    ui.element("div").classes("w-tree").props('role=log aria-live=polite aria-label="Messages"')
                )
                self._tree = Tree(self._place, self._answer)
                self._writing()
        self._all.set_visibility(False)
        every(LOOK_S, self._look)

    def _writing(self) -> None:
        with ui.element("div").classes("w-writing") as self._write:
            with ui.element("div").classes("w-answered") as self._note:
                self._note_text = ui.label()
                ui.button("New thread instead", on_click=lambda: self._answer(None), color=None).props(
                    "flat dense no-caps"
                )
            self._note.set_visibility(False)
            with ui.element("div").classes("w-do"):
                self._line = (
                    ui.input("Say something").props(f"outlined dense maxlength={TEXT_MAX} id=say").classes("w-line")
                )
                self._line.on("keydown.enter", guarded(self._send))
                button("Send", self._send, "send", is_main=True)
        self._write.set_visibility(False)

    async def _look(self) -> None:
        talking = self._talking
        if talking.here is None:
            if talking.problem:
                self._wait.set_text(f"{talking.problem} Trying again …")
                talking.begin()
            return
        self._wait.set_visibility(False)
        self._all.set_visibility(True)
        known = talking.known()
        if known != self._listed:
            self._listed = known
            self._list_groups()
        if self._talk is None and known:
            await self._choose(known[0].id)
        if self._talk is not None:
            self._next, fresh = self._talk.since(self._next)
            for message in fresh:
                self._tree.add(message, is_ours=message.author == talking.here.me.id)
            self._tell()

    def _list_groups(self) -> None:
        self._list.clear()
        with self._list:
            for info in self._listed or ():
                is_chosen = self._talk is not None and self._talk.group.id == info.id
                with ui.element("li"):
                    entry = ui.element("button").props("type=button").classes("w-group")
                    if is_chosen:
                        entry.props("aria-current=true")
                    with entry:
                        ui.label(info.description).classes("w-promise")
                        ui.label(f"{info.present} there, {info.members} members").classes("w-quiet w-small")
                    entry.on("click", guarded(partial(self._choose, info.id)))
            if not self._listed:
                with ui.element("li"):
                    say("No group is known here yet. Others tell of theirs within a few seconds.", "w-quiet")

    async def _choose(self, named: GroupId) -> None:
        self._talk = await self._talking.look_at(named)
        self._next = 0
        self._answer(None)
        self._tree.clear()
        self._title.set_text(self._talk.group.description)
        self._write.set_visibility(True)
        self._list_groups()

    def _tell(self) -> None:
        if self._talk is None:
            return
        info = self._talk.group.info
        coming = " History is coming in." if self._talk.group.is_catching_up else ""
        part = "You are a member." if info.joined else "You listen; with your first line you become a member."
        self._about.set_text(f"{self._tree.count} messages shown. {part}{coming}")

    def _answer(self, message: Message | None) -> None:
        self._answered = message
        self._note.set_visibility(message is not None)
        if message is not None:
            self._note_text.set_text(f"Answering {message.name}: {text_of(message)[:80]}")
            self._line.run_method("focus")

    async def _send(self) -> None:
        text = str(self._line.value or "").strip()
        if not text or self._talk is None:
            return
        answered: MessageId | None = self._answered.id if self._answered is not None else None
        self._line.set_value("")
        await self._talking.say(self._talk.group.id, text, answered)
        self._answer(None)
        await self._look()

    async def _create(self) -> None:
        text = str(self._new.value or "").strip()
        if text and self._talking.here is not None:
            self._new.set_value("")
            await self._choose(await self._talking.create(text))


class Tree:
    """Messages below those that they respond to. Only what is new is sent to the browser."""

    def __init__(self, place: ui.element, answer: Callable[[Message], None]) -> None:
        self._place = place
        self._answer = answer
        self._below: dict[MessageId, ui.element] = {}
        self._roots: dict[MessageId, tuple[ui.element, list[MessageId]]] = {}
        self._root_of: dict[MessageId, MessageId] = {}

    @property
    def count(self) -> int:
        return len(self._below)

    def clear(self) -> None:
        self._place.clear()
        for each in (self._below, self._roots, self._root_of):
            each.clear()

    def add(self, message: Message, *, is_ours: bool) -> None:
        if message.id in self._below:
            return
        parent = self._below.get(message.parent) if message.parent is not None else None
        root = self._root_of[message.parent] if parent is not None and message.parent is not None else message.id
        with parent if parent is not None else self._place, ui.element("div").classes("w-thread") as thread:
            self._line(message, is_ours=is_ours, is_orphan=message.parent is not None and parent is None)
            self._below[message.id] = ui.element("div").classes("w-answers")
        self._root_of[message.id] = root
        if root == message.id:
            thread.move(target_index=0)  # the newest thread is on top
            self._roots[root] = (thread, [])
        self._roots[root][1].append(message.id)
        while len(self._below) > SHOWN_MAX and len(self._roots) > 1:
            self._drop(next(iter(self._roots)))

    def _line(self, message: Message, *, is_ours: bool, is_orphan: bool) -> None:
        with ui.element("article").classes("w-said").props(f'data-message="{message.id}"'):
            with ui.element("div").classes("w-who"):
                ui.label(f"{message.name or 'somebody'}{' (you)' if is_ours else ''}").classes("w-promise")
                with ui.element("time").classes("w-quiet w-small"):
                    ui.label(datetime.fromtimestamp(message.sent_ms / 1000).astimezone().strftime("%H:%M:%S"))
                if is_orphan:
                    ui.label("answers something that is not held here").classes("w-quiet w-small")
                reply = ui.element("button").props("type=button").classes("w-reply")
                reply.props["aria-label"] = f"Answer {message.name}"
                with reply:
                    ui.label("Answer")
                reply.on("click", lambda: self._answer(message))
            ui.label(text_of(message)).classes("w-text")

    def _drop(self, root: MessageId) -> None:
        thread, inside = self._roots.pop(root)
        thread.delete()
        for each in inside:
            del self._below[each]
            del self._root_of[each]
