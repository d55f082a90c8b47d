"""What the keys of the chat do."""

from abc import abstractmethod

from textual.app import App
from textual.content import Content
from textual.widgets import Input, TextArea

from broadloom.apps.chat.chat_model import OUTBOX_MAX, ChatModel, Outbox
from broadloom.apps.chat.composer import Composer, Draft
from broadloom.apps.chat.conversation_view import ConversationView
from broadloom.apps.chat.dialogs import ConfirmDialog, HelpDialog, InvitationDialog, MessageDialog, NewGroupDialog
from broadloom.apps.chat.group_model import GroupModel
from broadloom.apps.chat.sidebars import GroupList
from broadloom.apps.chat.thread_tree import ThreadNode, find_text
from broadloom.errors import BroadloomError
from broadloom.groups import GroupId, GroupInfo

COMMAND_KEYS: tuple[tuple[str, str, str], ...] = (
    ("r", "reply", "reply"),
    ("w", "write", "write"),
    ("u", "unread", "unread"),
    ("U", "unread(True)", ""),
    ("slash", "search", "search"),
    ("n", "new_group", "new group"),
    ("i", "invitations", ""),
    ("x", "leave", ""),
    ("m", "read_branch", ""),
    ("M", "read_all", ""),
    ("v", "show_message", ""),
    ("left_square_bracket", "group(-1)", ""),
    ("right_square_bracket", "group(1)", ""),
    ("g", "pane('groups')", ""),
    ("p", "pane('members')", ""),
    ("question_mark", "help", "help"),
)
"""Key, action, and label in the footer. They are handled before a pane sees the key, so text typed right after `w`
already goes to the composer.
"""
COMMANDS = frozenset(action.partition("(")[0] for _, action, _ in COMMAND_KEYS)


