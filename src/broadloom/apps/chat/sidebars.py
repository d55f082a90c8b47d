"""The sidebars: groups and invitations on the left, members on the right.

Only visible rows are drawn. Textual's `OptionList` takes 1.9 s of CPU time to fill with 20,000 rows (Textual 8.2.8),
and no key would be handled meanwhile.
"""

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

from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.group_model import GroupModel, about_of, title_of
from broadloom.apps.chat.message_renderer import name_styles
from broadloom.apps.chat.sanitize import truncate
from broadloom.groups import GroupInfo, Member, MemberStatus


class VirtualList(ScrollView, can_focus=True):
    """Rows of equal height; only visible ones are drawn. Subclasses define count and content."""

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
        """A row was selected by key or mouse."""

        def __init__(self, source: "VirtualList", at: int) -> None:
            super().__init__()
            self.source = source
            self.at = at

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.at = 0
        """The row under the cursor."""
        self.plain = Style()

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of rows."""

    @abstractmethod
    def draw(self, at: int, width: int) -> list[list[Segment]]:
        """The lines of one row."""

    def is_selectable(self, at: int) -> bool:
        return True

    def refresh_view(self) -> None:
        """Rows have changed."""
        self.at = max(0, min(self.at, self.count - 1))
        self.virtual_size = Size(self.size.width, self.count * self.row_lines)
        self.refresh()

    def component_style(self, name: str) -> Style:
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
        return with_background(strip, self.component_style("selected")) if at == self.at and self.has_focus else strip

    def action_move(self, by: int) -> None:
        step = 1 if by > 0 else -1
        at = max(0, min(self.at + by, self.count - 1))
        while 0 <= at < self.count and not self.is_selectable(at):
            at += step
        if 0 <= at < self.count:
            self.at = at
            self._scroll_into_view()

    def _scroll_into_view(self) -> None:
        first, last = self.at * self.row_lines, (self.at + 1) * self.row_lines - 1
        top, height = self.scroll_offset.y, self.size.height
        if first < top:
            self.scroll_to(y=first, animate=False)
        elif last >= top + height:
            self.scroll_to(y=last - height + 1, animate=False)
        self.refresh()

    def action_open(self) -> None:
        if self.at < self.count and self.is_selectable(self.at):
            self.post_message(self.Opened(self, self.at))

    def on_click(self, event: events.Click) -> None:
        at = (event.y + self.scroll_offset.y) // self.row_lines
        if at < self.count and self.is_selectable(at):
            self.at = at
            self.refresh()
            self.action_open()


def justify_line(left: list[Segment], right: list[Segment], width: int, plain: Style) -> list[Segment]:
    """One line with right-aligned text; the left part is cut."""
    room = width - sum(segment.cell_length for segment in right)
    line: list[Segment] = []
    for segment in left:
        text = truncate(segment.text, max(0, room))
        line.append(Segment(text, segment.style))
        room -= line[-1].cell_length
        if text != segment.text:
            break
    return [*line, Segment(" " * max(0, room), plain), *right]


def with_background(strip: Strip, style: Style) -> Strip:
    """The same text on another background."""
    return Strip(Segment.apply_style(strip, post_style=Style(bgcolor=style.bgcolor)), strip.cell_length)


HEADING = "invitations"


class GroupList(VirtualList):
    """Two lines per group: title and unread count; description or history progress."""

    row_lines: ClassVar[int] = 2

    def __init__(self, chat: ChatModel, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chat = chat
        self.entries: list[GroupModel | GroupInfo | str] = []

    @property
    def count(self) -> int:
        return len(self.entries)

    def is_selectable(self, at: int) -> bool:
        return not isinstance(self.entries[at], str)

    def refresh_view(self) -> None:
        entry_at_cursor = self.entries[self.at] if self.at < self.count else None
        offers = sorted(
            self._chat.invitations.values(), key=lambda info: (title_of(info.description).casefold(), info.id)
        )
        self.entries = [*self._chat.sorted_groups(), *([HEADING] if offers else []), *offers]
        for at, entry in enumerate(self.entries):
            if _entry_id(entry) == _entry_id(entry_at_cursor):
                self.at = at
        super().refresh_view()
        if self.count and not self.is_selectable(self.at):
            self.action_move(1)

    def move_cursor_to(self, entry: GroupModel | GroupInfo) -> None:
        """Move the cursor."""
        for at, each in enumerate(self.entries):
            if _entry_id(each) == _entry_id(entry):
                self.at = at
                self._scroll_into_view()

    def draw(self, at: int, width: int) -> list[list[Segment]]:
        entry, plain, dim = self.entries[at], self.plain, self.component_style("dim")
        if isinstance(entry, str):
            return [
                [Segment("", plain)],
                [Segment(f" {entry} ({len(self._chat.invitations):,})", self.component_style("heading"))],
            ]
        if isinstance(entry, GroupModel):
            return self._draw_group(entry, width)
        about = about_of(entry.description) or f"{entry.member_count:,} in it"
        return [
            justify_line(
                [Segment(" + ", self.component_style("mark")), Segment(title_of(entry.description), plain)],
                [],
                width,
                plain,
            ),
            justify_line([Segment(f"   {about}", dim)], [], width, plain),
        ]

    def _draw_group(self, group_model: GroupModel, width: int) -> list[list[Segment]]:
        plain, dim = self.plain, self.component_style("dim")
        is_shown = group_model is self._chat.shown
        unread = [Segment(f" {group_model.unread:,} ", self.component_style("mark"))] if group_model.unread else []
        title = Segment(group_model.title, self.component_style("open") if is_shown else plain)
        return [
            justify_line(
                [Segment(" ▌ " if is_shown else "   ", self.component_style("mark")), title], unread, width, plain
            ),
            justify_line([Segment(f"   {self._second_line(group_model)}", dim)], [], width, plain),
        ]

    @staticmethod
    def _second_line(group_model: GroupModel) -> str:
        if group_model.catching_up is not None:
            received, remaining = group_model.catching_up
            return f"catching up {100 * received // max(1, received + remaining)} %"
        return group_model.about


def _entry_id(entry: GroupModel | GroupInfo | str | None) -> int | str | None:
    return entry if entry is None or isinstance(entry, str) else entry.id


class MemberList(VirtualList):
    _MARKERS: ClassVar[dict[MemberStatus, str]] = {
        MemberStatus.ONLINE: "●",
        MemberStatus.OFFLINE: "○",
        MemberStatus.LEFT: "×",
    }

    def __init__(self, chat: ChatModel, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chat = chat
        self.members: list[tuple[Member, MemberStatus]] = []

    @property
    def count(self) -> int:
        return len(self.members)

    def refresh_view(self) -> None:
        self.members = self._chat.shown.members() if self._chat.shown is not None else []
        super().refresh_view()

    def online_count(self) -> int:
        return sum(status is MemberStatus.ONLINE for _, status in self.members)

    def draw(self, at: int, width: int) -> list[list[Segment]]:
        group_model = self._chat.shown
        if group_model is None:
            return [[]]
        (member, status), plain, dim = self.members[at], self.plain, self.component_style("dim")
        colors = name_styles(dark=self.app.current_theme.dark)
        marker = self.component_style("mark") if status is MemberStatus.ONLINE else dim
        color = plain + colors[group_model.names.color_index(member.id, len(colors))]
        name = Segment(group_model.names.get(member.id), color if status is MemberStatus.ONLINE else dim)
        note = "you" if member.id == group_model.names.me.id else "" if status is MemberStatus.ONLINE else status.value
        right = [Segment(f" {note} ", dim)] if note else []
        return [justify_line([Segment(f" {self._MARKERS[status]} ", marker), name], right, width, plain)]
