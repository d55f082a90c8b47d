"""What the keys of the chat do."""

from abc import abstractmethod
from datetime import datetime

from textual.app import App
from textual.content import Content
from textual.widgets import Input, TextArea

from weft.apps.chat.composer import Composer, Draft
from weft.apps.chat.conversation import Conversation
from weft.apps.chat.outbox import OUTBOX_MAX, Outbox
from weft.apps.chat.panes import GroupRows
from weft.apps.chat.talk import Talk
from weft.apps.chat.talks import Talks
from weft.apps.chat.tree import Node, find
from weft.apps.chat.windows import Help, Invitation, NewGroup, Question, WholeMessage
from weft.errors import WeftError
from weft.groups import GroupId, GroupInfo

COMMAND_KEYS: tuple[tuple[str, str, str], ...] = (
    ("r", "answer", "answer"),
    ("w", "write", "write"),
    ("u", "unread", "unread"),
    ("U", "unread(True)", ""),
    ("slash", "search", "search"),
    ("n", "new_group", "new group"),
    ("i", "invitations", ""),
    ("x", "leave", ""),
    ("m", "read_branch", ""),
    ("M", "read_all", ""),
    ("v", "whole", ""),
    ("left_square_bracket", "group(-1)", ""),
    ("right_square_bracket", "group(1)", ""),
    ("g", "pane('groups')", ""),
    ("p", "pane('members')", ""),
    ("question_mark", "help", "help"),
)
"""Key, action, and its word in the footer. They are taken before the key reaches a pane, so what is typed right after
`w` is written already, however fast it comes."""
COMMANDS = frozenset(action.partition("(")[0] for _, action, _ in COMMAND_KEYS)


