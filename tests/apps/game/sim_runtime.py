"""`SimGame`: a participant on a simulated peer, with the same core as over sockets; in agreed order over a replica."""

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from broadloom.apps.game import Action, Chance, Change, Game, GameOrder, IllegalActionError, Result, State
from broadloom.apps.game.entry import Entry
from broadloom.apps.game.game import identity_of
from broadloom.apps.game.game_log import head_line, log_line
from broadloom.apps.game.participant import LAYER, Participant
from broadloom.apps.tape_log import TapeLog
from broadloom.order.model import Entry as OrderEntry
from broadloom.order.model import OrderEvent, Rewound, Skipped
from broadloom.order.settings import OrderSettings
from broadloom.protocol.events import Message
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.order_runtime import ORDER_KIND, SimOrderRuntime
from broadloom.wire.direct_messages import RequestStatus
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind

GAME_KIND = layer_kind(LAYER)
GAME_LAYER = GAME_KIND >> LAYER_SHIFT
SEED = "sim"


class Relay(Game):
    """The order of its actions decides everything: nobody may act twice in a row, and the state is a hash of all."""

    name: ClassVar[str] = "relay"
    title: ClassVar[str] = "Relay"
    about: ClassVar[str] = ""
    help: ClassVar[str] = ""
    order: ClassVar[GameOrder] = GameOrder.AGREED
    pace_s: ClassVar[float] = 0.5

    def __init__(self) -> None:
        self.roles = {"runner": 3}

    def begin(self, players: Sequence[str], chance: Chance) -> State:
        return {"last": chance.choice(list(players)), "hash": "", "count": 0}

    def apply(self, state: State, action: Action, by: str, chance: Chance) -> State:
        if state["last"] == by:
            raise IllegalActionError("not twice in a row")
        text = f"{state['hash']} {by} {action.values} {chance.below(1000)}"
        return {"last": by, "hash": hashlib.sha256(text.encode()).hexdigest(), "count": state["count"] + 1}

    def over(self, state: State) -> Result | None:
        return None

    def stand_in(self, state: State, role: str, chance: Chance) -> Action | None:
        return Action("run", {}) if state["last"] != role else None


class FreeRelay(Relay):
    order: ClassVar[GameOrder] = GameOrder.FREE


class SimGame:
    """One program in the game."""

    def __init__(self, node: SimNode, game: Game, name: str, wanted: str, kept_count: int = 4096) -> None:
        self.node = node
        self.order = _Order(node, self, game, 2 * kept_count) if game.order is GameOrder.AGREED else None
        self.other_game = ""
        self.changes: list[Change] = []
        self.settled: dict[int, str] = {}
        self.inputs: list[tuple[str, Any]] = []
        self.tape_log = TapeLog(node.peer.observer, "game")
        self.tape_log.begin(head_line(game, SEED), player=name)
        self.missing_count = 0
        """This many broadcasts of the game are lost here, as if the channel had reported them as missed."""
        node.peer.roster.set_layers((GAME_KIND, *([ORDER_KIND] if self.order is not None else [])))
        node.peer.requests.handlers.set(GAME_LAYER, self._on_request, 64)
        node.on_message = self._on_message
        self.participant = Participant(self, game, SEED, name=name, wanted=wanted)
        self.participant.timeline.kept_count = kept_count
        self.participant.start()

    # -- GameRuntime

    @property
    def peer_id(self) -> int:
        return self.node.peer.me.peer_id

    def now(self) -> float:
        return self.node.clock.now

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Any:
        return self.node.call_later(delay_s, callback, *args)

    def broadcast(self, data: bytes) -> None:
        if self.node.is_connected:
            self.node.broadcast(data, kind=GAME_KIND)

    def request(self, peer_id: int, data: bytes, timeout_s: float, on_answer: Callable[[bytes | None], None]) -> None:
        def on_end(outcome: Outcome) -> None:
            answer = outcome.data if outcome.kind is OutcomeKind.REPLIED else None
            self.node.call_soon(lambda: on_answer(answer))

        self.node.peer.requests.request(peer_id, data, timeout_s, on_end, layer=GAME_LAYER)

    def tell_member(self, peer_id: int, data: bytes) -> None:
        self.node.peer.requests.request(peer_id, data, 5.0, lambda _outcome: None, layer=GAME_LAYER, is_tell=True)

    def submit(self, entry: Entry) -> None:
        assert self.order is not None
        if self.order.replica.submissions.has_room:
            self.order.replica.submit(entry.encode())

    def members(self) -> list[int] | None:
        roster = self.node.peer.roster
        if self.order is not None and not self.participant.is_ready and self.order.is_caught_up:
            self.participant.on_caught_up()
        return [each.peer_id for each in roster.members() if LAYER in each.layers] if roster.is_complete else None

    def sequencer(self) -> int | None:
        log = self.order.replica.log if self.order is not None else None
        return log.epoch.sequencer if log is not None and log.lineage else None

    def on_other_game(self, identity: str) -> None:
        self.other_game = identity
        self.participant.close()

    def emit(self, change: Change) -> None:
        self.changes.append(change)

    def on_applied(self, entry: Entry, problem: str | None) -> None:
        pass

    def on_settled(self, number: int, problem: str) -> None:
        self.settled[number] = problem

    def on_input(self, kind: str, value: Any) -> None:
        self.inputs.append((kind, value))
        if self.tape_log.is_open:
            self.tape_log.write(log_line(kind, value))

    # -- the peer

    def _on_message(self, message: Message) -> None:
        if message.kind == GAME_KIND and self.missing_count:
            self.missing_count -= 1
        elif message.kind == GAME_KIND:
            self.participant.on_message(message.author, message.data)
        elif self.order is not None:
            self.order.on_message(message)

    def _on_request(self, request: IncomingRequest) -> None:
        if not request.expects_reply:
            self.participant.on_message(request.peer_id, request.data)
        else:
            reply = self.participant.on_request(request.data)
            if reply is not None:
                request.reply(reply)
            else:
                request.refuse(RequestStatus.REFUSED, "")
        request.done()


class _Order(SimOrderRuntime):
    def __init__(self, node: SimNode, program: SimGame, game: Game, log_entries_max: int) -> None:
        settings = OrderSettings(log_entries_max=log_entries_max)
        conversation = zlib.crc32(identity_of(game).encode())
        super().__init__(node, {}, conversation=conversation, from_index=1, settings=settings)
        self._program = program
        self.on_entry = self._on_own_entry
        self.on_order_event = self._on_own_event

    @property
    def is_caught_up(self) -> bool:
        return bool(self.replica.log.lineage) and self.replica.delivery.has_started

    def _on_own_entry(self, entry: OrderEntry) -> None:
        self._program.participant.on_entry(entry.index, entry.author, entry.data)

    def _on_own_event(self, event: OrderEvent) -> None:
        if isinstance(event, Rewound):
            self._program.participant.on_rewound(event.to_index)
        elif isinstance(event, Skipped):
            self._program.participant.on_skipped()
