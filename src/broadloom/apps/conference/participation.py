"""`Participation`: the core of a meeting over a real channel: its order, its live messages and the roster drive it."""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from broadloom.apps.conference import live
from broadloom.apps.conference.actions import (
    Action,
    Arrive,
    Leave,
    Point,
    ReleaseFloor,
    Viewpoint,
    item_id,
    name_of_action,
)
from broadloom.apps.conference.core import Done, MeetingCore
from broadloom.apps.conference.errors import ConferenceError, MeetingFullError
from broadloom.apps.conference.state import GUEST, MeetingState
from broadloom.apps.missed import Missed
from broadloom.apps.session import JOIN_TIMEOUT_S, LEAVE_TIMEOUT_S, TIMEOUT_S, AppSession, own_name
from broadloom.errors import NotPermittedError
from broadloom.order import Entry, Order, OrderEvent, OrderSettings, Rewound
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent

CONVERSATION = "conference"
ENTRIES_MAX = 60_000
"""Entries of one meeting, all of which every member keeps: a late joiner gets everything, or nothing is added."""
EXEMPT = Leave, ReleaseFloor
"""Actions that a full meeting takes as well: nobody else could lead otherwise."""
SETTINGS = OrderSettings(log_entries_max=65_536, log_bytes_max=1 << 30, unread_max=1 << 17)


class ViewMoved(NamedTuple):
    """The leader looks from somewhere else."""

    viewpoint: Viewpoint


class Pointed(NamedTuple):
    """A participant points at something."""

    peer_id: PeerId
    at: Point


class ParticipantsChanged(NamedTuple):
    """A member has joined or is gone."""


MeetingEvent = Done | Rewound | ViewMoved | Pointed | ParticipantsChanged | Missed


class Participation(AppSession[MeetingEvent]):
    _what = "meeting"
    _error = ConferenceError

    def __init__(self, channel: "Channel", name: str = "", *, listens: bool = False) -> None:
        super().__init__(channel, live.LAYER)
        self._layer._filters_content = False  # live messages are not ordered, so they pass the rules themselves
        self.name = own_name(channel, name) or GUEST
        self._listens = listens
        self._has_arrived = False
        """Whether this program is a participant, also while a merge orders its entries again."""
        self._core = MeetingCore(channel.peer_id)
        self._own_applied = 0
        """The number of the last action of our own that was applied."""
        self._views = live.Views()
        self._check_timer: asyncio.TimerHandle | None = None

    # -- joining and leaving

    async def _join(self) -> None:
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await self.channel.wait_for_roster()
                order = Order(self.channel, CONVERSATION, mode="available", from_index=1, settings=SETTINGS)
                self._begin(order)
                order.on_event(self._on_order_event)
                await self._arrive()
        except TimeoutError:
            raise ConferenceError(
                f"{self.channel.name}: the meeting did not answer within {JOIN_TIMEOUT_S:g} s: try again"
            ) from None

    async def _arrive(self) -> None:
        """After all that happened before: with the first epoch, the order has queued it."""
        await self._wait_until(lambda: self._order.epoch is not None and not self._order.unread_count)
        if not self._listens:
            with suppress(NotPermittedError):  # the ticket is for consumers, who listen
                await self._do(Arrive(self.name), timeout_s=JOIN_TIMEOUT_S)
                self._has_arrived = True

    async def _announce_leave(self) -> None:
        """The floor is given back with it."""
        if self.me in self.state.participants:
            await self._do(Leave(), timeout_s=LEAVE_TIMEOUT_S)

    def _on_end(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()

    @property
    def me(self) -> PeerId:
        return self.channel.peer_id

    @property
    def state(self) -> MeetingState:
        """Everything that was agreed on; read only."""
        return self._core.state

    @property
    def leader(self) -> PeerId | None:
        """The participant that has the floor."""
        holder = self.state.floor.holder
        return PeerId(holder) if holder is not None else None

    # -- the order

    async def _do(self, action: Action, timeout_s: float = TIMEOUT_S) -> str:
        """Submit an action and wait until it has happened here. Returns the id of what it creates."""
        self._check_open()
        if self._order.last_index >= ENTRIES_MAX and not isinstance(action, EXEMPT):
            raise MeetingFullError(f"this meeting has {ENTRIES_MAX:,} entries, which is the limit: start another one")
        number, data = self._core.prepare(action, int(time.time() * 1000))
        sent: list[int] = []
        try:
            await self._submit_entry(
                data, timeout_s, lambda: self._own_applied >= number, on_sent=lambda: sent.append(number)
            )
        finally:
            if not sent:
                self._core.withdraw(number)
        return item_id(self.me, number)

    def _on_entry(self, entry: Entry) -> None:
        done = self._core.on_entry(entry, self.now())
        if done is not None:
            if done.author == self.me:
                self._own_applied = max(self._own_applied, done.sent.number)
            self._record_action(done)
            self.emit(done)
        self._check_duties()

    def _record_action(self, done: Done) -> None:
        action = done.sent.action
        owner = action.name if isinstance(action, Arrive) else None
        reason = None if done.is_permitted else "not permitted"
        term = self.state.floor.term
        self._record(name_of_action(action), done.author, done.sent.number, owner=owner, reason=reason, term=term)

    def _on_rewound(self, rewound: Rewound) -> None:
        self._core.on_rewound(rewound, self.now())
        self.emit(rewound)
        self._check_duties()

    def _on_order_event(self, _event: OrderEvent) -> None:
        self._loop.call_soon(self._check_duties)  # a new sequencer is one only after the event

    def _on_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, MemberJoined | MemberLeft | MemberLost):
            if isinstance(event, MemberLost):
                self._core.on_member_lost()
            if not isinstance(event, MemberJoined):
                self._views.forget(event.member.peer_id)
            self.emit(ParticipantsChanged())
            self._check_duties()

    def _check_duties(self) -> None:
        self._wake()
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        if self.is_ended:
            return
        duties = self._core.duties(
            self.now(),
            self._order.epoch,
            is_sequencer=self._order.is_sequencer,
            is_present=self._is_in_roster,
        )
        for action in duties.actions:
            self._start_best_effort(self._do, action)
        if duties.again_in_s is not None:
            self._check_timer = self._loop.call_later(duties.again_in_s, self._check_duties)

    def _is_in_roster(self, peer_id: int) -> bool:
        """A program whose meeting has ended may stay on the channel, without the layer."""
        member = self.channel.member(PeerId(peer_id))
        return member is not None and live.LAYER in member.layers

    # -- live messages

    def _on_message(self, author: PeerId, data: bytes) -> None:
        match self._views.receive(author, data, self.now()):
            case live.LiveView(viewpoint=viewpoint) if author == self.leader:
                self.emit(ViewMoved(viewpoint))
            case live.Pointer(at):
                self.emit(Pointed(author, at))
