"""The message box: Enter sends, Ctrl-J starts a new line, Escape returns to the conversation."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from broadloom.apps.chat.display_names import DisplayNames
from broadloom.apps.chat.sanitize import clean_line, decode_text, truncate
from broadloom.apps.chat.thread_tree import ThreadNode

QUOTE_CHARS_MAX = 200
TITLE_CELLS = 60

Draft = tuple[str, ThreadNode | None]
"""A text, and the message it replies to."""


class Composer(TextArea):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send"),
        Binding("ctrl+j", "new_line", "new line"),
        Binding("escape", "back", "back"),
    ]

    class Sent(Message):
        """A text was submitted."""

        def __init__(self, text: str, reply_to: ThreadNode | None) -> None:
            super().__init__()
            self.text = text
            self.reply_to = reply_to

    class Back(Message):
        """Writing was canceled."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, compact=False, soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False)
        self.reply_to: ThreadNode | None = None
        self.names: DisplayNames | None = None
        """The shown group; None without one."""
        self._is_writing = False

    @property
    def draft(self) -> Draft:
        return self.text, self.reply_to

    @draft.setter
    def draft(self, draft: Draft) -> None:
        self.text, self.reply_to = draft

    def begin(self, reply_to: ThreadNode | None) -> None:
        """Start a reply to this message, or a new thread."""
        self.reply_to = reply_to
        self._is_writing = True
        self.border_title = Content(self._title())
        self.placeholder = "Enter sends, Esc goes back"
        self.screen.set_focus(self)

    def _title(self) -> str:
        if self.reply_to is None or self.names is None:
            return "new thread"
        message = self.reply_to.message
        quote = clean_line(decode_text(message.data[: 4 * QUOTE_CHARS_MAX])[:QUOTE_CHARS_MAX])
        title = f"reply to {self.names.author_label(message, 20)}: {quote}"
        return truncate(title, min(TITLE_CELLS, max(10, self.size.width - 4)))

    def show_hint(self) -> None:
        """Show what to do next while the box is empty and unfocused."""
        if not self._is_writing:
            hint = "w: new thread   r: reply to the selected message"
            self.placeholder = hint if self.names is not None else "join or create a group to write"
            self.border_title = None

    def on_focus(self) -> None:
        """By mouse or by moving between panes."""
        if not self._is_writing:
            self.begin(self.reply_to if self.text else None)

    def on_blur(self) -> None:
        self._is_writing = False
        self.show_hint()

    async def _on_key(self, event: events.Key) -> None:
        """Handled here and not as a binding, so that it comes after all earlier keys."""
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.action_send()

    def action_send(self) -> None:
        if self.text.strip():
            sent = self.Sent(self.text, self.reply_to)
            self.text = ""
            self.post_message(sent)

    def action_new_line(self) -> None:
        self.insert("\n")

    def action_back(self) -> None:
        self.post_message(self.Back())

    async def _on_paste(self, event: events.Paste) -> None:
        """Carriage returns from other systems are line ends too."""
        event.text = event.text.replace("\r\n", "\n").replace("\r", "\n")
