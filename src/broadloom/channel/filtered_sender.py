"""How messages of a channel pass its filter (`connect(rules=…)`): as broadcasts, or as content of a layer."""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from broadloom.channel.loop_bound import LoopBound
from broadloom.channel.outgoing import Outgoing, OutgoingFilter, Way, pack_broadcast, pack_data, unpack_broadcast
from broadloom.transport import TcpNode

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel
    from broadloom.protocol.runtime import Observer


class FilteredSender(LoopBound):
    """The part of `Channel` that asks the filter."""

    _node: TcpNode
    _filter: OutgoingFilter | None = None
    """Every message passes it before it is sent."""
    _origin_fields: Outgoing | None = None

    async def _filtered(
        self, data: bytes, kind: int, priority: int, ttl_s: float | None
    ) -> tuple[bytes, int, int, float | None]:
        """Raises `NotSentError`."""
        assert self._filter is not None
        self._check_loop()
        out = unpack_broadcast(data, kind, priority, ttl_s, self._origin())
        result = await self._filter.apply(out, self._as_channel())
        return (data, kind, priority, ttl_s) if result is out else pack_broadcast(result, kind)

    def _filtered_nowait(
        self, data: bytes, kind: int, priority: int, ttl_s: float | None
    ) -> tuple[bytes, int, int, float | None]:
        assert self._filter is not None
        self._check_loop()
        out = unpack_broadcast(data, kind, priority, ttl_s, self._origin())
        result = self._filter.apply_nowait(out, self._as_channel())
        return (data, kind, priority, ttl_s) if result is out else pack_broadcast(result, kind)

    async def _filter_content(self, data: bytes, way: Way, name: str = "", layer: str = "") -> bytes:
        """For layers that keep what they send, as groups do: content is filtered before it becomes a message."""
        if self._filter is None:
            return data
        out = replace(self._origin(), data=data, way=way, name=name, layer=layer, has_envelope=False)
        return pack_data(await self._filter.apply(out, self._as_channel()))[0]

    def _filter_content_nowait(self, data: bytes, way: Way, name: str = "") -> bytes:
        if self._filter is None:
            return data
        out = replace(self._origin(), data=data, way=way, name=name, has_envelope=False)
        return pack_data(self._filter.apply_nowait(out, self._as_channel()))[0]

    @property
    def _observer(self) -> "Observer | None":
        """Records what happens; None if nothing does."""
        return self._node.peer.observer

    def _origin(self) -> Outgoing:
        """The fields that are the same for all messages of this channel."""
        if self._origin_fields is None:
            node, name = self._node, self._as_channel().name
            identity = node.credentials.identity if node.credentials is not None else None
            if identity is not None and identity.ticket_serial:
                self._origin_fields = Outgoing(b"", channel=name, sender=identity.name, role=identity.role.value)
            else:
                self._origin_fields = Outgoing(b"", channel=name, sender=node.name)
        return self._origin_fields

    @abstractmethod
    def _as_channel(self) -> "Channel": ...
