"""What a closing tape still takes: nothing goes from the middle of what an observer told."""

from weft.record.lost import Lost
from weft.record.queue import Queue
from weft.record.rows import NUMBERS, Origin, Row
from weft.record.schema import Kind
from weft.record.settings import TapeSettings


def queue_of(**settings: int) -> Queue:
    return Queue(TapeSettings(**settings), Lost(), has_writer=lambda: True)  # type: ignore[arg-type]


def row(observer: int, sequence: int) -> Row:
    return (NUMBERS[Kind.SENT], 0, Origin("channel", observer), observer, sequence, None, None, None, None, 4, None)


def test_until_the_writer_is_through_nobody_takes_back_the_row_of_another() -> None:
    """One observer's look came after another's row: taken back, the next would still get on the tape."""
    queue = queue_of()
    queue.close()
    queue.rows.extend([row(1, 1), row(2, 1)])
    queue.press()  # the first observer's
    assert queue.take(2) == [row(1, 1), row(2, 1)]
    queue.press()  # the second's
    queue.rows.append(row(2, 2))
    assert queue.take(1) == [row(2, 2)]
    assert queue.late_rows == 0


def test_what_the_writer_leaves_came_late() -> None:
    queue = queue_of()
    queue.rows.extend([row(1, 1), row(1, 2), row(1, 3)])
    queue.close()
    assert queue.take(2) == [row(1, 1), row(1, 2)]
    queue.end()
    queue.press()
    assert (queue.late_rows, queue._lost.rows, len(queue.rows)) == (1, 0, 0)


def test_a_closing_queue_has_its_limit() -> None:
    """What it drops is lost, and a gap will tell: the writer has not finished its files yet."""
    queue = queue_of(queue_rows_max=2)
    queue.close()
    for sequence in range(1, 5):
        queue.rows.append(row(1, sequence))
        queue.press()
    assert (len(queue.rows), queue._lost.rows, queue.late_rows) == (2, 2, 0)


def test_without_a_writer_that_came_to_the_end_what_is_left_is_lost() -> None:
    queue = queue_of()
    queue.rows.append(row(1, 1))
    queue.close()
    queue.give_up()
    queue.rows.append(row(1, 2))
    queue.press()
    assert (queue._lost.rows, queue.late_rows) == (1, 1)
