"""`SimSwitchRuntime`: the switch on a simulated peer, with the same core as over sockets."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import Event, Message, Missed
from broadloom.protocol.requests.outgoing import Outcome, OutgoingRequest, RequestState
from broadloom.protocol.roster.member import Member, MemberJoined, MemberLeft, MemberLost
from broadloom.switch.core import SwitchCore
from broadloom.switch.handlers import HandlerCall
from broadloom.switch.program_types import ProgramType
from broadloom.switch.queue_store import QueueStore
from broadloom.switch.settings import LAYER
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Observer, Timer
    from broadloom.testing.sim.node import SimNode

PURPOSE = b"switch"
LAYER_NUMBER = layer_kind(LAYER) >> LAYER_SHIFT


class SimProgram:
    """A program that was started; the simulation decides when it is ready and how it ends."""

    def __init__(self, program: ProgramType, on_exit: Callable[[str], None]) -> None:
        self.program = program
        self.on_exit: Callable[[str], None] | None = on_exit
        self.last_lines = ""

    def terminate(self) -> None:
        self.on_exit = None

    def exit(self, text: str) -> None:
        on_exit, self.on_exit = self.on_exit, None
        if on_exit is not None:
            on_exit(text)


class SimSwitchRuntime:
    """The switch on a simulated peer that is connected."""

    def __init__(
        self,
        node: "SimNode",
        session: str,
        program: str = "",
        programs: Mapping[str, ProgramType] | None = None,
        queue: QueueStore | None = None,
    ) -> None:
        self.node = node
        self._roster = node.peer.roster
        self._requests = node.peer.requests
        self.started: list[SimProgram] = []
        self.core = SwitchCore(self, session, program, programs, queue)
        node.on_message, node.on_missed, node.on_event = self._on_message, self._on_missed, self._on_event
        self._requests.handlers.set(LAYER_NUMBER, self.core.on_request, 256)
        self._roster.set_layers((layer_kind(LAYER),))
        self.core.start()

    @property
    def peer_id(self) -> int:
        return self.node.peer.me.peer_id

    @property
    def is_connected(self) -> bool:
        return self.node.is_connected

    @property
    def observer(self) -> "Observer | None":
        return self.node.peer.observer

    @property
    def has_whole_roster(self) -> bool:
        return self._roster.is_complete

    def now(self) -> float:
        return self.node.clock.now

    def wall_time_ms(self) -> int:
        return int(self.node.wall_time_s() * 1000)

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self.node.call_later(delay_s, callback, *args)

    def members(self) -> tuple[Member, ...]:
        return self._roster.members()

    def member(self, peer_id: int) -> Member | None:
        return self._roster.get(peer_id)

    def sign(self, data: bytes) -> bytes:
        return self._roster.sign(PURPOSE, data)

    def is_signed_by(self, peer_id: int, data: bytes, signature: bytes) -> bool:
        return self._roster.is_signed_by(peer_id, PURPOSE, data, signature)

    def broadcast(self, data: bytes) -> None:
        if self.node.is_connected:
            self.node.broadcast(data)

    def request(self, peer_id: int, data: bytes, timeout_s: float, on_outcome: Callable[[Outcome], None]) -> object:
        return self._requests.request(peer_id, data, timeout_s, on_outcome, layer=LAYER_NUMBER)

    def give_up(self, request: object) -> None:
        assert isinstance(request, OutgoingRequest)
        if request.state is not RequestState.ENDED:
            self._requests.give_up(request)

    def tell(self, peer_id: int, data: bytes) -> None:
        self._requests.request(peer_id, data, 10.0, lambda _outcome: None, layer=LAYER_NUMBER, is_tell=True)

    def invoke(self, call: HandlerCall) -> None:
        """The function of a handler gets the call itself, and ends it now or later."""
        call.handler.function(call)

    def start_program(self, program: ProgramType, on_exit: Callable[[str], None]) -> SimProgram:
        self.started.append(SimProgram(program, on_exit))
        return self.started[-1]

    # -- the peer

    def _on_message(self, message: Message) -> None:
        self.core.on_broadcast(message.author, message.data)

    def _on_missed(self, missed: Missed) -> None:
        self.core.on_missed(missed.author)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, MemberJoined):
            self.core.on_member_joined(event.member.peer_id)
        elif isinstance(event, MemberLeft | MemberLost):
            self.core.on_member_gone(event.member.peer_id)
