"""Dialogs: new group, invitation, confirmation, full message, help."""

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
"""Of an opened message; an export has all of it."""
TITLE_CELLS_MAX, ABOUT_CELLS_MAX = 100, 300
"""Of a group description in an invitation, which may be longer than the screen."""
KEYS: tuple[tuple[str, str], ...] = (
    ("↑ ↓  PgUp PgDn  Home End", "move in the conversation, or in a list"),
    ("r  Enter", "reply to the selected message (or double-click it)"),
    ("w", "write: start a new thread"),
    ("Enter / Ctrl-J / Esc", "while writing: send / new line / back to the conversation"),
    ("u  U", "next or previous unread message; unfolds branches"),
    ("m  M", "mark the branch as read, or all"),
    ("Space  ← →  z", "fold or unfold a branch; ← goes to the parent; z folds all threads"),
    ("v", "show the full message"),
    ("/", "search in this group; Enter or ↓ for the next, ↑ for the previous result, Esc ends it"),
    ("[  ]", "previous group, next group"),
    ("n", "new group"),
    ("i", "invitations: join or decline"),
    ("x", "leave the group permanently, or decline the invitation under the cursor"),
    ("g  p", "toggle the group list, the member list"),
    ("Tab", "next pane"),
    ("Ctrl-Q", "quit; you stay a member and catch up when you come back"),
)
SYMBOLS: tuple[tuple[str, str], ...] = (
    ("●", "unread message; online member"),
    ("○  ×", "offline member; member that left the group"),
    ("▾  ▸", "message with replies, unfolded and folded"),
    ("↳", "reply to a message that is not available"),
    ("⋯", "too deep to draw"),
    ("name~1a2b", "ambiguous name, with the beginning of the member ID"),
    ("name [other]", "on a channel with tickets: the sender's ticket has another name"),
    ("\\x1b  \\u202e", "control characters, escaped"),
)


class NewGroupDialog(ModalScreen[tuple[str, str] | None]):
    """Returns name and description."""

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
    """Returns True to join, False to decline, None to decide later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "later"),
        Binding("j", "dismiss(True)", "join"),
        Binding("x", "dismiss(False)", "decline"),
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
                Content(f"{info.online_count:,} of {info.member_count:,} members are online."), classes="window-hint"
            )
            with Horizontal(classes="window-buttons"):
                yield Button("Join (j)", variant="primary", id="join")
                yield Button("Decline (x)", id="decline")
                yield Button("Later", id="later")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss({"join": True, "decline": False}.get(event.button.id or ""))


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

    def __init__(self, author: str, message: GroupMessage) -> None:
        super().__init__()
        self._author, self._message = author, message

    def compose(self) -> ComposeResult:
        text = "(not stored)" if self._message.is_stripped else decode_text(self._message.data)
        sent_at = self._message.sent_at
        when = f"{sent_at:%Y-%m-%d %H:%M:%S}" if sent_at is not None else "at an unknown time"
        with Vertical(classes="window window-large"):
            yield Static(Text.assemble((self._author, "bold"), "  ", (when, "dim")), classes="window-title")
            with VerticalScroll():
                yield Static(Text(clean(text[:MESSAGE_CHARS_MAX])))
            if len(text) > MESSAGE_CHARS_MAX:
                yield Label(
                    f"{len(text) - MESSAGE_CHARS_MAX:,} more characters: export the group to read them.",
                    classes="window-hint",
                )


class HelpDialog(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,f1,q", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="window window-large"):
            yield Label("Keys", classes="window-title")
            with VerticalScroll():
                yield Static(_table(KEYS))
                yield Static(Text("\nSymbols", style="bold"))
                yield Static(_table(SYMBOLS))


def _table(rows: tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    for keys, what in rows:
        table.add_row(Text(keys), Text(what))
    return table
