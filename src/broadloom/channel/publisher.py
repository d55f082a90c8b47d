"""What a program does with the documents of the channel's owner: publish them, and read the card that is in force."""

import asyncio
import logging
import os
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path

from broadloom.channel.loop_bound import LoopBound
from broadloom.errors import AccessLostError, ChannelClosedError, NotConnectedError, NotPermittedError
from broadloom.protocol import PeerState
from broadloom.protocol.events import CardChanged, OwnerEvent, QuotaExceeded, Rejected
from broadloom.protocol.owner.card import ChannelCard
from broadloom.protocol.owner.documents import OwnerDocumentError
from broadloom.security import InvalidKeyFileError, RevocationList, SignedCard
from broadloom.security.card import is_card_file
from broadloom.security.pem import read_file
from broadloom.transport import TcpNode
from broadloom.wire import PeerId
from broadloom.wire.fields import OWNER_DOCUMENT_BYTES_MAX
from broadloom.wire.owner_messages import OwnerDocumentKind

log = logging.getLogger("broadloom")

PUBLISH_TIMEOUT_S = 5.0
PUBLISH_POLL_S = 0.01


def quota_text(event: QuotaExceeded) -> str:
    who = event.name or f"{event.peer_id:016x}"
    unit = event.what if event.what == "message_bytes" else f"{event.what}/s"
    return f"{who} was cut off: {event.measured:,.0f} {unit}, its quota is {event.allowed:,.0f}"


class Publisher(LoopBound):
    """The part of `Channel` that concerns the owner of the channel."""

    name: str
    _node: TcpNode

    @property
    def card(self) -> ChannelCard | None:
        """The card that is in force; None without one."""
        return self._node.peer.owner.card

    async def publish(self, document: "SignedCard | RevocationList | str | os.PathLike[str]") -> None:
        """Publish a card or a revocation list, given as an object or a file, to all members. The owner has signed it,
        so any member can publish it. Returns when the neighbors have it, which pass it on.

        Raises `NotPermittedError` if it was not signed by the owner of this channel, or if one with the same or a
        higher number is in force.
        """
        self._check_loop()
        if not isinstance(document, SignedCard | RevocationList):
            document = self._load(Path(document))
        if self._node.peer.state is not PeerState.CONNECTED:
            raise self._end_error()
        is_card = isinstance(document, SignedCard)
        kind = OwnerDocumentKind.CARD if is_card else OwnerDocumentKind.REVOCATION_LIST
        if len(document.document) > OWNER_DOCUMENT_BYTES_MAX:
            raise NotPermittedError(
                f"the document has {len(document.document):,} bytes; at most {OWNER_DOCUMENT_BYTES_MAX:,} can be "
                "published. Create a new authority and new tickets, so that old tickets need not be listed"
            )
        owner = self._node.peer.owner
        try:
            if isinstance(document, SignedCard) and (mismatch := owner.mismatch(document.card)):
                raise OwnerDocumentError(f"{mismatch}. All members would leave; connect as the card says first")
            owner.documents.offer(kind, document.document)
        except OwnerDocumentError as problem:
            raise NotPermittedError(
                f"cannot publish this {'card' if is_card else 'revocation list'}: {problem}"
            ) from None
        with suppress(TimeoutError):  # a neighbor that stalls gets it later, or from others
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                while not owner.documents.is_sent(kind):  # noqa: ASYNC110
                    await asyncio.sleep(PUBLISH_POLL_S)

    def _on_owner_event(self, event: OwnerEvent | Rejected) -> OwnerEvent | Rejected:
        if isinstance(event, CardChanged | Rejected):
            self._use_card()
        elif isinstance(event, QuotaExceeded):
            event = event._replace(peer_id=PeerId(event.peer_id))
            log.warning("%s: %s", self.name, quota_text(event))
        return event

    @abstractmethod
    def _use_card(self) -> None: ...

    def _end_error(self) -> NotConnectedError:
        if (closed := self._node.peer.owner.closed_text) is not None:
            return ChannelClosedError(f"{self.name}: {closed}")
        if (rejected := self._node.peer.lost_access) is not None:
            return AccessLostError(f"{self.name}: {rejected.text}")
        return super()._end_error()

    def _load(self, path: Path) -> SignedCard | RevocationList:
        if is_card_file(read_file(path, "the card or revocation list")):
            return SignedCard.load(path)
        credentials = self._node.credentials
        if credentials is None or credentials.revocation_list is None:
            raise InvalidKeyFileError(f"{path} is not a card; revocation lists are for channels with tickets")
        return RevocationList(path, credentials.revocation_list.authority, with_newest=False)
