"""`Play`: one program in one game.

async with game.join("chain/club-42", of=Chain(players=2), name="Anna", role="red") as play:
    await play.do("place", x=3, y=2)
    async for change in play:
        draw(play.state)
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from broadloom.apps.game.changes import Change, Over, Started
from broadloom.apps.game.entry import Entry, Key, Kind, checked_name, from_json, to_json
from broadloom.apps.game.errors import GameError, IllegalActionError, NoGameError, NoRoleError, RoleTakenError
from broadloom.apps.game.game import Game, GameOrder, State, identity_of
from broadloom.apps.game.game_log import GameLog, head_line, log_line
from broadloom.apps.game.participant import LAYER, SAID_MAX, Participant
from broadloom.apps.game.seating import ANY_ROLE
from broadloom.apps.game.table import Table
from broadloom.apps.session import JOIN_TIMEOUT_S, LEAVE_TIMEOUT_S, TIMEOUT_S, AppSession, joined, own_name
from broadloom.channel import Channel
from broadloom.channel.direct_request import DirectRequest
from broadloom.channel.outgoing import Way
from broadloom.errors import BroadloomError, RefusedError
from broadloom.order import Entry as OrderEntry
from broadloom.order import Rewound, Skipped, ordered
from broadloom.protocol.identity import Role
from broadloom.wire import PeerId

log = logging.getLogger("broadloom")

POLL_S = 0.02
TELL_TIMEOUT_S = 5.0


class Play(AppSession[Change]):
    """Use it with `async with`. It is the runtime of its participant."""

    _what = "game"
    _error = GameError

    def __init__(
        self,
        channel: Channel,
        game: Game,
        *,
        name: str = "",
        role: str = "",
        log_file: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_game(game)
        self._name, self._wanted = checked_name(own_name(channel, name)), role
        self.game = game
        self.seed = f"{channel.name}\0{game.name}\0{len(game.seats())}"
        self._log = GameLog(Path(log_file), game, self.seed) if log_file is not None else None
        super().__init__(channel, LAYER)
        self._participant = Participant(self, game, self.seed)
        self._seating = self._participant.seating
        self._outcomes: dict[int, str | None] = {}
        """Entries of this program under way, by number: why they have no effect, empty if they have one."""

    async def _join(self) -> None:
        order = None
        if self.game.order is GameOrder.AGREED:
            order = ordered(self._channel, f"game/{identity_of(self.game)}", mode="available", from_index=1)
        self._tape_log.begin(head_line(self.game, self.seed), game=self.game.name, player=self._name)
        self._begin(order)
        self._layer.on_request(self._on_request)
        self._participant.start()
        if order is not None:
            self._start(self._wait_for_history)
        await self.ready()

    # -- state

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

    def latest_round(self) -> list[Entry]:
        """The entries of the latest round that have an effect and are still known, for a replay with `table_at`. The
        first one began the round, unless that is too long ago."""
        return self._participant.timeline.latest_round()

    def table_at(self, entry: Entry) -> Table | None:
        """Phase, roles, players, state and result after this entry; None if that is too long ago."""
        return self._participant.timeline.table_at(Key(*entry.key))

    async def ready(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Wait until the state of the others is here, and the player has its role. Raises `RoleTakenError`,
        `NoRoleError`, or `NoGameError` after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._want_role()
                while not self.is_ready or (self._seating.wanted and not self._seating.has_sat):
                    self._check_open()
                    if self.is_ready:
                        self._check_role()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise NoGameError(f"{self.channel.name}: the game could not be joined within {timeout_s:g} s") from None

    async def _want_role(self) -> None:
        """The name of a player passes the rules before the participant takes a role with it."""
        if self._wanted:
            role, name, _ = await self._filtered(self._wanted, self._name, {})
            self._seating.want(role, name)
            self._wanted = ""

    async def _filtered(self, role: str, name: str, values: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """What the rules make of an entry. An ordered conversation asks them itself."""
        if self._conversation is None:
            content = to_json([role, name, values])
            content = await self._channel._filter_content(content, Way.ENTRY, self.game.name, LAYER)
            role, name, values = from_json(content)
        return role, name, values

    def _check_role(self) -> None:
        wanted, name = self._seating.wanted, self._seating.name
        if self._seating.has_namesake:
            raise RoleTakenError(f"{name} is in the game already: choose another name, or leave it there first")
        seats = self.table.seats
        roles = list(seats) if wanted == ANY_ROLE else [wanted]
        if wanted not in (ANY_ROLE, *seats):
            raise NoRoleError(f"there is no role {wanted!r}: choose one of {', '.join(seats)}")
        is_hopeless = wanted != ANY_ROLE or self._participant.has_players
        if is_hopeless and all(seats[each].name not in ("", name) for each in roles):
            who = ", ".join(f"{each}: {seats[each].name}" for each in roles)
            raise RoleTakenError(f"taken: {who}; choose another role, or watch the game")

    # -- acting

    async def do(self, action: str, /, **values: Any) -> None:
        """Act for one's role. Returns when the action counts. Raises `IllegalActionError` if the rules do not allow it:
        then it has no effect at any player."""
        self._check_open()
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
        try:
            name, values = self.game.typed(self.state, self.role, text)
            acting = self.do(name, **values)
        except IllegalActionError:
            raise
        except Exception as problem:  # of a game that does not come with Broadloom
            raise IllegalActionError(f"{self.game.title} cannot read {text!r}: {problem!r}") from problem
        await acting

    async def arrived(self, role: str = ANY_ROLE, *, name: str = "", timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Take a role. The name on a ticket comes before `name`. Raises `RoleTakenError` and `NoRoleError`."""
        self._name = checked_name(own_name(self.channel, name or self._name))
        if not self._name.strip():
            raise GameError("a player needs a name")
        seating = self._seating
        before = seating.wanted, seating.name, seating.has_sat
        self._wanted = role
        try:
            await self.ready(timeout_s)
        except BaseException:
            self._wanted = ""
            seating.wanted, seating.name, seating.has_sat = before
            raise

    async def departed(self) -> None:
        """Give up one's role, and go on watching."""
        await self._give_up_role(TIMEOUT_S)

    async def _give_up_role(self, timeout_s: float) -> None:
        role = self.role
        self._seating.want_nothing()
        if role is not None:
            try:
                await self._submit(Kind.LEAVE, role, values={"player": int(self.peer_id)}, timeout_s=timeout_s)
            except IllegalActionError:
                if self.role is not None:  # else the participant has given it up meanwhile
                    raise

    async def release(self, role: str) -> None:
        """Free the role of a player that is gone and does not come back."""
        player = self.table.seats[role].player if role in self.table.seats else 0
        if not player or player in (self._participant.members() or [player]):
            raise GameError(f"{role} is free, or its player is here")
        await self._submit(Kind.LEAVE, role, values={"player": player})

    async def start(self) -> None:
        """Start the game, or a rematch. Stand-ins play for roles that nobody has."""
        await self._submit(Kind.START)

    async def tell(self, to: str | Iterable[str], text: str) -> None:
        """Send a message to one or more players, by name or role: directly, not to all. Nothing is sent if one of them
        is not in the game. Otherwise all are tried before an error is raised."""
        self._check_open()
        if not 0 < len(text) <= SAID_MAX:
            raise GameError(f"a message has 1 to {SAID_MAX:,} characters")
        players = {self._player(each): each for each in ([to] if isinstance(to, str) else to)}
        if not players:
            raise GameError("a message needs a player")
        messages = (self._tell(player, name, text) for player, name in players.items())
        problems = [each for each in await asyncio.gather(*messages, return_exceptions=True) if each is not None]
        if problems:
            raise problems[0]

    def _player(self, to: str) -> PeerId:
        """The peer of a player, by name or role."""
        seats = self.table.seats
        for seat in [seats[to]] if to in seats else seats.values():
            if seat.player and (to in seats or seat.name == to):
                return PeerId(seat.player)
        raise GameError(f"{to} is not in the game")

    async def _tell(self, player: PeerId, to: str, text: str) -> None:
        data = await self._channel._filter_content(to_json({"said": text}), Way.TELL, to, LAYER)
        if player == self.peer_id:
            self._participant.on_message(player, data)
        else:
            await self._layer.tell(player, data, timeout_s=TELL_TIMEOUT_S)

    async def _submit(
        self, kind: Kind, role: str = "", name: str = "", values: dict[str, Any] | None = None, *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        self._check_open()
        role, name, values = await self._filtered(role, name, values or {})
        if self._conversation is None:
            await self._wait_to_send(timeout_s)
        entry = self._participant.new_entry(kind, role, name, values)
        number = entry.number
        self._outcomes[number] = None
        try:
            if self._conversation is None:
                self._participant.submit(entry)
            else:
                await self._submit_entry(entry.encode(), timeout_s, lambda: self._outcomes[number] is not None)
            problem = self._outcomes[number]
        finally:
            del self._outcomes[number]
        if problem:
            raise IllegalActionError(problem)

    async def _wait_to_send(self, timeout_s: float) -> None:
        """Free order: a player acts as fast as the channel sends, and lets the others in its event loop run."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_for_window()
                await asyncio.sleep(0)
        except TimeoutError:
            text = f"nothing could be sent within {timeout_s:g} s: earlier actions wait. Act less often"
            raise GameError(f"{self.channel.name}: {text}") from None
        self._check_open()

    # -- ending

    async def _announce_leave(self) -> None:
        await self._give_up_role(LEAVE_TIMEOUT_S)

    def _on_end(self) -> None:
        self._participant.close()
        self._write_log(lambda log_file: log_file.close(self.state_hash()))
        if self._tape_log.is_open:
            self._tape_log.write(log_line("hash", self.state_hash()))

    # -- the order

    def _on_entry(self, entry: OrderEntry) -> None:
        self._participant.on_entry(entry.index, entry.author, entry.data)

    def _on_rewound(self, rewound: Rewound) -> None:
        self._participant.on_rewound(rewound.to_index)

    def _on_skipped(self, _skipped: Skipped) -> None:
        self._participant.on_skipped()

    async def _wait_for_history(self) -> None:
        order = self._order
        while not self.is_ready:
            if order.epoch is not None and not order.unread_count and self._applied_index >= order.last_index:
                self._participant.on_caught_up()
            await asyncio.sleep(POLL_S)

    # -- called by the participant

    def submit(self, entry: Entry) -> None:
        self._start_best_effort(self._order.submit, entry.encode())  # if it fails, the participant tries again

    def request(self, peer_id: int, data: bytes, timeout_s: float, on_answer: Callable[[bytes | None], None]) -> None:
        async def ask() -> None:
            try:
                answer = (await self._layer.request(PeerId(peer_id), data, timeout_s=timeout_s)).data
            except (BroadloomError, ValueError):
                on_answer(None)
            else:
                on_answer(answer)

        self._start(ask)

    def tell_member(self, peer_id: int, data: bytes) -> None:
        self._start_best_effort(partial(self._layer.tell, PeerId(peer_id), data, timeout_s=TELL_TIMEOUT_S))

    def members(self) -> list[int] | None:
        if not self._channel._node.peer.roster.is_complete:
            return None
        return [
            each.peer_id
            for each in self._channel.members()
            if LAYER in each.layers and each.role is not Role.CONSUMER and not each.is_secondary
        ]

    def sequencer(self) -> int | None:
        epoch = self._conversation.epoch if self._conversation is not None else None
        return epoch.sequencer if epoch is not None else None

    def on_other_game(self, identity: str) -> None:
        name, _, players = identity.rpartition("/")
        text = f"{name} for {players} players is played here, not {self.game.name} for {len(self.game.seats())}"
        self._end(GameError(f"{self.channel.name}: {text}: join that one, or use another channel"))

    def emit(self, change: Change) -> None:
        match change:
            case Started():
                self._record_round("started")
            case Over(result) if self.observer is not None:  # the hash takes time
                self._record_round("over", winner=result.winner, hash=self.state_hash())
        super().emit(change)

    def _record_round(self, status: str, **figures: Any) -> None:
        table = self.table
        players = {role: seat.name for role, seat in table.seats.items()}
        self._record(status, number=table.round, game=self.game.name, round=table.round, players=players, **figures)

    def on_applied(self, entry: Entry, problem: str | None) -> None:
        if self.observer is None:
            return
        figures = {"game": self.game.name, "round": self.table.round, "role": entry.role}
        owner = entry.name if entry.kind is Kind.SIT else None
        self._record(entry.kind, entry.author, entry.number, owner=owner, reason=problem or None, **figures)

    def on_settled(self, number: int, problem: str) -> None:
        if number in self._outcomes:
            self._outcomes[number] = problem

    def on_input(self, kind: str, value: Any) -> None:
        if not self.is_ended:
            self._write_log(lambda log_file: log_file.write(kind, value))
            if self._tape_log.is_open:
                self._tape_log.write(log_line(kind, value))

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


def _check_game(game: object) -> None:
    if not isinstance(game, Game):
        raise TypeError(f"a game is an object such as Chain(players=2), not {game!r}")


def join(
    channel: str,
    *,
    of: Game,
    name: str = "",
    role: str = ANY_ROLE,
    log_file: str | os.PathLike[str] | None = None,
    **options: Any,
) -> contextlib.AbstractAsyncContextManager[Play]:
    """Join a game and take a role: `role`, by default any that is free, or "" to watch. With a ticket, the player has
    the name on it. `options` are those of `broadloom.connect`. Raises `RoleTakenError`, `NoRoleError` and
    `NoGameError`."""
    _check_game(of)
    if role and not (name.strip() or "ticket" in options):
        raise ValueError("a player needs a name: pass name=, or a ticket")
    if name and "ticket" not in options:
        options["name"] = name

    def make(connected: Channel) -> Play:
        return Play(connected, of, name=name, role=role, log_file=log_file)

    return joined(channel, make, **options)
