"""The marks of a tree in the order in which it is read, so that any line is found, folded or counted quickly.

Each node of the tree stands twice in the sequence: where it begins (`Mark`, which the node itself is) and where its
answers end (`close`). So an answer is put before the close of what it responds to, whatever the depth, and a branch is
a stretch of marks. The sequence is cut into blocks of some hundred marks, and a block knows how many of its lines can
be seen and how many are unread. With n marks every step costs about the square root of n, and nothing recurses.

A stretch is hidden by raising a counter on each of its marks; for blocks that lie inside it whole, the block's own
counter is raised instead. What has no counter raised can be seen.
"""

from collections.abc import Iterator

BLOCK_MARKS_MAX = 512
"""A block that grows beyond this is cut in two."""


class Mark:
    """A place in the sequence: the beginning of a node, or its close."""

    __slots__ = ("block", "hidden")
    begins = False

    block: "Block"

    def __init__(self) -> None:
        self.hidden = 0
        """Folded branches that it lies in, beside those that hide its whole block."""


class Line(Mark):
    """The beginning of a node: what is drawn, and may be unread."""

    __slots__ = ("close", "unread")
    begins = True

    def __init__(self, unread: bool) -> None:
        super().__init__()
        self.close = Mark()
        self.unread = unread


class Block:
    __slots__ = ("hidden", "lines", "marks", "number", "open_lines", "unread")

    def __init__(self, number: int, marks: list[Mark], hidden: int) -> None:
        self.number = number
        """Its place among the blocks."""
        self.hidden = hidden
        """Folded branches that hold all of it."""
        self.marks = marks
        self.recount()

    def recount(self) -> None:
        self.lines = self.open_lines = self.unread = 0
        for mark in self.marks:
            mark.block = self
            if isinstance(mark, Line):
                self.lines += 1
                self.open_lines += not mark.hidden
                self.unread += mark.unread

    @property
    def rows(self) -> int:
        """Lines that can be seen."""
        return 0 if self.hidden else self.open_lines


