"""A closing tape never loses a row between two rows of the same recorder."""

from broadloom.record.dropped_rows import DroppedRows
from broadloom.record.row_queue import RowQueue
from broadloom.record.rows import KIND_NUMBERS, Row, RowOrigin
from broadloom.record.schema import EventKind
from broadloom.record.settings import TapeSettings


def make_queue(**settings: int) -> RowQueue:
    return RowQueue(TapeSettings(**settings), DroppedRows(), is_writer_alive=lambda: True)  # type: ignore[arg-type]


def row(peer: int, sequence: int) -> Row:
    return (
        KIND_NUMBERS[EventKind.SENT],
        0,
        RowOrigin("channel", peer),
        peer,
        sequence,
        None,
        None,
        None,
        None,
        4,
        None,
    )


def test_row_is_not_withdrawn_by_other_thread_before_writer_ends() -> None:
    """One recorder checks the limits after another appended a row: if it removed that row, the next one would still get
    onto the tape."""
    queue = make_queue()
    queue.close()
    queue.rows.extend([row(1, 1), row(2, 1)])
    queue.check_limits()  # by the first recorder
    assert queue.take(2) == [row(1, 1), row(2, 1)]
    queue.check_limits()  # by the second
    queue.rows.append(row(2, 2))
    assert queue.take(1) == [row(2, 2)]
    assert queue.delayed_rows == 0


def test_rows_left_by_writer_count_as_delayed() -> None:
    queue = make_queue()
    queue.rows.extend([row(1, 1), row(1, 2), row(1, 3)])
    queue.close()
    assert queue.take(2) == [row(1, 1), row(1, 2)]
    queue.end()
    queue.check_limits()
    assert (queue.delayed_rows, queue._dropped.rows, len(queue.rows)) == (1, 0, 0)


def test_closing_queue_is_bounded() -> None:
    """Its dropped rows are still reported: the writer has not finished its files yet."""
    queue = make_queue(queue_rows_max=2)
    queue.close()
    for sequence in range(1, 5):
        queue.rows.append(row(1, sequence))
        queue.check_limits()
    assert (len(queue.rows), queue._dropped.rows, queue.delayed_rows) == (2, 2, 0)


def test_rows_left_by_crashed_writer_count_as_dropped() -> None:
    queue = make_queue()
    queue.rows.append(row(1, 1))
    queue.close()
    queue.discard_remaining()
    queue.rows.append(row(1, 2))
    queue.check_limits()
    assert (queue._dropped.rows, queue.delayed_rows) == (1, 1)
