"""`Play`: one program in one game.

async with game.join("chain/club-42", of=Chain(players=2), name="Anna", role="red") as play:
    await play.do("place", x=3, y=2)
    async for change in play:
        draw(play.state)
"""

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import broadloom
from broadloom.apps.game.changes import Change, Missed
from broadloom.apps.game.entry import Entry, Kind, checked_name, to_json
from broadloom.apps.game.errors import GameError, IllegalActionError, NoGameError, NoRoleError, RoleTakenError
from broadloom.apps.game.game import Game, GameOrder, State
from broadloom.apps.game.game_log import GameLog
from broadloom.apps.game.participant import ANY_ROLE, LAYER, SAID_MAX, Participant
from broadloom.apps.game.table import Table
from broadloom.channel import Channel, ChannelEvent
from broadloom.channel.direct_request import DirectRequest
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.layer_runtime import LayerRuntime
from broadloom.channel.outgoing import Way
from broadloom.errors import BroadloomError, NotConnectedError, RefusedError
from broadloom.order import Entry as OrderEntry
from broadloom.order import Order, Rewound, Skipped, ordered
from broadloom.protocol.identity import Role
from broadloom.wire import PeerId

log = logging.getLogger("broadloom")

TIMEOUT_S = 10.0
READY_TIMEOUT_S = 30.0
"""As for joining a channel."""
POLL_S = 0.02
CHANGES_MAX = 10_000
"""Changes that a program has not read; the oldest are dropped, and `Missed` says how many."""
TELL_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 2.0


