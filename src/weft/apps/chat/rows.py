"""A list on the screen that draws only the rows in its window: groups and members may be many thousands."""

from abc import abstractmethod
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from weft.apps.chat.safe import cut


class Rows(ScrollView, can_focus=True):
    """Rows of equal height. Who derives from it says how many there are, and draws one."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"chat--dim", "chat--mark", "chat--selected", "chat--heading", "chat--open"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "open", "open"),
    ]
    row_lines: ClassVar[int] = 1

    class Opened(Message):
        """A row was chosen by key or mouse."""

        def __init__(self, rows: "Rows", at: int) -> None:
            super().__init__()
            self.rows = rows
            self.at = at

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.at = 0
        """The row under the cursor."""
        self.plain = Style()

    @property
    @abstractmethod
    def count(self) -> int:
        """How many there are."""

    @abstractmethod
    def draw(self, at: int, width: int) -> list[list[Segment]]:
        """The lines of one row."""

    def can_be_chosen(self, at: int) -> bool:
        return True

    def look_again(self) -> None:
        """Rows have changed."""
        self.at = max(0, min(self.at, self.count - 1))
        self.virtual_size = Size(self.size.width, self.count * self.row_lines)
        self.refresh()

    def style_of(self, name: str) -> Style:
        return self.get_component_rich_style(f"chat--{name}")

    def render_lines(self, crop: Region) -> list[Strip]:
        self.plain = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at, line = divmod(y + self.scroll_offset.y, self.row_lines)
        if at >= self.count:
            return Strip.blank(width, self.plain)
        strip = Strip(self.draw(at, width)[line]).adjust_cell_length(width, self.plain)
        return behind(strip, self.style_of("selected")) if at == self.at and self.has_focus else strip

    def action_move(self, by: int) -> None:
        step = 1 if by > 0 else -1
        at = max(0, min(self.at + by, self.count - 1))
        while 0 <= at < self.count and not self.can_be_chosen(at):
            at += step
        if 0 <= at < self.count:
            self.at = at
            self._bring_into_window()

    def _bring_into_window(self) -> None:
        first, last = self.at * self.row_lines, (self.at + 1) * self.row_lines - 1
        top, height = self.scroll_offset.y, self.size.height
        if first < top:
            self.scroll_to(y=first, animate=False)
        elif last >= top + height:
            self.scroll_to(y=last - height + 1, animate=False)
        self.refresh()

    def action_open(self) -> None:
        if self.at < self.count and self.can_be_chosen(self.at):
            self.post_message(self.Opened(self, self.at))

    def on_click(self, event: events.Click) -> None:
        at = (event.y + self.scroll_offset.y) // self.row_lines
        if at < self.count and self.can_be_chosen(at):
            self.at = at
            self.refresh()
            self.action_open()


def spread(left: list[Segment], right: list[Segment], width: int, plain: Style) -> list[Segment]:
    """One line with something at its right end; the left gives way."""
    room = width - sum(segment.cell_length for segment in right)
    line: list[Segment] = []
    for segment in left:
        text = cut(segment.text, max(0, room))
        line.append(Segment(text, segment.style))
        room -= line[-1].cell_length
        if text != segment.text:
            break
    return [*line, Segment(" " * max(0, room), plain), *right]


def behind(strip: Strip, style: Style) -> Strip:
    """The same words before another colour."""
    return Strip(Segment.apply_style(strip, post_style=Style(bgcolor=style.bgcolor)), strip.cell_length)
