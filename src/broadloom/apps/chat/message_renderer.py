"""Render a message of the tree as colored text: unread marker, branches, name, text, time.

    ● ▾ Anna  Who plays white?                      10:42
      ├─▾ Ben  I do                                 10:43
      │ └── Cleo  And I black                       10:44
      └── Dora  Me too                              10:45

Only visible messages are rendered. Sanitized and wrapped text is cached with the message until the width changes.
"""

import re
from datetime import datetime
from functools import cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from broadloom.apps.chat.display_names import DisplayNames
from broadloom.apps.chat.sanitize import clean, decode_text, wrap
from broadloom.apps.chat.thread_tree import ThreadNode, ThreadTree

LINES_MAX = 6
"""Lines per message; an opened message shows the rest."""
NAME_CELLS_MAX = 20
NOTED_NAME_CELLS_MIN = 15
"""Of a name with a note, in a deep thread too: `Ann… (unproven)`."""
TEXT_CHARS_MAX = 4_000
"""Characters of a message that are sanitized for the tree."""
NAME_GAP_CELLS = 6
"""Least cells after a name: the gap, the arrow of a missing parent, and a wide character."""
TIME_CELLS = 6
GUTTER_CELLS = 2
TEXT_CELLS_MIN = 24
"""Branches are drawn as deep as this leaves room for names and text."""
MORE_HINT = "… v: full message"


class Theme(NamedTuple):
    """Colors by purpose."""

    plain: Style
    dim: Style
    unread: Style
    marker: Style
    """The unread dot and unread counts."""
    match: Style
    names: tuple[Style, ...]


class RenderedMessage(NamedTuple):
    """The text of one message at one width, without what may change between refreshes."""

    width: int
    name: str
    lines: list[str]
    has_more: bool


