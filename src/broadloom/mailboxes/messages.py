"""The messages of the layer `"Mb"`: XDR, behind a header of their own.

Each starts with four bytes: `B`, `M`, the version and the message number; the fields follow in declaration order.
Digests and published records are broadcast, the others are direct requests and their replies.
"""

from enum import IntEnum
from typing import Annotated, Any, NamedTuple, TypeVar, dataclass_transform

from broadloom.mailboxes.limits import (
    BLOCK_LETTERS_MAX,
    BUCKETS,
    CREDENTIAL_BYTES_MAX,
    CREDENTIALS_MAX,
    NAME_BYTES_MAX,
    OWNER_BYTES_MAX,
    PAGE_BYTES_MAX,
    SYNC_PAGE_BYTES,
)
from broadloom.mailboxes.record import RECORD, Record
from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.fields import Bool, Hyper, Text, UInt
from broadloom.wire.xdr import Buffer, UnknownMessageError, WireError, Xdr

LAYER = "Mb"
KEEPER_LAYER = "Mk"
"""Members that receive this layer are keepers: the roster lists them."""
MAGIC = b"BM"
VERSION = 1
HEADER_BYTES = 4
RECORDS_MAX = SYNC_PAGE_BYTES // 64
"""Records in one page: none takes less than 64 bytes."""


class MailboxWireMessage(WireMessage):
    __slots__ = ()


N = TypeVar("N", bound=type[MailboxWireMessage])
_MESSAGE_TYPES: dict[int, type[MailboxWireMessage]] = {}


@dataclass_transform(frozen_default=True)
def mailbox_message(number: int) -> Any:
    """Declare a frozen dataclass as the mailbox message `number`. Numbers are never reused."""

    def declare(kind: N) -> N:
        return declared(kind, number, _MESSAGE_TYPES)  # type: ignore[no-any-return]

    return declare


def message_types() -> dict[int, type[MailboxWireMessage]]:
    """All mailbox messages by number."""
    return dict(_MESSAGE_TYPES)


def encode(message: MailboxWireMessage) -> bytes:
    return MAGIC + bytes((VERSION, message.number)) + packed(message)


def decode(data: bytes) -> MailboxWireMessage:
    """Raises `WireError` if this is not a valid mailbox message."""
    if len(data) < HEADER_BYTES or data[:2] != MAGIC:
        raise WireError("not a mailbox message")
    if data[2] != VERSION:
        raise UnknownMessageError(f"mailbox message of version {data[2]}; this program supports version {VERSION}")
    kind = _MESSAGE_TYPES.get(data[3])
    if kind is None:
        raise UnknownMessageError(f"unknown mailbox message number {data[3]}")
    return kind(*unpacked(kind, data, HEADER_BYTES))


class WireLetter(NamedTuple):
    data: bytes
    reply_to: str
    priority: int
    is_ring: bool


_DATA = xdr.opaque(PAGE_BYTES_MAX)
_MAILBOX_NAME = xdr.string(NAME_BYTES_MAX)


def _pack_letter(letter: WireLetter, out: list[bytes]) -> None:
    _DATA.pack(letter.data, out)
    _MAILBOX_NAME.pack(letter.reply_to, out)
    xdr.UINT.pack(letter.priority, out)
    xdr.BOOL.pack(letter.is_ring, out)


def _unpack_letter(buffer: Buffer, position: int) -> tuple[WireLetter, int]:
    data, position = _DATA.unpack(buffer, position)
    reply_to, position = _MAILBOX_NAME.unpack(buffer, position)
    priority, position = xdr.UINT.unpack(buffer, position)
    is_ring, position = xdr.BOOL.unpack(buffer, position)
    if is_ring and data:
        raise WireError("a ring has no data")
    return WireLetter(data, reply_to, priority, is_ring), position


class RecordDigest(NamedTuple):
    """A record of the receiver's owner name, by its place in the table and its hash."""

    name: str
    writer: int
    """0 if it is not bound to the presence of its writer."""
    digest: bytes


def _pack_record_digest(value: RecordDigest, out: list[bytes]) -> None:
    _MAILBOX_NAME.pack(value.name, out)
    xdr.HYPER.pack(value.writer, out)
    _DIGEST.pack(value.digest, out)


