"""`ChannelOwner`: verifies what the owner of a channel has signed, and keeps the newest of it.

The owner is the authority that issued the ticket of this peer. Without tickets every member could sign with the
authority of the shared key, so there the owner is the one that signed the card with which this peer connects.
"""

from collections.abc import Iterable
from pathlib import Path

from cryptography import x509

from broadloom.errors import InvalidKeyFileError
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Identity
from broadloom.protocol.owner.documents import OwnerDocumentError, VerifiedDocument
from broadloom.security.authority import is_for_channel
from broadloom.security.card import SignedCard
from broadloom.security.revocation import RevocationList, keep_newest, newest_path, read_revocation_list
from broadloom.wire.owner_messages import OwnerDocumentKind


class ChannelOwner:
    def __init__(
        self,
        channel: ChannelName,
        certificate: x509.Certificate,
        *,
        identity: Identity | None = None,
        revocation_list: RevocationList | None = None,
        card: SignedCard | None = None,
        card_path: Path | None = None,
    ) -> None:
        self.identity = identity
        self._channel = channel
        self._certificate = certificate
        self._revocation_list = revocation_list
        self._card_path = card_path
        self.card = card

    def __repr__(self) -> str:
        return f"ChannelOwner({self._channel})"

    # -- protocol.owner.documents.OwnerVerifier

    def verify(self, kind: OwnerDocumentKind, document: bytes) -> VerifiedDocument:
        try:
            if kind is OwnerDocumentKind.CARD:
                card = SignedCard.verify(document, self._certificate).card
                check_channel(card.channel, self._channel)
                return VerifiedDocument(kind, card.number, document, card=card)
            if self._revocation_list is None:
                raise ValueError("there are no tickets on this channel")
            number, serials = read_revocation_list(document, self._certificate)
            return VerifiedDocument(kind, number, document, revoked=serials)
        except ValueError as problem:
            raise OwnerDocumentError(str(problem)) from None

    def adopt(self, document: VerifiedDocument) -> None:
        if document.kind is OwnerDocumentKind.CARD:
            self.card = SignedCard.verify(document.document, self._certificate)
            if self._card_path is not None:
                keep_newest(self._card_path, self.card.as_pem())
        elif self._revocation_list is not None:
            self._revocation_list.replace(document.document)

    def initial_documents(self) -> Iterable[VerifiedDocument]:
        if self.card is not None:
            yield VerifiedDocument(
                OwnerDocumentKind.CARD, self.card.card.number, self.card.document, card=self.card.card
            )
        known = self._revocation_list
        if known is not None and known.number:
            yield VerifiedDocument(
                OwnerDocumentKind.REVOCATION_LIST, known.number, known.document, revoked=known.serials
            )


def check_channel(card_channel: str, channel: ChannelName) -> None:
    if ChannelName.parse(card_channel) != channel:
        raise ValueError(f"the card is for the channel {card_channel}, not for {channel}")


def check_card(card: SignedCard, what: str, channel: ChannelName, certificate: x509.Certificate | None) -> None:
    """Raises `InvalidKeyFileError` if it is not of the owner with this certificate, or for another channel."""
    if certificate is not None and card.owner != certificate:
        raise InvalidKeyFileError(
            f"the card {what} and the ticket are from different owners; use the card of the owner"
        )
    if not is_for_channel(card.owner, channel.id):
        raise InvalidKeyFileError(f"the card {what} was signed by the owner of another channel")
    try:
        check_channel(card.card.channel, channel)
    except ValueError as problem:
        raise InvalidKeyFileError(f"{what}: {problem}") from None


def load_card(path: Path, channel: ChannelName, certificate: x509.Certificate | None) -> SignedCard:
    """The card in a file, or a newer one that was kept beside it; see `check_card`."""
    card = SignedCard.load(path)
    check_card(card, str(path), channel, certificate)
    newest = newest_path(path)
    if newest.exists():
        try:
            kept = SignedCard.load(newest)
        except InvalidKeyFileError:
            return card  # the neighbors have it
        is_newer = kept.card.number > card.card.number and kept.card.channel == card.card.channel
        if is_newer and kept.owner == card.owner:
            return kept
    return card
