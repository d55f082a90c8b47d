"""The messages of the roster (`protocol/roster/`), and the record that each member signs about itself.

Records travel as opaque bytes: the signature covers exactly these, and relays never encode them again.
"""

from typing import Annotated, Any, TypeVar, dataclass_transform

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, declared, message, packed, unpacked
from broadloom.wire.fields import (
    BUCKET_COUNT,
    CREDENTIAL_BYTES_MAX,
    LAYERS_MAX,
    MEMBER_NAME_BYTES_MAX,
    MEMBERS_MAX,
    RECORD_BYTES_MAX,
    RECORD_SIGNATURE_BYTES_MAX,
    ROSTER_RECORDS_MAX,
    AddressField,
    Bool,
    Hyper,
    PeerIds,
)
from broadloom.wire.types import RecordVersion, SignedRecord

M = TypeVar("M", bound=type[WireMessage])

INCARNATION_MAX = 1 << 62
_SIGNED_RECORD = xdr.structure(
    SignedRecord,
    xdr.opaque(RECORD_BYTES_MAX),
    xdr.opaque(RECORD_SIGNATURE_BYTES_MAX),
    xdr.opaque(CREDENTIAL_BYTES_MAX),
)


@dataclass_transform(frozen_default=True)
def _record(kind: M) -> M:
    return declared(kind, 0, {})  # type: ignore[no-any-return]


@_record
class MemberRecord(WireMessage):
    """What a member says about itself. Of two records of one member, the one with the higher incarnation is valid."""

    peer_id: Hyper
    incarnation: Hyper
    """Counts the member's records, from 1."""
    is_leaving: Bool
    """The last record: the member leaves."""
    is_secondary: Bool
    """A further peer of a program that takes part with several."""
    address: AddressField
    """Where the member listens, for links and for requests."""
    name: Annotated[str, xdr.string(MEMBER_NAME_BYTES_MAX)]
    """The name that the member chose; empty if it has none, or one on its ticket."""
    neighbors: PeerIds
    unresponsive: PeerIds
    """Former neighbors that became silent, without closing the connection: a crashed host, or a partition."""
    layers: Annotated[tuple[int, ...], xdr.array(xdr.UINT, LAYERS_MAX)]
    """Layers that the member receives, as in the kind of their frames."""


def encode_record(record: MemberRecord) -> bytes:
    return packed(record)


def decode_record(data: bytes) -> MemberRecord:
    """Raises `WireError` if it is malformed."""
    values: list[Any] = unpacked(MemberRecord, data, 0)
    record = MemberRecord(*values)
    if record.incarnation > INCARNATION_MAX:
        raise xdr.WireError(f"MemberRecord.incarnation: {record.incarnation} is too large")
    if not record.name.isprintable():
        raise xdr.WireError("MemberRecord.name: not printable")
    return record


def record_head(data: bytes) -> tuple[int, int]:
    """Peer id and incarnation, without decoding the rest."""
    if len(data) < 16:
        raise xdr.WireError("MemberRecord: message truncated")
    return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big")


@message(44)
class RosterDigest(WireMessage):
    """Sent instead of `Heartbeat` on an idle link, and when the roster has changed. Causes: neighbors with another
    digest compare their rosters (`RosterBuckets`)."""

    digest: Hyper
    """Sum of the hashes of all records of members that the sender can reach."""


@message(45)
class RosterRecords(WireMessage):
    """Causes: records that are new to the receiver are verified, stored and passed on to its other neighbors."""

    records: Annotated[tuple[SignedRecord, ...], xdr.array(_SIGNED_RECORD, ROSTER_RECORDS_MAX)]


@message(46)
class RosterBuckets(WireMessage):
    """Sums of hashes of the sender's records, by the first bits of the peer id; sent when two neighbors have different
    rosters. Causes: `RosterVersions` for the buckets that differ."""

    hashes: Annotated[tuple[int, ...], xdr.array(xdr.HYPER, BUCKET_COUNT)]


@message(47)
class RosterVersions(WireMessage):
    """Which records the sender has in these buckets. Causes: the receiver requests those that it lacks, and responds
    in the same way with those that the sender lacks."""

    buckets: Hyper
    """Bit mask."""
    is_response: Bool
    versions: Annotated[tuple[RecordVersion, ...], xdr.array(xdr.RECORD_VERSION, MEMBERS_MAX)]


@message(48)
class RosterWant(WireMessage):
    """Causes: the records of these members are sent, with credentials."""

    members: Annotated[tuple[int, ...], xdr.array(xdr.HYPER, ROSTER_RECORDS_MAX)]