class Deeds(App[None]):
    def __init__(self, talks: Talks) -> None:
        super().__init__()
        self.talks = talks
        self.outbox = Outbox()
        self._drafts: dict[GroupId, Draft] = {}
        """What was begun in other groups, and not sent."""
        # Kept here and not looked for on the screen: messages may still come when that is gone.
        self.group_rows = GroupRows(talks, id="groups")
        self.conversation = Conversation(id="conversation")
        self.composer = Composer(id="composer")
        self.search_bar = Input(id="search", placeholder="words, then Enter")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are commands, unless somebody is writing or a window is open."""
        is_writing = isinstance(self.focused, TextArea | Input)
        return action not in COMMANDS or not (is_writing or len(self.screen_stack) > 1)

    @abstractmethod
    def draw(self) -> None:
        """Now, not at the next turn: the reader did something."""

    def tell(self, text: str, *, is_problem: bool = False) -> None:
        self.notify(text, severity="warning" if is_problem else "information", markup=False)

    # -- groups

    def open_group(self, talk: Talk) -> None:
        if self.talks.shown is not None:
            self._drafts[self.talks.shown.id] = self.composer.draft
        self.composer.draft = self._drafts.pop(talk.id, ("", None))
        self.composer.names = talk.names
        self.talks.show(talk)
        self.conversation.show(talk)
        self.draw()
        self.group_rows.point_at(talk)
        self.conversation.focus()

    def action_group(self, by: int) -> None:
        """The group before or after the one that is shown."""
        order = self.talks.in_order()
        if order:
            at = order.index(self.talks.shown) + by if self.talks.shown in order else 0
            self.open_group(order[at % len(order)])

    def action_new_group(self) -> None:
        self.push_screen(NewGroup(), self._create)

    async def _create(self, told: tuple[str, str] | None) -> None:
        if told is not None:
            self.open_group(await self.talks.create(*told))

    def action_invitations(self) -> None:
        """One after the other, until one is joined or put off."""
        if self.talks.offers:
            self.decide(next(iter(self.talks.offers.values())), goes_on=True)
        else:
            self.tell("no invitations: n makes a group")

    def decide(self, info: GroupInfo, *, goes_on: bool = False) -> None:
        async def decided(answer: bool | None) -> None:
            if answer:
                try:
                    self.open_group(await self.talks.join(info.id))
                except WeftError as problem:
                    self.tell(str(problem), is_problem=True)
            elif answer is False:
                self.talks.reject(info.id)
                self.draw()
                if goes_on and self.talks.offers:
                    self.action_invitations()

        self.push_screen(Invitation(info), decided)

    def action_leave(self) -> None:
        rows = self.group_rows
        under = rows.entries[rows.at] if rows.has_focus and rows.at < rows.count else None
        if isinstance(under, GroupInfo):
            self.talks.reject(under.id)
            self.draw()
            return
        talk = under if isinstance(under, Talk) else self.talks.shown
        if talk is None:
            return
        question = f"Leave “{talk.title}” for good? To come back later, just quit: you stay a member."

        async def left(answer: bool | None) -> None:
            if answer and talk.id in self.talks.talks:
                await self.talks.leave(talk)
                self.conversation.show(self.talks.shown)
                self.draw()
                rows.focus()

        self.push_screen(Question(question), left)

    # -- reading

    def action_unread(self, backward: bool = False) -> None:
        """In this group; if there is none, in the next group that has some."""
        talk, view = self.talks.shown, self.conversation
        if talk is None or talk.tree is None or not talk.unread:
            order = self.talks.in_order()
            talk = next((each for each in order if each.unread and each is not talk), None)
            if talk is None:
                self.tell("everything is read")
                return
            self.open_group(talk)
        assert talk.tree is not None
        # When a group was just opened the selection stands at its end, and what is unread comes first.
        found = talk.tree.next_unread(view.selected, backward=backward)
        if found is not None:
            view.select(found)
            view.focus()

    def action_read_branch(self) -> None:
        if self.talks.shown is not None and self.conversation.selected is not None:
            self.tell(f"marked as read: {self.talks.shown.read_branch(self.conversation.selected):,}")
            self.talks.has_read()
            self.draw()

    def action_read_all(self) -> None:
        if self.talks.shown is not None:
            self.tell(f"marked as read: {self.talks.shown.read_all():,}")
            self.talks.has_read()
            self.draw()

    def action_whole(self) -> None:
        node, talk = self.conversation.selected, self.talks.shown
        if node is not None and talk is not None:
            self.push_screen(WholeMessage(talk.names.said_by(node.message), _when(node), node.message))

    def action_help(self) -> None:
        self.push_screen(Help())

    # -- searching

    def action_search(self) -> None:
        if self.talks.shown is not None:
            self.search_bar.add_class("searching")
            self.screen.set_focus(self.search_bar)

    def search(self, *, backward: bool = False) -> None:
        bar, view = self.search_bar, self.conversation
        view.words = bar.value.strip()
        if view.threads is None or not view.words:
            return
        found = find(view.threads, view.words, view.selected, backward=backward)
        bar.border_title = Content("search" if found is None else f"{found.number:,} of {found.total:,}")
        bar.border_subtitle = "not found" if found is None else None
        if found is not None:
            view.select(found.node)
        view.look_again()

    def end_search(self) -> None:
        self.search_bar.remove_class("searching")
        self.search_bar.border_subtitle = None
        self.conversation.words = ""
        self.conversation.look_again()
        self.conversation.focus()

    # -- writing

    def action_write(self) -> None:
        self._begin(None)

    def action_answer(self) -> None:
        self._begin(self.conversation.selected)

    def _begin(self, reply_to: Node | None) -> None:
        talk = self.talks.shown
        if talk is None:
            self.tell("no group is open: n makes one", is_problem=True)
        else:
            self.composer.begin(reply_to)

    def say(self, text: str, reply_to: Node | None) -> None:
        talk = self.talks.shown
        if talk is None:
            return
        if self.talks.is_closed:
            self.tell("the channel was closed: nothing can be said any more", is_problem=True)
            self.composer.text = text
            return
        named = reply_to.message.id if reply_to is not None else None

        async def act() -> None:
            try:
                said = await self.talks.say(talk, text, named)
            except (WeftError, ValueError) as problem:
                self.tell(str(problem), is_problem=True)
                return
            self.draw()
            if talk is self.talks.shown and talk.tree is not None and (node := talk.tree.get(said.id)) is not None:
                self.conversation.select(node)

        if not self.outbox.put(act):
            self.tell(f"{OUTBOX_MAX} messages wait for the channel: try again soon", is_problem=True)
            self.composer.text = text


def _when(node: Node) -> str:
    try:
        return f"{datetime.fromtimestamp(node.message.sent_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