def _unpack_record_digest(buffer: Buffer, position: int) -> tuple[RecordDigest, int]:
    name, position = _MAILBOX_NAME.unpack(buffer, position)
    writer, position = xdr.HYPER.unpack(buffer, position)
    digest, position = _DIGEST.unpack(buffer, position)
    return RecordDigest(name, writer, digest), position


_DIGEST = xdr.fixed_opaque(16)
_RECORD_DIGEST = Xdr(_pack_record_digest, _unpack_record_digest)
Owner = Annotated[str, xdr.string(OWNER_BYTES_MAX)]
MailboxName = Annotated[str, _MAILBOX_NAME]
Records = Annotated[tuple[tuple[Record, int], ...], xdr.array(RECORD, RECORDS_MAX)]
"""Each with the number of its certificate, from 1; 0 for none."""
Credentials = Annotated[tuple[bytes, ...], xdr.array(xdr.opaque(CREDENTIAL_BYTES_MAX), CREDENTIALS_MAX)]
Letters = Annotated[tuple[WireLetter, ...], xdr.array(Xdr(_pack_letter, _unpack_letter), BLOCK_LETTERS_MAX)]
BucketHashes = Annotated[tuple[int, ...], xdr.array(xdr.HYPER, BUCKETS)]


@mailbox_message(1)
class Publish(MailboxWireMessage):
    """Broadcast: new records of the author. Receivers enter them into their tables."""

    records: Records


@mailbox_message(2)
class Digest(MailboxWireMessage):
    """Broadcast: the hash of the author's table. A receiver with another hash answers with its own, after a random
    delay, and compares tables with the author."""

    digest: Hyper


@mailbox_message(3)
class PageRequest(MailboxWireMessage):
    """Request: the records of all buckets whose hashes differ, from this position on. The reply is a `Page`."""

    hashes: BucketHashes
    first_bucket: UInt
    after_owner: Owner
    after_name: MailboxName
    after_writer: Hyper


@mailbox_message(4)
class Page(MailboxWireMessage):
    """The reply. With `next_bucket` = BUCKETS it was the last page."""

    records: Records
    credentials: Credentials
    is_synced: Bool
    next_bucket: UInt
    after_owner: Owner
    after_name: MailboxName
    after_writer: Hyper


@mailbox_message(5)
class Keep(MailboxWireMessage):
    """Request to a keeper: store this record. The reply, `Kept`, is sent when it is on disk."""

    records: Records
    credentials: Credentials


class KeepStatus(IntEnum):
    KEPT = 0
    STALE = 1
    """The keeper has a record that counts more; it is in the reply."""
    NOT_A_KEEPER = 2
    REFUSED = 3
    """It is not proven, or a limit was reached."""


@mailbox_message(6)
class Kept(MailboxWireMessage):
    status: Annotated[KeepStatus, xdr.enum(KeepStatus)]
    records: Records
    credentials: Credentials


@mailbox_message(7)
class Fetch(MailboxWireMessage):
    """Request: the record of this mailbox. The reply is `Fetched`."""

    owner: Owner
    name: MailboxName


@mailbox_message(8)
class Fetched(MailboxWireMessage):
    """The record, if there is one that the caller may read."""

    records: Records
    credentials: Credentials


@mailbox_message(9)
class Deliver(MailboxWireMessage):
    """Request: put these letters into a mailbox of the receiver, in this order. The reply is `Delivered`."""

    name: MailboxName
    letters: Letters


class DeliverStatus(IntEnum):
    OK = 0
    FULL = 1
    UNBOUND = 2
    WRONG_CLASS = 3


@mailbox_message(10)
class Delivered(MailboxWireMessage):
    """The first `count` letters are in the mailbox. `status` says why the others are not."""

    count: UInt
    status: Annotated[DeliverStatus, xdr.enum(DeliverStatus)]
    text: Text


@mailbox_message(11)
class Confirm(MailboxWireMessage):
    """Request to a member with the name of the owner: which of these records are genuine? The reply is `Confirmed`."""

    records: Annotated[tuple[RecordDigest, ...], xdr.array(_RECORD_DIGEST, RECORDS_MAX)]


@mailbox_message(12)
class Confirmed(MailboxWireMessage):
    """For each record in order. Those that are not confirmed may be genuine as well: older or newer ones."""

    confirmed: Annotated[tuple[bool, ...], xdr.array(xdr.BOOL, RECORDS_MAX)]