class Sequence:
    def __init__(self) -> None:
        self._blocks = [Block(0, [], 0)]
        self.lines = 0
        self.unread = 0

    # -- changing

    def append(self, line: Line) -> None:
        """At the very end, where nothing is hidden."""
        block = self._blocks[-1]
        self._put(block, len(block.marks), line, 0)

    def insert(self, line: Line, close: Mark, *, hidden: bool) -> None:
        """Right before the close of another; `hidden` if that one is folded."""
        self._put(close.block, close.block.marks.index(close), line, close.hidden + hidden)

    def _put(self, block: Block, at: int, line: Line, hidden: int) -> None:
        line.hidden = line.close.hidden = hidden
        line.block = line.close.block = block
        block.marks[at:at] = (line, line.close)
        block.lines += 1
        block.open_lines += not hidden
        block.unread += line.unread
        self.lines += 1
        self.unread += line.unread
        if len(block.marks) > BLOCK_MARKS_MAX:
            self._cut(block)

    def _cut(self, block: Block) -> None:
        half = BLOCK_MARKS_MAX // 2
        pieces = [block.marks[first : first + half] for first in range(0, len(block.marks), half)]
        at = block.number
        self._blocks[at : at + 1] = [Block(at, piece, block.hidden) for piece in pieces]
        self._number(at)

    def _number(self, first: int) -> None:
        for number in range(first, len(self._blocks)):
            self._blocks[number].number = number

    def remove(self, line: Line) -> None:
        """This one alone: what stood below it stays where it is. It must not be folded."""
        block = line.block
        block.lines -= 1
        block.open_lines -= not line.hidden
        block.unread -= line.unread
        self.lines -= 1
        self.unread -= line.unread
        for mark in (line, line.close):
            mark.block.marks.remove(mark)
            self._drop_if_empty(mark.block)

    def _drop_if_empty(self, block: Block) -> None:
        if not block.marks and len(self._blocks) > 1:
            del self._blocks[block.number]
            self._number(block.number)

    def move(self, line: Line, close: Mark, *, hidden: bool) -> None:
        """The whole branch, to right before the close of another that is not in it."""
        before = line.block.hidden + line.hidden
        taken: list[Mark] = []
        depths: list[int] = []
        for block, first, last in list(self._pieces(line, line.close)):
            piece = block.marks[first:last]
            del block.marks[first:last]
            taken += piece
            depths += [block.hidden + mark.hidden for mark in piece]
            block.recount()
        self._blocks = [block for block in self._blocks if block.marks] or self._blocks[:1]
        self._number(0)
        target = close.block
        change = close.hidden + hidden - before
        for mark, depth in zip(taken, depths, strict=True):
            mark.hidden = depth + change
        at = target.marks.index(close)
        target.marks[at:at] = taken
        target.recount()
        if len(target.marks) > BLOCK_MARKS_MAX:
            self._cut(target)

    def hide(self, line: Line, change: int) -> None:
        """All between a line and its close: 1 hides it, -1 takes that back."""
        for block, first, last in list(self._pieces(line, line.close)):
            marks = block.marks
            first += marks[first] is line
            last -= marks[last - 1] is line.close
            # A block that lies in it whole since something was removed bears the counter on its marks.
            if last - first == len(marks) and block.hidden + change >= 0:
                block.hidden += change
                continue
            for mark in marks[first:last]:
                was_open = not mark.hidden
                mark.hidden += change
                if mark.begins:
                    block.open_lines += (not mark.hidden) - was_open

    def set_read(self, line: Line) -> None:
        if line.unread:
            line.unread = False
            line.block.unread -= 1
            self.unread -= 1

    def _pieces(self, first: Mark, last: Mark) -> Iterator[tuple[Block, int, int]]:
        """The blocks from one mark to another, both included, with the stretch of each."""
        for number in range(first.block.number, last.block.number + 1):
            block = self._blocks[number]
            start = block.marks.index(first) if block is first.block else 0
            end = block.marks.index(last) + 1 if block is last.block else len(block.marks)
            yield block, start, end

    # -- asking

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self._blocks)

    @staticmethod
    def is_open(mark: Mark) -> bool:
        """Whether it lies in no folded branch."""
        return not mark.hidden and not mark.block.hidden

    def row_of(self, line: Line) -> int:
        """Its number among those that can be seen; of a hidden one, the number of the next that can be."""
        block = line.block
        row = sum(each.rows for each in self._blocks[: block.number])
        if block.hidden:
            return row
        before = block.marks[: block.marks.index(line)]
        return row + sum(mark.begins and not mark.hidden for mark in before)

    def at(self, row: int) -> Line | None:
        """The line with this number among those that can be seen."""
        if row < 0:
            return None
        for block in self._blocks:
            if row < block.rows:
                for mark in block.marks:
                    if isinstance(mark, Line) and not mark.hidden:
                        if row == 0:
                            return mark
                        row -= 1
            row -= block.rows
        return None

    def seen_from(self, line: Line | None, *, backward: bool = False) -> Iterator[Line]:
        """Lines that can be seen, from this one on (itself if it can be), or from the first."""
        step = -1 if backward else 1
        if line is None:
            number, marks = (len(self._blocks) - 1, self._blocks[-1].marks) if backward else (0, self._blocks[0].marks)
            marks = marks[::step]
        else:
            number, marks = line.block.number, line.block.marks
            at = marks.index(line)
            marks = marks[at::-1] if backward else marks[at:]
        while True:
            if self._blocks[number].rows:
                yield from (mark for mark in marks if isinstance(mark, Line) and not mark.hidden)
            number += step
            if not 0 <= number < len(self._blocks):
                return
            marks = self._blocks[number].marks[::step]

    def all(self) -> Iterator[Line]:
        for block in self._blocks:
            yield from (mark for mark in block.marks if isinstance(mark, Line))

    def next_unread(self, line: Line | None, *, backward: bool = False) -> Line | None:
        """After (or before) this one, hidden or not, then from the other end on, up to the line itself."""
        if not self.unread:
            return None
        count, step = len(self._blocks), -1 if backward else 1
        start = line.block.number if line is not None else (count - 1 if backward else 0)
        for turn in range(count + 1):
            block = self._blocks[(start + step * turn) % count]
            if not block.unread:
                continue
            marks = block.marks
            if line is not None and block is line.block:
                at = marks.index(line)
                ahead, behind = (marks[:at], marks[at:]) if backward else (marks[at + 1 :], marks[: at + 1])
                marks = ahead if turn == 0 else behind
            for mark in reversed(marks) if backward else marks:
                if isinstance(mark, Line) and mark.unread:
                    return mark
        return None

    def below(self, line: Line) -> tuple[int, int]:
        """Lines in the branch of this one, without itself: how many, and how many of them are unread."""
        lines = unread = 0
        for block, first, last in self._pieces(line, line.close):
            if last - first == len(block.marks):
                lines += block.lines
                unread += block.unread
            else:
                found = [mark for mark in block.marks[first:last] if isinstance(mark, Line)]
                lines += len(found)
                unread += sum(mark.unread for mark in found)
        return lines - 1, unread - line.unread

    def unread_of(self, line: Line) -> list[Line]:
        """Those of a branch that are unread, itself included."""
        return [
            mark
            for block, first, last in self._pieces(line, line.close)
            if block.unread
            for mark in block.marks[first:last]
            if isinstance(mark, Line) and mark.unread
        ]
