"""What mailboxes report for the tape: each revision that becomes known here, and each value that is gone."""

from typing import TYPE_CHECKING

from broadloom.protocol.events import LayerEvent

if TYPE_CHECKING:
    from broadloom.mailboxes.model import GoneReason
    from broadloom.mailboxes.record import Record
    from broadloom.protocol.runtime import Observer

MAILBOX_CHANGE = "mailbox_change"
PUT, EMPTY, GONE = "put", "empty", "gone"


def record_seen(observer: "Observer | None", record: "Record") -> None:
    """The record counts from now on. Without a value it is bound and empty."""
    if observer is not None:
        observer.on_event(_event(record, PUT if record.is_valid else EMPTY))


def record_gone(observer: "Observer | None", record: "Record", reason: "GoneReason") -> None:
    """There is no such mailbox any more."""
    if observer is not None:
        observer.on_event(_event(record, GONE, reason.value))


def _event(record: "Record", status: str, reason: str | None = None) -> LayerEvent:
    return LayerEvent(
        MAILBOX_CHANGE,
        record.writer,
        record.revision,
        name=record.name,
        reason=reason,
        status=status,
        owner=record.owner,
        size_bytes=len(record.data) if status == PUT else None,
    )
