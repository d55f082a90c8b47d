"""The conversation on the screen: a viewport on the tree that draws only what is visible.

The viewport is anchored to its first message and not to a line number. So the height of messages outside it does not
matter, and a new width costs the same with a hundred thousand messages as with ten. It keeps its anchor when lines
change above it; at the end it follows new messages. The scroll bar counts messages and is drawn here too: Textual's
scroll view would lay out the whole screen for every message.
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

from broadloom.apps.chat.group_model import GroupModel
from broadloom.apps.chat.message_renderer import GUTTER_CELLS, MessageRenderer, Theme, name_styles
from broadloom.apps.chat.sidebars import with_background
from broadloom.apps.chat.thread_tree import ThreadNode, ThreadTree

WHEEL_MESSAGES = 3
"""Lines per wheel step."""


class ConversationView(Widget, can_focus=True):
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
        Binding("enter", "app.reply", show=False),
        Binding("z", "fold_all", "fold all", show=False),
    ]

    class Selected(Message):
        """The selection moved."""

    class Opened(Message):
        """Double click: reply."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.group_model: GroupModel | None = None
        self.search_text = ""
        """Search text to highlight."""
        self.selected: ThreadNode | None = None
        self._top: ThreadNode | None = None
        self._follows_end = True
        self._window_lines: list[tuple[ThreadNode, list[Segment]]] = []
        self._thumb = range(0)
        """Lines of the scroll bar's thumb."""
        self._plain = self._selected_style = self._bar_style = Style()

    # -- content

    @property
    def threads(self) -> ThreadTree | None:
        return self.group_model.tree if self.group_model is not None else None

    def show(self, group_model: GroupModel | None) -> None:
        self.group_model = group_model
        self.selected = self._top = None
        self._follows_end = True
        self.refresh_view()

    def refresh_view(self) -> None:
        """The tree or the size changed."""
        tree = self.threads
        if tree is None or not len(tree) or not self.size.height:
            self.selected = self._top = None
            self._window_lines = []
        else:
            self._update_selection(tree)
            self._fill_window(tree)
        self.refresh()

    def on_resize(self) -> None:
        self.refresh_view()

    def _update_selection(self, tree: ThreadTree) -> None:
        if self.selected is not None and not self.selected.is_shown:
            self.selected = None  # it was dropped for newer ones
        if self.selected is not None:
            self.selected = tree.visible_ancestor(self.selected)
        if self._follows_end or self.selected is None:
            last = tree.last
            if last is not self.selected:
                self.selected = last
                self.post_message(self.Selected())
        if self._top is not None and not self._top.is_shown:
            self._top = tree.node_at(0)

    def _message_renderer(self, tree: ThreadTree) -> MessageRenderer:
        assert self.group_model is not None
        plain = self.rich_style
        theme = Theme(
            plain,
            self.get_component_rich_style("chat--dim"),
            self.get_component_rich_style("chat--unread"),
            self.get_component_rich_style("chat--mark"),
            self.get_component_rich_style("chat--found"),
            tuple(plain + each for each in name_styles(dark=self.app.current_theme.dark)),
        )
        return MessageRenderer(tree, self.group_model.names, theme, self.size.width - 1, self.search_text)

    def _fill_window(self, tree: ThreadTree) -> None:
        """Lay out the viewport from its first message."""
        renderer, height = self._message_renderer(tree), self.size.height
        end = self._last_top(tree, renderer, height)
        end_row = tree.row_of(end)
        top = end if self._follows_end or self._top is None else tree.visible_ancestor(self._top)
        row = tree.row_of(top)
        if row > end_row:
            top, row = end, end_row
        self._top = top
        self._window_lines = []
        for node in tree.visible_from(top):
            self._window_lines += [(node, line) for line in renderer.lines(node)]
            if len(self._window_lines) >= height:
                break
        rows = tree.rows
        length = max(1, height * (rows - end_row) // rows) if end_row else 0
        start = (height - length) * row // end_row if end_row else 0
        self._thumb = range(start, start + length)

    @staticmethod
    def _last_top(tree: ThreadTree, renderer: MessageRenderer, height: int) -> ThreadNode:
        """The first message of a viewport that ends with the last message."""
        top, used = None, 0
        for node in tree.visible_from(None, backward=True):
            used += len(renderer.lines(node))
            if used > height and top is not None:
                break
            top = node
        assert top is not None
        return top

    def visible_nodes(self) -> list[ThreadNode]:
        return list(dict.fromkeys(node for node, _ in self._window_lines[: self.size.height]))

    def render_lines(self, crop: Region) -> list[Strip]:
        self._plain = self.rich_style
        self._selected_style = self.get_component_rich_style("chat--selected")
        self._bar_style = self.get_component_rich_style("chat--bar")
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.size.width - 1
        if y < len(self._window_lines):
            node, line = self._window_lines[y]
            strip = Strip(line).adjust_cell_length(width, self._plain)
            if node is self.selected:
                strip = with_background(strip, self._selected_style)
        else:
            strip = Strip.blank(width, self._plain)
        bar = Segment("▐" if y in self._thumb else " ", self._bar_style)
        return Strip([*strip, bar], width + 1)

    # -- selection

    def select(self, node: ThreadNode) -> None:
        """Select this message and scroll it into view."""
        tree = self.threads
        if tree is None or not node.is_shown:
            return
        tree.reveal(node)
        self.selected = node
        self._follows_end = node is tree.last
        self._scroll_into_view(tree, node)
        self.refresh_view()
        self.post_message(self.Selected())

    def _scroll_into_view(self, tree: ThreadTree, node: ThreadNode) -> None:
        """Scroll no further than necessary."""
        top = self._top
        if top is None or not top.is_shown or tree.row_of(node) <= tree.row_of(tree.visible_ancestor(top)):
            self._top = node
            return
        renderer, used, first = self._message_renderer(tree), 0, node
        for each in tree.visible_from(node, backward=True):
            used += len(renderer.lines(each))
            if used > self.size.height:
                break
            first = each
            if each is top:
                return
        self._top = first

    def action_move(self, by: int) -> None:
        if self.threads is not None and self.selected is not None:
            near = self.threads.visible_from(self.selected, backward=by < 0)
            next(near, None)
            self.select(next(near, None) or self.selected)

    def action_page(self, by: int) -> None:
        tree = self.threads
        if tree is not None and self.selected is not None:
            row = tree.row_of(self.selected) + by * max(1, len(self.visible_nodes()) - 1)
            self.select(tree.node_at(max(0, min(row, tree.rows - 1))) or self.selected)

    def action_first(self) -> None:
        if self.threads is not None and (first := self.threads.node_at(0)) is not None:
            self.select(first)

    def action_last(self) -> None:
        if self.threads is not None and (last := self.threads.last) is not None:
            self.select(last)

    # -- folding

    def action_fold(self) -> None:
        if self.selected is not None:
            self._fold(self.selected, not self.selected.is_folded)

    def action_fold_or_up(self) -> None:
        node = self.selected
        if node is not None and node.reply_count and not node.is_folded:
            self._fold(node, True)
        elif node is not None and node.visible_parent is not None:
            self.select(node.visible_parent)

    def action_unfold_or_down(self) -> None:
        node = self.selected
        if node is not None and node.is_folded:
            self._fold(node, False)
        elif node is not None and node.reply_count:
            self.action_move(1)

    def action_fold_all(self) -> None:
        """Fold all threads, or unfold them if all are folded."""
        tree = self.threads
        if tree is not None and len(tree):
            is_any_open = any(node.reply_count and not node.is_folded for node in tree if node.visible_parent is None)
            tree.fold_threads(is_any_open)
            if self.selected is not None:
                self.select(tree.visible_ancestor(self.selected))

    def _fold(self, node: ThreadNode, fold: bool) -> None:
        if self.threads is not None:
            self.threads.set_folded(node, fold)
            self._follows_end = self._follows_end and not fold
            self.refresh_view()

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        if event.x >= self.size.width - 1:
            self._scroll_to_line(event.y)
        elif event.y < len(self._window_lines):
            node, line = self._window_lines[event.y]
            self.select(node)
            prefix = "".join(segment.text for segment in line[:2])
            if event.x >= GUTTER_CELLS and prefix[event.x : event.x + 1] in ("▾", "▸"):
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
        """Draw the scroll bar."""
        if self.threads is not None:
            self._scroll_to_row(self.threads.rows * max(0, line) // max(1, self.size.height - 1))

    def _scroll_by(self, messages: int) -> None:
        if self.threads is not None and self._top is not None:
            self._scroll_to_row(self.threads.row_of(self._top) + messages)

    def _scroll_to_row(self, row: int) -> None:
        tree = self.threads
        if tree is not None and len(tree):
            self._top = tree.node_at(max(0, min(row, tree.rows - 1)))
            self._follows_end = False
            self.refresh_view()
