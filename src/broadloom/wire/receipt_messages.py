"""Receipts: what members have delivered of one author, on its way back to the author (`protocol/receipts/`)."""

from typing import Annotated, Any, TypeVar, dataclass_transform

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, declared, message, packed, unpacked
from broadloom.wire.fields import (
    MISSED_ENDS_MAX,
    RECORD_BYTES_MAX,
    RECORD_SIGNATURE_BYTES_MAX,
    REPORTS_MAX,
    Hyper,
)
from broadloom.wire.types import SignedReport

M = TypeVar("M", bound=type[WireMessage])

_SIGNED_REPORT = xdr.structure(SignedReport, xdr.opaque(RECORD_BYTES_MAX), xdr.opaque(RECORD_SIGNATURE_BYTES_MAX))


@dataclass_transform(frozen_default=True)
def _record(kind: M) -> M:
    return declared(kind, 0, {})  # type: ignore[no-any-return]


@_record
class DeliveryReport(WireMessage):
    """A member says: of this author, messages `first` to `last` were delivered to my program, except the missed ones.
    Of two reports of one member, the one with the higher `last` is newer."""

    peer_id: Hyper
    author: Hyper
    first: Hyper
    last: Hyper
    missed: Annotated[tuple[int, ...], xdr.array(xdr.HYPER, MISSED_ENDS_MAX)]
    """First and last number of each range."""

    def covers(self, sequence: int) -> bool:
        """Whether this message was delivered."""
        ends = iter(self.missed)
        return self.first <= sequence <= self.last and not any(
            start <= sequence <= end for start, end in zip(ends, ends, strict=True)
        )


def encode_report(report: DeliveryReport) -> bytes:
    return packed(report)


def decode_report(data: bytes) -> DeliveryReport:
    """Raises `WireError` if it is malformed."""
    values: list[Any] = unpacked(DeliveryReport, data, 0)
    report = DeliveryReport(*values)
    if len(report.missed) % 2:
        raise xdr.WireError("DeliveryReport.missed: an odd number of ends")
    return report


@message(49)
class DeliveryReports(WireMessage):
    """Causes: reports that are new to the receiver are passed on toward the author, which verifies them."""

    reports: Annotated[tuple[SignedReport, ...], xdr.array(_SIGNED_REPORT, REPORTS_MAX)]
    """The author has the credentials of the members in its roster."""
