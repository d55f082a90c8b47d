"""The members of the channel as one program sees them: the roster, verified names, and waiting for them."""

import asyncio
from collections.abc import Callable
from typing import Any

from broadloom.channel.arguments import check_timeout
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.loop_bound import LoopBound
from broadloom.protocol.identity import Identity
from broadloom.protocol.roster.member import Member
from broadloom.security.post_signer import PostSigner
from broadloom.transport import TcpNode
from broadloom.wire import PeerId


class Membership(LoopBound):
    """The part of `Channel` that concerns its members."""

    name: str
    _node: TcpNode
    _listeners: EventListeners[Any]
    _left: asyncio.Event

    @property
    def _full_mesh_size(self) -> int | None:
        """Number of peers in a full mesh; None in a larger fabric, where no peer knows it."""
        return self._node.peer.full_mesh_size

    @property
    def _post_signer(self) -> PostSigner | None:
        """Signs and verifies the messages of groups; None without a ticket."""
        signer = self._node.credentials.post_signer if self._node.credentials is not None else None
        verifier = self._node.peer.broadcaster.verifier
        if signer is not None and verifier is not None:
            signer.credential_of = verifier.credential_of
        return signer

    def identity(self, peer_id: PeerId) -> Identity | None:
        """The verified name and role of an author; None if the channel is not signed or the author is unknown."""
        self._check_loop()
        if peer_id == self._node.id:
            return self._node.credentials.identity if self._node.credentials is not None else None
        verifier = self._node.peer.broadcaster.verifier
        return verifier.identity_of(peer_id) if verifier is not None else None

    def display_name(self, peer_id: PeerId) -> str:
        """The name on the author's ticket, or its id in hex."""
        identity = self.identity(peer_id)
        return identity.name if identity is not None and identity.name else f"{peer_id:016x}"

    def members(self) -> tuple[Member, ...]:
        """All members of the channel that this peer knows to be present, itself included, sorted by peer id. It is
        complete a moment after `connect` returns (`wait_for_roster`)."""
        self._check_loop()
        return tuple(member for member in self._node.peer.roster.members() if not member.is_secondary)

    def member(self, peer_id: PeerId) -> Member | None:
        """The member with this id, if it is present."""
        self._check_loop()
        return self._node.peer.roster.get(peer_id)

    async def wait_for_roster(self, timeout_s: float | None = None) -> tuple[Member, ...]:
        """Wait until the roster is complete, and return it. Raises `TimeoutError`, or `NotConnectedError` if the
        channel was left."""
        self._check_loop()
        check_timeout(timeout_s)
        await self._wait_until_roster_is_complete(timeout_s)
        return self.members()

    async def _wait_until_roster_is_complete(self, timeout_s: float | None) -> None:
        def is_complete() -> bool:
            if self._left.is_set():
                raise self._end_error()
            return self._node.peer.roster.is_complete

        await self._wait_until(is_complete, timeout_s, "the roster is not complete after")

    async def wait_for_peers(self, timeout_s: float | None = None) -> None:
        """Wait until another peer is connected. A message broadcast before that reaches no one.

        Raises `TimeoutError`, or `NotConnectedError` if the channel was left.
        """
        self._check_loop()
        check_timeout(timeout_s)
        links = self._node.peer.links

        def has_peers() -> bool:
            if not len(links) and self._left.is_set():
                raise self._end_error()
            return len(links) > 0

        await self._wait_until(has_peers, timeout_s, "no other peer connected within")

    async def _wait_until(self, condition: Callable[[], bool], timeout_s: float | None, problem: str) -> None:
        """Wait for a condition that only events change."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._listeners.wait_until(condition)
        except TimeoutError:
            raise TimeoutError(f"{self.name}: {problem} {timeout_s:g} s") from None
