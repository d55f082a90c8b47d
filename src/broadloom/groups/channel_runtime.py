"""`ChannelGroupRuntime`: groups over a real channel. When it is congested, history waits first, then `send`."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from broadloom.channel.layer_runtime import LayerRuntime
from broadloom.groups.codec import LAYER
from broadloom.groups.runtime import SUSPECT_REASONS
from broadloom.protocol.events import LinkDown, Missed, PeerState, StateChanged

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.groups.model import GroupEvent, GroupMessage
    from broadloom.groups.participant import Participant
    from broadloom.groups.proofs import PostSigner
    from broadloom.protocol.runtime import Timer
    from broadloom.wire import PeerId

HISTORY_PAUSE_BYTES = 128 << 10
"""Above this size of the send queue, history waits."""
MISSED_DELAY_S = 1.0
"""Missed messages are collected for this long before the groups request them."""


class ChannelGroupRuntime(LayerRuntime):
    def __init__(
        self,
        channel: "Channel",
        deliver: "Callable[[GroupMessage], None]",
        emit: "Callable[[GroupEvent], None]",
        on_left: Callable[[], None],
    ) -> None:
        super().__init__(channel, LAYER, on_left)
        self.deliver = deliver
        self.emit = emit
        self.random = Random()
        self._participant: Participant | None = None
        self._missed_timer: Timer | None = None

    def attach(self, participant: "Participant") -> None:
        self._participant = participant
        self._open()

    # -- called by the participant

    @property
    def is_congested(self) -> bool:
        return self.queued_bytes > HISTORY_PAUSE_BYTES

    @property
    def known_peer_count(self) -> int | None:
        return self._channel._full_mesh_size

    @property
    def post_signer(self) -> "PostSigner | None":
        return self._channel._post_signer

    def verified_name(self, peer_id: int) -> str:
        identity = self._channel.identity(peer_id)
        return identity.name if identity is not None else ""

    # -- called by the channel

    def _on_message(self, author: "PeerId", data: bytes) -> None:
        assert self._participant is not None
        self._participant.on_message(author, data)

    def _on_event(self, event: "ChannelEvent") -> None:
        assert self._participant is not None
        if isinstance(event, LinkDown) and event.reason in SUSPECT_REASONS:
            self._participant.on_neighbor_lost(event.neighbor.peer_id)
        elif isinstance(event, Missed) or (isinstance(event, StateChanged) and event.state is PeerState.CONNECTED):
            if self._missed_timer is None:
                self._missed_timer = self.call_later(MISSED_DELAY_S, self._on_missed)

    def _on_missed(self) -> None:
        assert self._participant is not None
        self._missed_timer = None
        self._participant.on_missed()