class MessageRenderer:
    """Renders messages of one conversation at one width."""

    def __init__(self, tree: ThreadTree, names: DisplayNames, theme: Theme, width: int, search_text: str = "") -> None:
        self._tree = tree
        self._names = names
        self._theme = theme
        self._width = width
        self._search_pattern = re.compile(re.escape(search_text), re.IGNORECASE) if search_text else None
        self._levels_max = max(1, min(16, (width - GUTTER_CELLS - TIME_CELLS - TEXT_CELLS_MIN) // 2 - 1))
        self._today = datetime.now().astimezone().date()

    def lines(self, node: ThreadNode) -> list[list[Segment]]:
        above, is_cut = self._tree.ancestors(node, self._levels_max)
        prefix_cells = GUTTER_CELLS + 2 * len(above) + 2
        room = self._width - prefix_cells - TIME_CELLS
        name_cells = min(NAME_CELLS_MAX, room // 2)
        if node.message.author_note:
            name_cells = max(name_cells, min(NOTED_NAME_CELLS_MIN, room - NAME_GAP_CELLS))
        name = self._names.author_label(node.message, name_cells)
        rendered = self._render_text(node, name, room)
        badge = self._badge(node, rendered)
        first, rest = self._branches(node, above, is_cut)
        theme, style = self._theme, text_style(self._theme, node)
        lines: list[list[Segment]] = []
        for number, text in enumerate(rendered.lines):
            line = [Segment(rest, theme.dim)] if number else self._first_segments(node, first, name)
            lines.append([*line, *self._highlight_matches(text, style)])
        self._add_badge(lines, rest, badge)
        self._add_time(lines[0], node)
        return lines

    def _first_segments(self, node: ThreadNode, first: str, name: str) -> list[Segment]:
        theme = self._theme
        segments = [
            Segment("● " if node.unread else "  ", theme.marker),
            Segment(first[GUTTER_CELLS:], theme.dim),
            Segment(
                name, theme.names[self._names.color_index(node.message.author, len(theme.names))] + Style(bold=True)
            ),
            Segment("  ", theme.plain),
        ]
        if node.has_missing_parent:
            segments.append(Segment("↳ ", theme.dim))
        return segments

    def _render_text(self, node: ThreadNode, name: str, width: int) -> RenderedMessage:
        cached = node.cache
        if isinstance(cached, RenderedMessage) and cached.width == width and cached.name == name:
            return cached
        message = node.message
        text = "(not stored)" if message.is_stripped else decode_text(message.data)
        has_more = len(text) > TEXT_CHARS_MAX
        first_width = width - cell_len(name) - 2 - (2 if node.has_missing_parent else 0)
        lines, more = wrap(clean(text[:TEXT_CHARS_MAX]), width, LINES_MAX, max(first_width, 2))
        rendered = node.cache = RenderedMessage(width, name, lines, has_more or more)
        return rendered

    def _badge(self, node: ThreadNode, rendered: RenderedMessage) -> list[Segment]:
        theme = self._theme
        badge: list[Segment] = []
        if rendered.has_more:
            badge.append(Segment(MORE_HINT, theme.dim))
        if node.is_folded:
            replies, unread = self._tree.count_below(node)
            badge.append(Segment(f"  ▸ {replies:,} {'reply' if replies == 1 else 'replies'}", theme.dim))
            if unread:
                badge.append(Segment(f", {unread:,} unread", theme.marker))
        return badge

    def _add_badge(self, lines: list[list[Segment]], rest: str, badge: list[Segment]) -> None:
        if not badge:
            return
        cells = sum(segment.cell_length for segment in (*lines[-1], *badge))
        if cells > self._width - TIME_CELLS:
            lines.append([Segment(rest, self._theme.dim)])
        lines[-1].extend(badge)

    def _add_time(self, line: list[Segment], node: ThreadNode) -> None:
        cells = sum(segment.cell_length for segment in line)
        line.append(Segment(" " * max(0, self._width - TIME_CELLS - cells), self._theme.plain))
        line.append(Segment(f"{self._time(node.message.sent_at):>{TIME_CELLS}}", self._theme.dim))

    @staticmethod
    def _branches(node: ThreadNode, above: list[ThreadNode], is_cut: bool) -> tuple[str, str]:
        """What precedes the name, and further lines."""
        down = "│" if node.reply_count and not node.is_folded else " "
        own = "▸" if node.is_folded else "▾" if node.reply_count else "─" if above else " "
        if not above:
            return f"  {own} ", f"  {down} "
        bars = ["│ " if each.has_sibling else "  " for each in reversed(above[:-1])]
        if is_cut and bars:
            bars[0] = "⋯ "  # too deep to draw
        before = "  " + "".join(bars)
        tie, past = ("├─", "│ ") if node.has_sibling else ("└─", "  ")
        return f"{before}{tie}{own} ", f"{before}{past}{down} "

    def _time(self, sent: datetime | None) -> str:
        """By the author's clock, which may be wrong."""
        if sent is None:
            return "?"
        return f"{sent:%H:%M}" if sent.date() == self._today else f"{sent:%b} {sent.day}"

    def _highlight_matches(self, text: str, style: Style) -> list[Segment]:
        if self._search_pattern is None:
            return [Segment(text, style)]
        segments, at = [], 0
        for match in self._search_pattern.finditer(text):
            segments += [Segment(text[at : match.start()], style), Segment(match[0], self._theme.match)]
            at = match.end()
        return [segment for segment in (*segments, Segment(text[at:], style)) if segment.text]


def text_style(theme: Theme, node: ThreadNode) -> Style:
    if node.message.is_stripped:
        return theme.dim
    return theme.unread if node.unread else theme.plain


# Colors of names, for dark and light screens.


_ON_DARK = (
    "#7fb4ff",
    "#f4a26b",
    "#8fd694",
    "#e58fd0",
    "#f2cf63",
    "#7fdbda",
    "#c3a6ff",
    "#ff8f8f",
    "#b7d36b",
    "#9fc1d9",
)
_ON_LIGHT = (
    "#1f5fbf",
    "#a64b00",
    "#1b7a34",
    "#9c2a84",
    "#7a5b00",
    "#007c7a",
    "#6437b5",
    "#b3261e",
    "#51700a",
    "#33607d",
)


@cache
def name_styles(*, dark: bool) -> tuple[Style, ...]:
    return tuple(Style(color=each) for each in (_ON_DARK if dark else _ON_LIGHT))
