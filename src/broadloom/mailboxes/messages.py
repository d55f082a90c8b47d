"""The messages of the layer `"Mb"`: XDR, behind a header of their own.

Each starts with four bytes: `B`, `M`, the version and the message number; the fields follow in declaration order.
Digests and published records are broadcast, the others are direct requests and their replies.
"""

from enum import IntEnum
from typing import Annotated, ClassVar, NamedTuple

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
from broadloom.wire.fields import Bool, Hyper, Text, UInt
from broadloom.wire.layer_codec import LayerCodec, LayerMessage, layer_message
from broadloom.wire.xdr import Buffer, WireError, Xdr

LAYER = "Mb"
KEEPER_LAYER = "Mk"
"""Members that receive this layer are keepers: the roster lists them."""
VERSION = 1
RECORDS_MAX = SYNC_PAGE_BYTES // 64
"""Records in one page: none takes less than 64 bytes."""


_CODEC: "LayerCodec[MailboxWireMessage]" = LayerCodec(b"BM", VERSION, "mailbox message")


class MailboxWireMessage(LayerMessage):
    __slots__ = ()
    codec: ClassVar = _CODEC


encode, decode, message_types = _CODEC.encode, _CODEC.decode, _CODEC.message_types


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


@layer_message(1)
class Publish(MailboxWireMessage):
    """Broadcast: new records of the author. Receivers enter them into their tables."""

    records: Records


@layer_message(2)
class Digest(MailboxWireMessage):
    """Broadcast: the hash of the author's table. A receiver with another hash answers with its own, after a random
    delay, and compares tables with the author."""

    digest: Hyper


@layer_message(3)
class PageRequest(MailboxWireMessage):
    """Request: the records of all buckets whose hashes differ, from this position on. The reply is a `Page`."""

    hashes: BucketHashes
    first_bucket: UInt
    after_owner: Owner
    after_name: MailboxName
    after_writer: Hyper


@layer_message(4)
class Page(MailboxWireMessage):
    """The reply. With `next_bucket` = BUCKETS it was the last page."""

    records: Records
    credentials: Credentials
    is_synced: Bool
    next_bucket: UInt
    after_owner: Owner
    after_name: MailboxName
    after_writer: Hyper


@layer_message(5)
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


@layer_message(6)
class Kept(MailboxWireMessage):
    status: Annotated[KeepStatus, xdr.enum(KeepStatus)]
    records: Records
    credentials: Credentials


@layer_message(7)
class Fetch(MailboxWireMessage):
    """Request: the record of this mailbox. The reply is `Fetched`."""

    owner: Owner
    name: MailboxName


@layer_message(8)
class Fetched(MailboxWireMessage):
    """The record, if there is one that the caller may read."""

    records: Records
    credentials: Credentials


@layer_message(9)
class Deliver(MailboxWireMessage):
    """Request: put these letters into a mailbox of the receiver, in this order. The reply is `Delivered`."""

    name: MailboxName
    letters: Letters


class DeliverStatus(IntEnum):
    OK = 0
    FULL = 1
    UNBOUND = 2
    WRONG_CLASS = 3


@layer_message(10)
class Delivered(MailboxWireMessage):
    """The first `count` letters are in the mailbox. `status` says why the others are not."""

    count: UInt
    status: Annotated[DeliverStatus, xdr.enum(DeliverStatus)]
    text: Text


@layer_message(11)
class Confirm(MailboxWireMessage):
    """Request to a member with the name of the owner: which of these records are genuine? The reply is `Confirmed`."""

    records: Annotated[tuple[RecordDigest, ...], xdr.array(_RECORD_DIGEST, RECORDS_MAX)]


@layer_message(12)
class Confirmed(MailboxWireMessage):
    """For each record in order. Those that are not confirmed may be genuine as well: older or newer ones."""

    confirmed: Annotated[tuple[bool, ...], xdr.array(xdr.BOOL, RECORDS_MAX)]
