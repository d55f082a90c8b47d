"""The messages that spread what the owner of a channel has signed (`protocol/owner/`): its card and its list of revoked
tickets. A higher number is announced, requested once, verified and announced on."""

from enum import IntEnum
from typing import Annotated

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, message
from broadloom.wire.fields import DocumentHash, Hyper, OwnerDocumentBytes


class OwnerDocumentKind(IntEnum):
    CARD = 1
    REVOCATION_LIST = 2


Kind = Annotated[OwnerDocumentKind, xdr.enum(OwnerDocumentKind)]


@message(63)
class OwnerNotice(WireMessage):
    """The number of the newest document that the sender has; sent when a link comes up and when the sender has a new
    one. Causes: a receiver with a lower number requests it (`OwnerWant`)."""

    kind: Kind
    document_number: Hyper
    hash: DocumentHash
    """SHA-256 of the document."""


@message(64)
class OwnerWant(WireMessage):
    """Causes: the document is sent, if it has this number or a higher one. The same one again only later."""

    kind: Kind
    document_number: Hyper


@message(65)
class OwnerDocument(WireMessage):
    """A document as the owner signed it: a card, or an X.509 CRL in DER. Causes: it is verified, and adopted if its
    number is the highest; the number is announced to the other neighbors. A member also sends its card in an exchange,
    before the response to a newcomer."""

    kind: Kind
    document: OwnerDocumentBytes
