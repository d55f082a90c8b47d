"""The conversation on the screen: a window on the tree that draws what is in it and nothing else.

The window stands on a message, its first one, and not on a number of lines. So nothing depends on how high the
messages outside of it would be, and another width costs as little with a hundred thousand messages as with ten. It
keeps its first message when lines come or go above; at the end it follows what is new. The bar at its side counts
messages. It is drawn here too: a scroll view of the library would lay out the whole screen whenever a message comes.
"""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from weft.apps.chat.colours import names_of
from weft.apps.chat.drawing import GUTTER_CELLS, Drawing, Look
from weft.apps.chat.rows import behind
from weft.apps.chat.talk import Talk
from weft.apps.chat.tree import Node, Tree

WHEEL_MESSAGES = 3
"""The wheel of a mouse moves the window by so many."""


class Conversation(Widget, can_focus=True):
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "chat--dim", "chat--unread", "chat--mark", "chat--found", "chat--selected", "chat--bar",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "first", show=False),
        Binding("end", "last", show=False),
        Binding("left,h", "fold_or_up", "fold", show=False),
        Binding("right,l", "unfold_or_down", "unfold", show=False),
        Binding("space", "fold", "fold"),
        Binding("enter", "app.answer", show=False),
        Binding("z", "fold_all", "fold all", show=False),
    ]

    class Selected(Message):
        """Another message is selected."""

    class Opened(Message):
        """Clicked twice: to be answered."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.talk: Talk | None = None
        self.words = ""
        """What is searched for, to be marked."""
        self.selected: Node | None = None
        self._top: Node | None = None
        self._follows = True
        self._window: list[tuple[Node, list[Segment]]] = []
        self._thumb = range(0)
        """The lines where the bar shows the window."""
        self._plain = self._selected_style = self._bar_style = Style()

    # -- what is shown

    @property
    def threads(self) -> Tree | None:
        return self.talk.tree if self.talk is not None else None

    def show(self, talk: Talk | None) -> None:
        self.talk = talk
        self.selected = self._top = None
        self._follows = True
        self.look_again()

    def look_again(self) -> None:
        """The tree has changed, or the window."""
        tree = self.threads
        if tree is None or not len(tree) or not self.size.height:
            self.selected = self._top = None
            self._window = []
        else:
            self._choose(tree)
            self._place(tree)
        self.refresh()

    def on_resize(self) -> None:
        self.look_again()

    def _choose(self, tree: Tree) -> None:
        if self.selected is not None and not self.selected.is_shown:
            self.selected = None  # it gave way to newer ones
        if self.selected is not None:
            self.selected = tree.stands(self.selected)
        if self._follows or self.selected is None:
            last = tree.last
            if last is not self.selected:
                self.selected = last
                self.post_message(self.Selected())
        if self._top is not None and not self._top.is_shown:
            self._top = tree.at(0)

    def _drawing(self, tree: Tree) -> Drawing:
        assert self.talk is not None
        plain = self.rich_style
        look = Look(
            plain,
            self.get_component_rich_style("chat--dim"),
            self.get_component_rich_style("chat--unread"),
            self.get_component_rich_style("chat--mark"),
            self.get_component_rich_style("chat--found"),
            tuple(plain + each for each in names_of(dark=self.app.current_theme.dark)),
        )
        return Drawing(tree, self.talk.names, look, self.size.width - 1, self.words)

    def _place(self, tree: Tree) -> None:
        """Lay out the window from its first message on."""
        drawing, height = self._drawing(tree), self.size.height
        end = self._last_top(tree, drawing, height)
        end_row = tree.row_of(end)
        top = end if self._follows or self._top is None else tree.stands(self._top)
        row = tree.row_of(top)
        if row > end_row:
            top, row = end, end_row
        self._top = top
        self._window = []
        for node in tree.seen_from(top):
            self._window += [(node, line) for line in drawing.lines(node)]
            if len(self._window) >= height:
                break
        rows = tree.rows
        length = max(1, height * (rows - end_row) // rows) if end_row else 0
        start = (height - length) * row // end_row if end_row else 0
        self._thumb = range(start, start + length)

    @staticmethod
    def _last_top(tree: Tree, drawing: Drawing, height: int) -> Node:
        """The first message of a window that ends with the last one."""
        top, used = None, 0
        for node in tree.seen_from(None, backward=True):
            used += len(drawing.lines(node))
            if used > height and top is not None:
                break
            top = node
        assert top is not None
        return top

    def in_window(self) -> list[Node]:
        return list(dict.fromkeys(node for node, _ in self._window[: self.size.height]))

    def render_lines(self, crop: Region) -> list[Strip]:
        self._plain = self.rich_style
        self._selected_style = self.get_component_rich_style("chat--selected")
        self._bar_style = self.get_component_rich_style("chat--bar")
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.size.width - 1
        if y < len(self._window):
            node, line = self._window[y]
            strip = Strip(line).adjust_cell_length(width, self._plain)
            if node is self.selected:
                strip = behind(strip, self._selected_style)
        else:
            strip = Strip.blank(width, self._plain)
        bar = Segment("▐" if y in self._thumb else " ", self._bar_style)
        return Strip([*strip, bar], width + 1)

    # -- selecting

    def select(self, node: Node) -> None:
        """Make it the selected one, and see that it is in the window."""
        tree = self.threads
        if tree is None or not node.is_shown:
            return
        tree.reveal(node)
        self.selected = node
        self._follows = node is tree.last
        self._bring_into_window(tree, node)
        self.look_again()
        self.post_message(self.Selected())

    def _bring_into_window(self, tree: Tree, node: Node) -> None:
        """Scroll no further than is needed."""
        top = self._top
        if top is None or not top.is_shown or tree.row_of(node) <= tree.row_of(tree.stands(top)):
            self._top = node
            return
        drawing, used, first = self._drawing(tree), 0, node
        for each in tree.seen_from(node, backward=True):
            used += len(drawing.lines(each))
            if used > self.size.height:
                break
            first = each
            if each is top:
                return
        self._top = first

    def action_move(self, by: int) -> None:
        if self.threads is not None and self.selected is not None:
            near = self.threads.seen_from(self.selected, backward=by < 0)
            next(near, None)
            self.select(next(near, None) or self.selected)

    def action_page(self, by: int) -> None:
        tree = self.threads
        if tree is not None and self.selected is not None:
            row = tree.row_of(self.selected) + by * max(1, len(self.in_window()) - 1)
            self.select(tree.at(max(0, min(row, tree.rows - 1))) or self.selected)

    def action_first(self) -> None:
        if self.threads is not None and (first := self.threads.at(0)) is not None:
            self.select(first)

    def action_last(self) -> None:
        if self.threads is not None and (last := self.threads.last) is not None:
            self.select(last)

    # -- folding

    def action_fold(self) -> None:
        if self.selected is not None:
            self._fold(self.selected, not self.selected.fold)

    def action_fold_or_up(self) -> None:
        node = self.selected
        if node is not None and node.answers and not node.fold:
            self._fold(node, True)
        elif node is not None and node.above is not None:
            self.select(node.above)

    def action_unfold_or_down(self) -> None:
        node = self.selected
        if node is not None and node.fold:
            self._fold(node, False)
        elif node is not None and node.answers:
            self.action_move(1)

    def action_fold_all(self) -> None:
        """All threads; if all are folded, none."""
        tree = self.threads
        if tree is not None and len(tree):
            is_any_open = any(node.answers and not node.fold for node in tree if node.above is None)
            tree.fold_threads(is_any_open)
            if self.selected is not None:
                self.select(tree.stands(self.selected))

    def _fold(self, node: Node, fold: bool) -> None:
        if self.threads is not None:
            self.threads.folded(node, fold)
            self._follows = self._follows and not fold
            self.look_again()

    # -- the mouse

    def on_click(self, event: events.Click) -> None:
        if event.x >= self.size.width - 1:
            self._scroll_to_line(event.y)
        elif event.y < len(self._window):
            node, line = self._window[event.y]
            self.select(node)
            marks = "".join(segment.text for segment in line[:2])
            if event.x >= GUTTER_CELLS and marks[event.x : event.x + 1] in ("▾", "▸"):
                self.action_fold()
            elif event.chain == 2:
                self.post_message(self.Opened())

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if event.button and event.x >= self.size.width - 1:
            self._scroll_to_line(event.y)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll_by(WHEEL_MESSAGES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll_by(-WHEEL_MESSAGES)

    def _scroll_to_line(self, line: int) -> None:
        """Of the bar."""
        if self.threads is not None:
            self._stand_on(self.threads.rows * max(0, line) // max(1, self.size.height - 1))

    def _scroll_by(self, messages: int) -> None:
        if self.threads is not None and self._top is not None:
            self._stand_on(self.threads.row_of(self._top) + messages)

    def _stand_on(self, row: int) -> None:
        tree = self.threads
        if tree is not None and len(tree):
            self._top = tree.at(max(0, min(row, tree.rows - 1)))
            self._follows = False
            self.look_again()