class ChatActions(App[None]):
    def __init__(self, chat: ChatModel) -> None:
        super().__init__()
        self.chat = chat
        self.outbox = Outbox()
        self._drafts: dict[GroupId, Draft] = {}
        """Unsent drafts in other groups."""
        # Kept here, because messages may arrive after the widgets are gone.
        self.group_list = GroupList(chat, id="groups")
        self.conversation = ConversationView(id="conversation")
        self.composer = Composer(id="composer")
        self.search_bar = Input(id="search", placeholder="words, then Enter")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are commands unless the composer or a dialog has the focus."""
        is_writing = isinstance(self.focused, TextArea | Input)
        return action not in COMMANDS or not (is_writing or len(self.screen_stack) > 1)

    @abstractmethod
    def draw(self) -> None:
        """Draw now instead of at the next refresh, because the reader did something."""

    def show_notice(self, text: str, *, is_problem: bool = False) -> None:
        self.notify(text, severity="warning" if is_problem else "information", markup=False)

    # -- groups

    def open_group(self, group_model: GroupModel) -> None:
        if self.chat.shown is not None:
            self._drafts[self.chat.shown.id] = self.composer.draft
        self.composer.draft = self._drafts.pop(group_model.id, ("", None))
        self.composer.names = group_model.names
        self.chat.show(group_model)
        self.conversation.show(group_model)
        self.draw()
        self.group_list.move_cursor_to(group_model)
        self.conversation.focus()

    def action_group(self, by: int) -> None:
        """Select the previous or next group."""
        order = self.chat.sorted_groups()
        if order:
            at = order.index(self.chat.shown) + by if self.chat.shown in order else 0
            self.open_group(order[at % len(order)])

    def action_new_group(self) -> None:
        self.push_screen(NewGroupDialog(), self._create)

    async def _create(self, entered: tuple[str, str] | None) -> None:
        if entered is not None:
            self.open_group(await self.chat.create(*entered))

    def action_invitations(self) -> None:
        """One invitation after another, until one is accepted or postponed."""
        if self.chat.invitations:
            self.review_invitation(next(iter(self.chat.invitations.values())), shows_next=True)
        else:
            self.show_notice("no invitations; press n to create a group")

    def review_invitation(self, info: GroupInfo, *, shows_next: bool = False) -> None:
        async def on_answer(answer: bool | None) -> None:
            if answer:
                try:
                    self.open_group(await self.chat.join(info.id))
                except BroadloomError as problem:
                    self.show_notice(str(problem), is_problem=True)
            elif answer is False:
                self.chat.decline(info.id)
                self.draw()
                if shows_next and self.chat.invitations:
                    self.action_invitations()

        self.push_screen(InvitationDialog(info), on_answer)

    def action_leave(self) -> None:
        group_list = self.group_list
        entry = group_list.entries[group_list.at] if group_list.has_focus and group_list.at < group_list.count else None
        if isinstance(entry, GroupInfo):
            self.chat.decline(entry.id)
            self.draw()
            return
        group_model = entry if isinstance(entry, GroupModel) else self.chat.shown
        if group_model is None:
            return
        question = f"Leave “{group_model.title}” permanently? To come back later, just quit: you stay a member."

        async def on_answer(answer: bool | None) -> None:
            if answer and group_model.id in self.chat.group_models:
                await self.chat.leave(group_model)
                self.conversation.show(self.chat.shown)
                self.draw()
                group_list.focus()

        self.push_screen(ConfirmDialog(question), on_answer)

    # -- reading

    def action_unread(self, backward: bool = False) -> None:
        """In this group, or else in the next group with unread messages."""
        group_model, view = self.chat.shown, self.conversation
        if group_model is None or group_model.tree is None or not group_model.unread:
            order = self.chat.sorted_groups()
            group_model = next((each for each in order if each.unread and each is not group_model), None)
            if group_model is None:
                self.show_notice("no unread messages")
                return
            self.open_group(group_model)
        assert group_model.tree is not None
        # In a group that was just opened the selection is at the end, and unread messages come before it.
        found = group_model.tree.next_unread(view.selected, backward=backward)
        if found is not None:
            view.select(found)
            view.focus()

    def action_read_branch(self) -> None:
        if self.chat.shown is not None and self.conversation.selected is not None:
            self.show_notice(f"marked as read: {self.chat.shown.mark_branch_read(self.conversation.selected):,}")
            self.chat.on_read_state_changed()
            self.draw()

    def action_read_all(self) -> None:
        if self.chat.shown is not None:
            self.show_notice(f"marked as read: {self.chat.shown.mark_all_read():,}")
            self.chat.on_read_state_changed()
            self.draw()

    def action_show_message(self) -> None:
        node, group_model = self.conversation.selected, self.chat.shown
        if node is not None and group_model is not None:
            self.push_screen(MessageDialog(group_model.names.author_label(node.message), node.message))

    def action_help(self) -> None:
        self.push_screen(HelpDialog())

    # -- searching

    def action_search(self) -> None:
        if self.chat.shown is not None:
            self.search_bar.add_class("searching")
            self.screen.set_focus(self.search_bar)

    def search(self, *, backward: bool = False) -> None:
        bar, view = self.search_bar, self.conversation
        view.search_text = bar.value.strip()
        if view.threads is None or not view.search_text:
            return
        found = find_text(view.threads, view.search_text, view.selected, backward=backward)
        bar.border_title = Content("search" if found is None else f"{found.number:,} of {found.total:,}")
        bar.border_subtitle = "not found" if found is None else None
        if found is not None:
            view.select(found.node)
        view.refresh_view()

    def end_search(self) -> None:
        self.search_bar.remove_class("searching")
        self.search_bar.border_subtitle = None
        self.conversation.search_text = ""
        self.conversation.refresh_view()
        self.conversation.focus()

    # -- writing

    def action_write(self) -> None:
        self._start_writing(None)

    def action_reply(self) -> None:
        self._start_writing(self.conversation.selected)

    def _start_writing(self, reply_to: ThreadNode | None) -> None:
        group_model = self.chat.shown
        if group_model is None:
            self.show_notice("no group is open; press n to create one", is_problem=True)
        else:
            self.composer.begin(reply_to)

    def send_message(self, text: str, reply_to: ThreadNode | None) -> None:
        group_model = self.chat.shown
        if group_model is None:
            return
        if self.chat.is_closed:
            self.show_notice("the channel was closed: messages can no longer be sent", is_problem=True)
            self.composer.text = text
            return
        parent_id = reply_to.message.id if reply_to is not None else None

        async def send() -> None:
            try:
                message = await self.chat.send(group_model, text, parent_id)
            except (BroadloomError, ValueError) as problem:
                self.show_notice(str(problem), is_problem=True)
                return
            self.draw()
            if (
                group_model is self.chat.shown
                and group_model.tree is not None
                and (node := group_model.tree.get(message.id)) is not None
            ):
                self.conversation.select(node)

        if not self.outbox.put(send):
            self.show_notice(f"{OUTBOX_MAX} messages are waiting to be sent: try again soon", is_problem=True)
            self.composer.text = text