class Play(LayerRuntime):
    """Use it with `async with`, or `await play.ready()` and `aclose`. It is the runtime of its participant."""

    def __init__(
        self, channel: Channel, game: Game, *, name: str = "", role: str = "", log_file: Path | None = None
    ) -> None:
        super().__init__(channel, LAYER, self._on_left_channel)
        self.game = game
        self.seed = f"{channel.name}\0{game.name}\0{len(game.seats())}"
        self._name, self._wanted = checked_name(name), role
        self._participant = Participant(self, game, self.seed)
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self._has_changes = asyncio.Event()
        self._dropped_count = 0
        self._listeners = EventListeners[Change](channel.name)
        self._settling: dict[int, asyncio.Future[str]] = {}
        self._order: Order | None = None
        self._read_index = 0
        self.is_ended = False
        self._end_reason = "the game was left"
        self._log = GameLog(log_file, game, self.seed) if log_file is not None else None
        if game.order is GameOrder.AGREED:
            name_of_order = f"game/{game.name}/{len(game.seats())}"
            self._order = ordered(channel, name_of_order, mode="available", from_index=1)
        self._open()
        self._layer.on_request(self._on_request)
        if self._order is not None:
            self._start_task(self._read_order(self._order))
        self._participant.start()

    # -- state

    @property
    def channel(self) -> Channel:
        return self._channel

    @property
    def table(self) -> Table:
        """Phase, roles, players and result."""
        return self._participant.table

    @property
    def role(self) -> str | None:
        """The role of this program's player; None for a spectator."""
        return self._participant.role

    @property
    def state(self) -> State:
        """What this player may see of the state of the game; empty before it starts."""
        table = self.table
        return self.game.view(table.state, self.role) if table.state else {}

    @property
    def is_ready(self) -> bool:
        return self._participant.is_ready

    def state_hash(self) -> str:
        """Equal at two players exactly if they have the same state."""
        return self.table.hash()

    async def ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the state of the others is here, and the player has its role. Raises `RoleTakenError`,
        `NoRoleError`, or `NoGameError` after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._want_role()
                while not self.is_ready or (self._participant.wanted and not self._participant.has_sat):
                    self._check_open()
                    if self.is_ready:
                        self._check_role()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise NoGameError(f"{self.channel.name}: the game could not be joined within {timeout_s:g} s") from None

    async def _want_role(self) -> None:
        """The name of a player passes the rules before the participant takes a role with it."""
        if self._wanted:
            content = await self._filtered(self._wanted, self._name, {})
            self._participant.wanted, self._participant.name, _ = content
            self._participant.has_sat, self._wanted = False, ""

    async def _filtered(self, role: str, name: str, values: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """What the rules make of an entry. An ordered conversation asks them itself."""
        if self._order is None:
            content = to_json([role, name, values])
            content = await self._channel._filter_content(content, Way.ENTRY, self.game.name, LAYER)
            role, name, values = json.loads(content)
        return role, name, values

    def _check_role(self) -> None:
        wanted, name = self._participant.wanted, self._participant.name
        seats = self.table.seats
        roles = list(seats) if wanted == ANY_ROLE else [wanted]
        if wanted not in (ANY_ROLE, *seats):
            raise NoRoleError(f"there is no role {wanted!r}: choose one of {', '.join(seats)}")
        is_hopeless = wanted != ANY_ROLE or self._participant.has_players
        if is_hopeless and all(seats[each].name not in ("", name) for each in roles):
            who = ", ".join(f"{each}: {seats[each].name}" for each in roles)
            raise RoleTakenError(f"taken: {who}; choose another role, or watch the game")

    # -- acting

    async def do(self, action: str, **values: Any) -> None:
        """Act for one's role. Returns when the action counts. Raises `IllegalActionError` if the rules do not allow it:
        then it has no effect at any player."""
        role = self.role
        if role is None:
            raise GameError("a spectator cannot act: take a role")
        await self._submit(Kind.ACT, role, action, values)

    async def moved(self, x: int, y: int) -> None:
        await self.do("moved", x=x, y=y)

    async def shot(self, dx: int, dy: int) -> None:
        await self.do("shot", dx=dx, dy=dy)

    async def scored(self, points: int) -> None:
        await self.do("scored", points=points)

    async def typed(self, text: str) -> None:
        """Act as a player who types this line or key."""
        if self.role is None or not self.table.state:
            raise IllegalActionError("you cannot act: the game has not started, or you have no role")
        action = self.game.typed(self.state, self.role, text)
        await self.do(action.name, **action.values)

    async def arrived(self, role: str = ANY_ROLE, *, name: str = "", timeout_s: float = READY_TIMEOUT_S) -> None:
        """Take a role. Raises `RoleTakenError` and `NoRoleError`."""
        self._name = checked_name(name or self._name)
        if not self._name:
            raise GameError("a player needs a name")
        self._wanted = role
        try:
            await self.ready(timeout_s)
        except BaseException:
            self._wanted = self._participant.wanted = ""
            raise

    async def left(self) -> None:
        """Give up one's role, and go on watching."""
        role, self._participant.wanted = self.role, ""
        if role is not None:
            await self._submit(Kind.LEAVE, role, values={"player": int(self.peer_id)})

    async def release(self, role: str) -> None:
        """Free the role of a player that is gone and does not come back."""
        player = self.table.seats[role].player if role in self.table.seats else 0
        if not player or player in (self.members() or [player]):
            raise GameError(f"{role} is free, or its player is here")
        await self._submit(Kind.LEAVE, role, values={"player": player})

    async def start(self) -> None:
        """Start the game, or a rematch. Stand-ins play for roles that nobody has."""
        await self._submit(Kind.START)

    async def tell(self, to: str, text: str) -> None:
        """Send a message to one player, by name or role: directly, not to all."""
        seats = self.table.seats
        found = [seat.player for role, seat in seats.items() if to in (role, seat.name) and seat.player]
        if not found or not 0 < len(text) <= SAID_MAX:
            raise GameError(f"{to} is not in the game" if not found else f"a message has 1 to {SAID_MAX:,} characters")
        data = await self._channel._filter_content(to_json({"said": text}), Way.TELL, to, LAYER)
        await self._layer.tell(PeerId(found[0]), data, timeout_s=TELL_TIMEOUT_S)

    async def _submit(
        self, kind: Kind, role: str = "", name: str = "", values: dict[str, Any] | None = None, *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        self._check_open()
        role, name, values = await self._filtered(role, name, values or {})
        entry = self._participant.new_entry(kind, role, name, values)
        settled = self._settling[entry.number] = self._loop.create_future()
        try:
            if self._order is None:
                self._participant.submit(entry)
            else:
                await self._order.submit(entry.encode(), timeout_s=timeout_s)
            async with asyncio.timeout(timeout_s):
                problem = await settled
        except TimeoutError:
            raise GameError(f"{name or kind} was not confirmed within {timeout_s:g} s") from None
        finally:
            self._settling.pop(entry.number, None)
        if problem:
            raise IllegalActionError(problem)

    # -- changes

    async def receive(self, timeout_s: float | None = None) -> Change:
        """The next change. Raises `TimeoutError`, or `NotConnectedError` at the end."""
        async with asyncio.timeout(timeout_s):
            while not self._changes:
                self._check_open()
                self._has_changes.clear()
                await self._has_changes.wait()
        if self._dropped_count:
            count, self._dropped_count = self._dropped_count, 0
            return Missed(count)
        return self._changes.popleft()

    async def _iterate(self) -> AsyncGenerator[Change, None]:
        while True:
            try:
                change = await self.receive()
            except NotConnectedError:
                return
            yield change

    def __aiter__(self) -> AsyncGenerator[Change, None]:
        """Changes as they happen, until the game is left."""
        return self._iterate()

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` for each change too. Returns a function that removes it."""
        return self._listeners.add(callback)

    # -- ending

    def _check_open(self) -> None:
        if self.is_ended:
            raise NotConnectedError(f"{self._channel.name}: {self._end_reason}")

    def _on_left_channel(self) -> None:
        self._end()

    def _end(self) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        self._participant.close()
        self._has_changes.set()
        for future in self._settling.values():
            if not future.done():
                future.set_exception(NotConnectedError(f"{self._channel.name}: {self._end_reason}"))
        self._write_log(lambda log_file: log_file.close(self.state_hash()))

    async def aclose(self) -> None:
        """Give up the role and leave the game. The others continue."""
        if not self.is_ended:
            with contextlib.suppress(BroadloomError, TimeoutError):
                role, self._participant.wanted = self.role, ""
                if role is not None:
                    own = {"player": int(self.peer_id)}
                    await self._submit(Kind.LEAVE, role, values=own, timeout_s=LEAVE_TIMEOUT_S)
        self._end()
        if self._order is not None:
            await self._order.aclose()
        await self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.ready()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- the order

    async def _read_order(self, order: Order) -> None:
        self._start_task(self._wait_for_history(order))
        try:
            async for item in order:
                match item:
                    case OrderEntry(index, _, author, data):
                        self._read_index = index
                        self._participant.on_entry(index, author, data)
                    case Rewound(to_index):
                        self._read_index = to_index
                        self._participant.on_rewound(to_index)
                    case Skipped(_, last_index):
                        self._read_index = last_index
                        self._participant.on_skipped()
        except Exception as problem:
            log.exception("%s: the game cannot continue", self._channel.name)
            self._end_reason = f"the game ended here: {problem!r}"
            self._end()

    async def _wait_for_history(self, order: Order) -> None:
        while not self.is_ready:
            if order.epoch is not None and not order.unread_count and self._read_index >= order.last_index:
                self._participant.on_caught_up()
            await asyncio.sleep(POLL_S)

    # -- called by the participant

    def submit(self, entry: Entry) -> None:
        self._start_task(self._submit_entry(entry))

    async def _submit_entry(self, entry: Entry) -> None:
        assert self._order is not None
        with contextlib.suppress(BroadloomError):  # the participant tries again
            await self._order.submit(entry.encode())

    def request(self, peer_id: int, data: bytes, timeout_s: float, on_answer: Callable[[bytes | None], None]) -> None:
        async def ask() -> None:
            try:
                answer = (await self._layer.request(PeerId(peer_id), data, timeout_s=timeout_s)).data
            except (BroadloomError, ValueError):
                on_answer(None)
            else:
                on_answer(answer)

        self._start_task(ask())

    def tell_member(self, peer_id: int, data: bytes) -> None:
        async def send() -> None:
            with contextlib.suppress(BroadloomError):
                await self._layer.tell(PeerId(peer_id), data, timeout_s=TELL_TIMEOUT_S)

        self._start_task(send())

    def members(self) -> list[int] | None:
        if not self._channel._node.peer.roster.is_complete:
            return None
        return [
            each.peer_id
            for each in self._channel.members()
            if LAYER in each.layers and each.role is not Role.CONSUMER and not each.is_secondary
        ]

    def sequencer(self) -> int | None:
        epoch = self._order.epoch if self._order is not None else None
        return epoch.sequencer if epoch is not None else None

    def emit(self, change: Change) -> None:
        self._dropped_count += len(self._changes) == CHANGES_MAX
        self._changes.append(change)
        self._has_changes.set()
        self._listeners.emit(change)

    def on_settled(self, number: int, problem: str) -> None:
        future = self._settling.get(number)
        if future is not None and not future.done():
            future.set_result(problem)

    def on_input(self, kind: str, value: Any) -> None:
        if not self.is_ended:
            self._write_log(lambda log_file: log_file.write(kind, value))

    def _write_log(self, write: Callable[[GameLog], None]) -> None:
        """The game goes on without its log."""
        try:
            if self._log is not None:
                write(self._log)
        except (OSError, ValueError) as problem:
            assert self._log is not None
            self._log.abandon()
            self._log = None
            log.error("%s: the game log ends here: %s", self._channel.name, problem)

    # -- called by the channel

    def _on_message(self, author: PeerId, data: bytes) -> None:
        self._participant.on_message(author, data)

    def _on_request(self, request: DirectRequest) -> bytes | None:
        if not request.expects_reply:
            self._participant.on_message(request.peer_id, request.data)
            return None
        reply = self._participant.on_request(request.data)
        if reply is None:
            raise RefusedError("no state here yet")
        return reply

    def _on_event(self, event: ChannelEvent) -> None:
        """Members are looked up when they are needed."""


@contextlib.asynccontextmanager
async def join(
    channel: str, *, of: Game, name: str = "", role: str = ANY_ROLE, log_file: Path | None = None, **options: Any
) -> AsyncIterator[Play]:
    """Join a game and take a role: `role`, by default any that is free, or "" to watch. `options` are those of
    `broadloom.connect`. Raises `RoleTakenError`, `NoRoleError` and `NoGameError`."""
    if role and not (name or "ticket" in options):
        raise ValueError("a player needs a name: pass name=, or a ticket")
    if name and "ticket" not in options:
        options["name"] = name
    async with (
        broadloom.connect(channel, **options) as joined,
        Play(joined, of, name=name or own_name(joined), role=role, log_file=log_file) as play,
    ):
        yield play


def own_name(channel: Channel) -> str:
    """The name on the ticket, or the one given to `connect`."""
    identity = channel.identity(channel.peer_id)
    return (identity.name if identity is not None else "") or channel._node.name
