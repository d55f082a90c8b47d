"""From a message in the tree to lines of coloured text: unread mark, branches, name, words, time.

    ● ▾ Anna  Who plays white?                      10:42
      ├─▾ Ben  I do                                 10:43
      │ └── Cleo  And I black                       10:44
      └── Dora  Me too                              10:45

Only what is on the screen is drawn. What takes time, cleaning and wrapping, is kept with the message until the width
changes.
"""

import re
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from weft.apps.chat.naming import Names
from weft.apps.chat.safe import clean, cut, text_of, wrap
from weft.apps.chat.tree import Node, Tree

LINES_MAX = 6
"""Of one message; the rest is shown when it is opened."""
NAME_CELLS_MAX = 20
LOOK_SIGNS = 4_000
"""So much of a message is cleaned for its place in the tree."""
TIME_CELLS = 6
GUTTER_CELLS = 2
TEXT_CELLS_MIN = 24
"""Branches are drawn as deep as leaves this much for names and words."""
MORE = "… v: whole message"


class Look(NamedTuple):
    """Colours, by what they are for."""

    plain: Style
    dim: Style
    unread: Style
    mark: Style
    """The dot of what is unread, and counts of it."""
    found: Style
    names: tuple[Style, ...]


class Drawn(NamedTuple):
    """The words of one message for one width; what may change from one look to the next is not in it."""

    width: int
    name: str
    lines: list[str]
    has_more: bool


class Drawing:
    """Draws messages of one conversation in a width."""

    def __init__(self, tree: Tree, names: Names, look: Look, width: int, words: str = "") -> None:
        self._tree = tree
        self._names = names
        self._look = look
        self._width = width
        self._found = re.compile(re.escape(words), re.IGNORECASE) if words else None
        self._levels_max = max(1, min(16, (width - GUTTER_CELLS - TIME_CELLS - TEXT_CELLS_MIN) // 2 - 1))
        self._today = datetime.now().astimezone().date()

    def lines(self, node: Node) -> list[list[Segment]]:
        above, is_cut = self._tree.above(node, self._levels_max)
        prefix_cells = GUTTER_CELLS + 2 * len(above) + 2
        room = self._width - prefix_cells - TIME_CELLS
        name = cut(self._names.said_by(node.message), min(NAME_CELLS_MAX, room // 2))
        drawn = self._words(node, name, room)
        badge = self._badge(node, drawn)
        first, rest = self._branches(node, above, is_cut)
        look, words = self._look, look_of_words(self._look, node)
        lines: list[list[Segment]] = []
        for number, text in enumerate(drawn.lines):
            line = [Segment(rest, look.dim)] if number else self._opening(node, first, name)
            lines.append([*line, *self._mark_found(text, words)])
        self._add_badge(lines, rest, badge)
        self._add_time(lines[0], node)
        return lines

    def _opening(self, node: Node, first: str, name: str) -> list[Segment]:
        look = self._look
        opening = [
            Segment("● " if node.unread else "  ", look.mark),
            Segment(first[GUTTER_CELLS:], look.dim),
            Segment(name, look.names[self._names.colour(node.message.author, len(look.names))] + Style(bold=True)),
            Segment("  ", look.plain),
        ]
        if node.is_severed:
            opening.append(Segment("↳ ", look.dim))
        return opening

    def _words(self, node: Node, name: str, width: int) -> Drawn:
        kept = node.cache
        if isinstance(kept, Drawn) and kept.width == width and kept.name == name:
            return kept
        message = node.message
        text = "(not kept)" if message.hollow else text_of(message.data)
        has_more = len(text) > LOOK_SIGNS
        first_width = width - cell_len(name) - 2 - (2 if node.is_severed else 0)
        lines, more = wrap(clean(text[:LOOK_SIGNS]), width, LINES_MAX, max(first_width, 2))
        drawn = node.cache = Drawn(width, name, lines, has_more or more)
        return drawn

    def _badge(self, node: Node, drawn: Drawn) -> list[Segment]:
        look = self._look
        badge: list[Segment] = []
        if drawn.has_more:
            badge.append(Segment(MORE, look.dim))
        if node.fold:
            answers, unread = self._tree.below(node)
            badge.append(Segment(f"  ▸ {answers:,} {'answer' if answers == 1 else 'answers'}", look.dim))
            if unread:
                badge.append(Segment(f", {unread:,} unread", look.mark))
        return badge

    def _add_badge(self, lines: list[list[Segment]], rest: str, badge: list[Segment]) -> None:
        if not badge:
            return
        cells = sum(segment.cell_length for segment in (*lines[-1], *badge))
        if cells > self._width - TIME_CELLS:
            lines.append([Segment(rest, self._look.dim)])
        lines[-1].extend(badge)

    def _add_time(self, line: list[Segment], node: Node) -> None:
        cells = sum(segment.cell_length for segment in line)
        line.append(Segment(" " * max(0, self._width - TIME_CELLS - cells), self._look.plain))
        line.append(Segment(f"{self._time(node.message.sent_ms):>{TIME_CELLS}}", self._look.dim))

    @staticmethod
    def _branches(node: Node, above: list[Node], is_cut: bool) -> tuple[str, str]:
        """What stands before the name, and before further lines."""
        down = "│" if node.answers and not node.fold else " "
        own = "▸" if node.fold else "▾" if node.answers else "─" if above else " "
        if not above:
            return f"  {own} ", f"  {down} "
        bars = ["│ " if each.has_sibling else "  " for each in reversed(above[:-1])]
        if is_cut and bars:
            bars[0] = "⋯ "  # deeper than can be drawn
        before = "  " + "".join(bars)
        tie, past = ("├─", "│ ") if node.has_sibling else ("└─", "  ")
        return f"{before}{tie}{own} ", f"{before}{past}{down} "

    def _time(self, sent_ms: int) -> str:
        """By the author's clock, which may be anything."""
        try:
            sent = datetime.fromtimestamp(sent_ms / 1000).astimezone()
        except (OverflowError, OSError, ValueError):
            return "?"
        return f"{sent:%H:%M}" if sent.date() == self._today else f"{sent:%b} {sent.day}"

    def _mark_found(self, text: str, style: Style) -> list[Segment]:
        if self._found is None:
            return [Segment(text, style)]
        segments, at = [], 0
        for match in self._found.finditer(text):
            segments += [Segment(text[at : match.start()], style), Segment(match[0], self._look.found)]
            at = match.end()
        return [segment for segment in (*segments, Segment(text[at:], style)) if segment.text]


def look_of_words(look: Look, node: Node) -> Style:
    if node.message.hollow:
        return look.dim
    return look.unread if node.unread else look.plain
