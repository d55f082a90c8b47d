"""State for late joiners: offering it, and fetching it. docs/state.md describes the guarantee."""

import asyncio
import json
import logging
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broadloom.channel.arguments import CALLBACK_ERRORS, check_callback, check_count, check_positive_timeout
from broadloom.channel.loop_bound import LoopBound
from broadloom.channel.outgoing import Way
from broadloom.channel.requester import HasPeerId, _peer_id
from broadloom.channel.subscription import Subscription, Subscriptions
from broadloom.errors import InboxOverflowError, NotConnectedError, StateUnavailableError
from broadloom.protocol import PeerState
from broadloom.protocol.events import Missed, payload_bytes
from broadloom.protocol.state.fetch import FetchedState, FetchFailure, StateFetch
from broadloom.protocol.state.server import CONCURRENCY, StateServer
from broadloom.protocol.state.stream_tracker import PeerStream
from broadloom.transport import TcpNode
from broadloom.wire import PeerId
from broadloom.wire.state_messages import STATE_LAYER, STATE_NAME_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel

log = logging.getLogger("broadloom")

TIMEOUT_S = 30.0
STATE_BYTES_MAX = 256 << 20

Make = Callable[[], bytes | Iterable[bytes]]
"""Returns the state of the program as bytes, or as pieces that are joined."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state of another member, returned by `Channel.fetch_state`."""

    data: bytes
    position: Mapping[PeerId, int]
    """Of each author, the number of the last message that the state contains."""
    missed: tuple[Missed, ...]
    """Messages up to the position that the member itself has missed, so that its state lacks them."""
    peer_id: PeerId
    """The member whose state it is."""

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)


class ChannelStream(PeerStream):
    """What has arrived at the local peers of a channel. It does not keep the channel."""

    def __init__(self, channel: "Channel") -> None:
        node = channel._node
        super().__init__(lambda: node.peer)
        self._channel = weakref.ref(channel)

    def arrived(self) -> dict[PeerId, int]:
        channel = self._channel()
        merge = channel._merge if channel is not None else None
        return super().arrived() if merge is None else super().arrived() | merge.positions()

    def begin_state(self) -> None:
        channel = self._channel()
        if channel is not None:
            channel._reassembler.reports_headless = True
            for node in channel._nodes:
                node.peer.broadcaster.receiver.begin_state()


