"""The windows that open over the chat: a new group, an invitation, a question, a whole message, help."""

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from broadloom.apps.chat.group_model import about_of, title_of
from broadloom.apps.chat.sanitize import clean, decode_text, truncate
from broadloom.groups import GroupInfo, GroupMessage
from broadloom.groups.settings import DESCRIPTION_BYTES_MAX

MESSAGE_CHARS_MAX = 65_536
"""Of a message that is opened; all of it is in an export."""
TITLE_CELLS_MAX, ABOUT_CELLS_MAX = 100, 300
"""Of a group that one is invited to; whoever made it may have written more than fits."""
KEYS: tuple[tuple[str, str], ...] = (
    ("↑ ↓  PgUp PgDn  Home End", "move in the conversation, or in a list"),
    ("r  Enter", "answer the selected message (a double click does too)"),
    ("w", "write: begin a new thread"),
    ("Enter / Ctrl-J / Esc", "while writing: send / new line / back to the conversation"),
    ("u  U", "next unread message, previous one; opens folded branches"),
    ("m  M", "mark the branch as read, or all"),
    ("Space  ← →  z", "fold or unfold a branch; ← goes to what it answers; z folds all threads"),
    ("v", "the whole message"),
    ("/", "search in this group; Enter or ↓ for the next, ↑ for the one before, Esc ends it"),
    ("[  ]", "group before, group after"),
    ("n", "new group"),
    ("i", "invitations: join or reject"),
    ("x", "leave the group for good, or reject the invitation under the cursor"),
    ("g  p", "show or hide the groups, the people"),
    ("Tab", "from pane to pane"),
    ("Ctrl-Q", "quit; you stay a member, and find what you missed when you come back"),
)
SYMBOLS: tuple[tuple[str, str], ...] = (
    ("●", "unread message; present member"),
    ("○  ×", "member that is gone for now; member that left the group"),
    ("▾  ▸", "message with answers, unfolded and folded"),
    ("↳", "answers a message that is not here"),
    ("⋯", "deeper than can be drawn"),
    ("name~1a2b", "several have this name: the beginning of its id tells them apart"),
    ("name [other]", "on a channel with tickets: the ticket of who said it has another name"),
    ("\\x1b  \\u202e", "signs that would steer your terminal, spelled out"),
)


class NewGroupDialog(ModalScreen[tuple[str, str] | None]):
    """Answers with name and description."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "cancel")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Label("New group", classes="window-title")
            yield Input(placeholder="Name", id="group-title", max_length=100)
            yield Input(placeholder="What it is about (may stay empty)", id="group-about", max_length=900)
            yield Label("All members of the channel are invited.", classes="window-hint", id="hint")
            with Horizontal(classes="window-buttons"):
                yield Button("Create", variant="primary", id="create")
                yield Button("Cancel", id="cancel")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "group-title" and event.value.strip():
            self.query_one("#group-about", Input).focus()
        else:
            self._create()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "create":
            self._create()
        else:
            self.dismiss(None)

    def _create(self) -> None:
        title, about = (self.query_one(f"#group-{each}", Input).value.strip() for each in ("title", "about"))
        problem = ""
        if not title:
            problem = "A group needs a name."
        elif len(f"{title}\n{about}".encode()) > DESCRIPTION_BYTES_MAX:
            problem = f"Name and description have at most {DESCRIPTION_BYTES_MAX} bytes together: shorten them."
        if problem:
            self.query_one("#hint", Label).update(Content(problem))
            self.query_one("#group-title" if not title else "#group-about", Input).focus()
        else:
            self.dismiss((title, about))


class InvitationDialog(ModalScreen[bool | None]):
    """Answers with True to join, False to reject, None to decide later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "later"),
        Binding("j", "dismiss(True)", "join"),
        Binding("x", "dismiss(False)", "reject"),
    ]

    def __init__(self, info: GroupInfo) -> None:
        super().__init__()
        self._info = info

    def compose(self) -> ComposeResult:
        info = self._info
        with Vertical(classes="window"):
            yield Label("You are invited", classes="window-title")
            yield Static(Text(truncate(title_of(info.description), TITLE_CELLS_MAX), style="bold"))
            if about := about_of(info.description):
                yield Static(Text(truncate(about, ABOUT_CELLS_MAX)))
            yield Label(
                Content(f"{info.online_count:,} of {info.member_count:,} members are here."), classes="window-hint"
            )
            with Horizontal(classes="window-buttons"):
                yield Button("Join (j)", variant="primary", id="join")
                yield Button("Reject (x)", id="reject")
                yield Button("Later", id="later")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss({"join": True, "reject": False}.get(event.button.id or ""))


class ConfirmDialog(ModalScreen[bool]):
    """Yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "dismiss(False)", "no"),
        Binding("y", "dismiss(True)", "yes"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(Text(self._question))
            with Horizontal(classes="window-buttons"):
                yield Button("Yes (y)", variant="error", id="yes")
                yield Button("No (n)", id="no")

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class MessageDialog(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,v,enter", "dismiss(None)", "close")]

    def __init__(self, author: str, sent_at: str, message: GroupMessage) -> None:
        super().__init__()
        self._author, self._sent_at, self._message = author, sent_at, message

    def compose(self) -> ComposeResult:
        text = "(not kept)" if self._message.is_stripped else decode_text(self._message.data)
        with Vertical(classes="window window-large"):
            yield Static(Text.assemble((self._author, "bold"), "  ", (self._sent_at, "dim")), classes="window-title")
            with VerticalScroll():
                yield Static(Text(clean(text[:MESSAGE_CHARS_MAX])))
            if len(text) > MESSAGE_CHARS_MAX:
                yield Label(f"{len(text) - MESSAGE_CHARS_MAX:,} more signs are in an export.", classes="window-hint")


class HelpDialog(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,f1,q", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="window window-large"):
            yield Label("Keys", classes="window-title")
            with VerticalScroll():
                yield Static(_table(KEYS))
                yield Static(Text("\nSigns", style="bold"))
                yield Static(_table(SYMBOLS))


def _table(rows: tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    for keys, what in rows:
        table.add_row(Text(keys), Text(what))
    return table