class StateHandover(LoopBound):
    """The part of `Channel` that offers and fetches state."""

    name: str
    _node: TcpNode
    _request_layers: dict[int, None]
    _subscriptions: Subscriptions

    def __init__(self) -> None:
        self._state_server: StateServer | None = None
        self._fetches: dict[StateFetch, asyncio.Future[FetchedState | FetchFailure]] = {}

    def on_state(self, name: str, make: Make | None, *, reader: Subscription) -> Callable[[], None]:
        """Serve the state `name` of this program to members that fetch it.

        `make` is called when `reader` is between two messages, and must not wait: it returns the state that contains
        what the program has read there, as bytes or as pieces of bytes. Messages of this program itself belong to the
        state as soon as `broadcast` returns. None removes the state. Returns a function that does so too.
        """
        self._check_loop()
        _check_name(name)
        tracker = self._checked_reader(reader)._tracked()
        if make is not None:
            check_callback(make)
        server = self._state_server
        if server is None:
            server = self._state_server = StateServer(self._node)
        if make is None:
            server.withdraw(name)
            self._on_offers_changed(server)
            return lambda: None
        offer = server.offer(name, _Maker(self._as_channel(), name, make), tracker)
        self._on_offers_changed(server)

        def remove() -> None:
            if server.has(offer):
                server.withdraw(name)
                self._on_offers_changed(server)

        return remove

    def _on_offers_changed(self, server: StateServer) -> None:
        for node in self._nodes:
            if len(server):
                if not node.peer.requests.handlers.has(STATE_LAYER, server.on_request):
                    node.peer.requests.handlers.set(STATE_LAYER, server.on_request, CONCURRENCY)
            else:
                node.peer.requests.handlers.remove(STATE_LAYER)
        if len(server):
            self._request_layers[STATE_LAYER] = None
        else:
            self._request_layers.pop(STATE_LAYER, None)
        self._on_layers_changed()
        self._on_callbacks_changed()

    async def fetch_state(
        self,
        name: str,
        *,
        reader: Subscription,
        helper: PeerId | HasPeerId | None = None,
        timeout_s: float = TIMEOUT_S,
        bytes_max: int = STATE_BYTES_MAX,
    ) -> StateSnapshot:
        """Fetch the state `name` from a member that offers it (`on_state`). The next message of `reader` is the first
        one after it: nothing is missing between the two, and nothing is in both.

        Do not read `reader` meanwhile. If a member does not serve, or dies, the next one is asked; `helper` is asked
        first. Raises `StateUnavailableError` if none has served within `timeout_s`.
        """
        self._check_loop()
        _check_name(name)
        check_positive_timeout(timeout_s)
        check_count("bytes_max", bytes_max)
        tracker = self._checked_reader(reader)._tracked()
        if tracker.is_fetching:
            raise RuntimeError("this reader is already fetching a state: wait for it")
        if self._node.peer.state is not PeerState.CONNECTED:
            raise self._end_error()
        done: asyncio.Future[FetchedState | FetchFailure] = self._loop.create_future()
        fetch = StateFetch(
            self._node.peer,
            name,
            tracker,
            lambda result: None if done.done() else done.set_result(result),
            timeout_s=timeout_s,
            bytes_max=bytes_max,
            helper=_peer_id(helper) if helper is not None else None,
        )
        self._fetches[fetch] = done
        try:
            result = await done
        finally:
            del self._fetches[fetch]
            fetch.give_up()
        if reader.has_overflowed:
            raise InboxOverflowError(reader._end_message())
        if isinstance(result, FetchedState):
            return StateSnapshot(result.data, result.position, result.missed, PeerId(result.helper))
        reasons = {PeerId(peer_id): reason for peer_id, reason in result.reasons.items()}
        details = "".join(f"; {peer_id:016x}: {reason}" for peer_id, reason in list(reasons.items())[:3])
        raise StateUnavailableError(f"{self.name}: state {name!r}: {result.text}{details}", reasons)

    def _end_fetches(self) -> None:
        """The channel was left."""
        if self._state_server is not None:
            self._state_server.close()
        for done in self._fetches.values():
            if not done.done():
                done.set_exception(NotConnectedError(self._end_message()))

    def _checked_reader(self, reader: object) -> Subscription:
        if not isinstance(reader, Subscription):
            raise TypeError(f"reader must be a subscription (channel.subscribe), not {type(reader).__name__}")
        if reader._subscriptions is not self._subscriptions:
            raise ValueError("reader is a subscription of another channel")
        if reader._inbox.is_closed:
            raise NotConnectedError(reader._end_message())
        return reader

    @abstractmethod
    def _as_channel(self) -> "Channel": ...

    @property
    @abstractmethod
    def _nodes(self) -> list[TcpNode]: ...

    @abstractmethod
    def _on_layers_changed(self) -> None: ...

    @abstractmethod
    def _on_callbacks_changed(self) -> None: ...


class _Maker:
    """Calls `make` of the program. It logs failures, of which others learn only the type."""

    def __init__(self, channel: "Channel", name: str, make: Make) -> None:
        self._channel = weakref.ref(channel)
        self._channel_name = channel.name
        self._name = name
        self._make = make

    def __call__(self) -> bytes:
        remedy = "text.encode() or json.dumps(value).encode()"
        try:
            made = self._make()
            if isinstance(made, bytes | bytearray | memoryview) or not isinstance(made, Iterable):
                data = payload_bytes(made, remedy)
            else:
                data = b"".join(payload_bytes(piece, remedy) for piece in made)
            channel = self._channel()
            return channel._filter_content_nowait(data, Way.STATE, self._name) if channel is not None else data
        except CALLBACK_ERRORS as problem:
            log.exception("%s: making the state %r failed", self._channel_name, self._name)
            if isinstance(problem, Exception):
                raise
            raise RuntimeError(f"making the state raised {type(problem).__name__}") from problem


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a state is text, not {type(name).__name__}")
    if not name.isprintable() or not 0 < len(name.encode(errors="surrogatepass")) <= STATE_NAME_BYTES_MAX:
        raise ValueError(f"state {name[:40]!r}: the name must have 1 to {STATE_NAME_BYTES_MAX} bytes of printable text")
