"""`Meeting`: the public object, one program's part in the meeting of a channel.

async with conference.join("review/wing-7", name="Anna") as meeting:
    async with meeting.floor(timeout_s=10):
        await meeting.show(Viewpoint((4000, 2000, 3000)))
        note = await meeting.annotate("rib-4", "A crack?")
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from broadloom.apps.conference import live
from broadloom.apps.conference.actions import (
    Action,
    Annotate,
    ClosePoll,
    HandOver,
    LoadPart,
    Measure,
    OpenPoll,
    Point,
    Publish,
    RaiseHand,
    ReleaseFloor,
    RequestFloor,
    SetAgenda,
    SetView,
    TakeBack,
    UnloadPart,
    Value,
    Viewpoint,
    Vote,
    point,
)
from broadloom.apps.conference.errors import ConferenceError, FloorTimeoutError, NotLeaderError
from broadloom.apps.conference.participation import Participation
from broadloom.apps.session import TIMEOUT_S, joined
from broadloom.channel.options import ConnectOptions, accepts_connect_options
from broadloom.errors import OrderTimeoutError
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import Priority

if TYPE_CHECKING:
    from broadloom.channel import Channel

REST_S = 0.3
"""A leader whose viewpoint has not moved for this long has come to rest."""


class Participant(NamedTuple):
    """A participant that is present."""

    peer_id: PeerId
    name: str
    is_proven: bool
    """The name is that of a ticket."""
    is_me: bool
    is_leader: bool
    has_hand_up: bool
    queue_place: int | None
    """Place in the queue for the floor, from 1."""


class Meeting(Participation):
    """One program's part in the meeting of a channel. Use it with `async with`: then it has everything that happened
    before. Not thread-safe: use it from the event loop of the channel."""

    def __init__(self, channel: "Channel", name: str = "", *, listens: bool = False) -> None:
        """`name`: for channels without tickets. Default: the name given to `connect`. With `listens`, this program is
        not one of the participants, and only reads."""
        super().__init__(channel, name, listens=listens)
        self._own_viewpoint: Viewpoint | None = None
        self._shown: live.LiveView | None = None
        """What this program has shown as the leader, and not ordered yet."""
        self._rest_timer: asyncio.TimerHandle | None = None
        self._floor_lock = asyncio.Lock()
        """Held by the task of this program that is in `floor`: the floor is that of the program."""

    def _on_end(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
        super()._on_end()

    # -- state

    @property
    def is_leader(self) -> bool:
        """Whether this program leads."""
        return self._core.is_leader(self.now())

    def name_of(self, peer_id: int) -> str:
        """The name on its ticket; without tickets the one that it chose."""
        member = self.channel.member(PeerId(peer_id))
        return member.name if member is not None and member.is_proven else self.state.name_of(peer_id)

    def participants(self) -> list[Participant]:
        """Participants that are present, in the order of their arrival."""
        state, found = self.state, []
        queue = list(state.floor.queue)
        for peer_id, record in state.participants.items():
            member = self.channel.member(PeerId(peer_id))
            is_here = self._is_in_roster(peer_id) or self._core.was_heard(peer_id, self.now())
            if member is None or record.left_ms is not None or not is_here:
                continue
            place = queue.index(peer_id) + 1 if peer_id in state.floor.queue else None
            is_leader, has_hand_up = peer_id == state.floor.holder, peer_id in state.hands
            name = self.name_of(peer_id)
            found.append(
                Participant(PeerId(peer_id), name, member.is_proven, peer_id == self.me, is_leader, has_hand_up, place)
            )
        return found

    # -- participants and floor

    async def raise_hand(self, is_up: bool = True) -> None:
        await self._do(RaiseHand(is_up))

    async def request_floor(self) -> None:
        """Lead at once if the floor is free, else wait in the queue."""
        self._check_open()
        if not self._has_arrived:
            raise ConferenceError("only participants can lead: join without `listens`, with a ticket that may send")
        await self._do(RequestFloor())

    async def release_floor(self) -> None:
        """Give the floor back, or leave the queue."""
        await self._do_after_view(ReleaseFloor())

    async def hand_over(self, to: int) -> None:
        """Make this participant the leader. Raises `NotLeaderError`."""
        self._check_leader("hand over the floor")
        if to == self.me or to not in [each.peer_id for each in self.participants()]:
            raise ConferenceError("choose another participant that is present: see participants()")
        await self._do_after_view(HandOver(int(to)))

    async def take_back(self) -> None:
        """Take the floor back from the participant that got it from this program."""
        if self.state.floor.lender != self.me:
            raise ConferenceError("only the participant that handed over the floor can take it back: request it")
        await self._do(TakeBack())

    @asynccontextmanager
    async def floor(self, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Self]:
        """Lead while the block runs; other tasks of this program wait. Do not nest it. Raises
        `FloorTimeoutError`."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout_s):
                    await stack.enter_async_context(self._floor_lock)
                    await self._get_floor()
            except (TimeoutError, OrderTimeoutError):
                raise self._no_floor(timeout_s) from None
            try:
                yield self
            finally:
                if not self.is_ended and self.leader == self.me:
                    await self.release_floor()

    async def _get_floor(self) -> None:
        try:
            await self.request_floor()
            await self._wait_until(lambda: self.is_leader)
        except BaseException:
            if not self.is_ended:  # otherwise this program would lead later, without knowing it
                self._start_best_effort(self._do, ReleaseFloor())
            raise

    def _no_floor(self, timeout_s: float) -> FloorTimeoutError:
        if self.leader is None:
            reason = "the order does not answer. Try again later"
        elif self.leader == self.me:
            reason = "this program has it already, in another task or an enclosing block"
        else:
            reason = f"{self.name_of(self.leader)} has it. Wait longer, or raise your hand"
        return FloorTimeoutError(f"no floor within {timeout_s:g} s: {reason}")

    # -- views and pointers

    async def show(self, viewpoint: Viewpoint) -> None:
        """Show all that follow this viewpoint. Raises `NotLeaderError`."""
        self._check_leader("show a viewpoint")
        checked = Viewpoint(point(viewpoint[0]), point(viewpoint[1]))
        self._shown = live.LiveView(self.state.floor.term, checked)
        if self._rest_timer is not None:
            self._rest_timer.cancel()
        self._rest_timer = self._loop.call_later(REST_S, self._start_best_effort, self._order_view)
        await self._layer.broadcast(live.encode(self._shown))

    async def _order_view(self, timeout_s: float = TIMEOUT_S) -> None:
        """Late joiners get this, and it stays when the floor changes hands."""
        shown, floor = self._shown, self.state.floor
        if shown is None or not self.is_leader or shown.term != floor.term:
            return
        self._shown = None
        try:
            await self._do(SetView(*shown.viewpoint), timeout_s)
        except BaseException:
            if self._shown is None:  # else the leader has moved on
                self._shown = shown
            raise

    async def _do_after_view(self, action: Action) -> None:
        """The floor is given away even if the viewpoint cannot be ordered."""
        deadline = self.now() + TIMEOUT_S
        await self._attempt(self._order_view, TIMEOUT_S / 2)
        await self._do(action, deadline - self.now())

    @property
    def shared_viewpoint(self) -> Viewpoint | None:
        """Where the leader looks from, or the last leader has."""
        floor = self.state.floor
        if floor.holder == self.me and self._shown is not None and self._shown.term == floor.term:
            return self._shown.viewpoint
        return self._views.of_leader(floor) or self.state.viewpoint

    @property
    def is_following(self) -> bool:
        return self._own_viewpoint is None or self.is_leader

    @property
    def viewpoint(self) -> Viewpoint | None:
        """What this program looks at: with the leader, or by itself after `detach`."""
        return self.shared_viewpoint if self.is_following else self._own_viewpoint

    def detach(self, viewpoint: Viewpoint | None = None) -> None:
        """Look from here, and do not follow the leader."""
        self._own_viewpoint = viewpoint or self.shared_viewpoint or Viewpoint((1.0, 1.0, 1.0))

    def attach(self) -> None:
        """Follow the leader again."""
        self._own_viewpoint = None

    async def point(self, at: Point) -> None:
        """Show all where this participant points, for half a second."""
        self._check_open()
        await self._layer.broadcast(live.encode(live.Pointer(point(at))), priority=Priority.LOW, ttl_s=live.POINTER_S)

    def pointers(self) -> dict[PeerId, Point]:
        """Where others point now."""
        return {PeerId(author): at for author, at in self._views.pointers(self.now()).items()}

    # -- shared items. Those that create one return its id

    async def load(self, part: str) -> None:
        await self._do(LoadPart(part))

    async def unload(self, part: str) -> None:
        await self._do(UnloadPart(part))

    async def measure(self, part: str, start: Point, end: Point) -> str:
        return await self._do(Measure(part, point(start), point(end)))

    async def annotate(self, part: str, text: str, *, at: Point | None = None, reply_to: str | None = None) -> str:
        return await self._do(Annotate(part, text, point(at) if at is not None else None, reply_to))

    async def publish(self, kind: str, part: str, values: Mapping[str, Value]) -> str:
        """Share a result, such as that of a calculation: up to 20 names with texts, numbers, booleans or None."""
        return await self._do(Publish(kind, part, dict(values)))

    async def open_poll(self, question: str, options: Sequence[str]) -> str:
        texts = _texts("options", options)
        if len(texts) < 2 or len(set(texts)) < len(texts):
            raise ValueError("a poll needs at least two options, all of them different")
        return await self._do(OpenPoll(question, texts))

    async def vote(self, poll: str, option: int) -> None:
        """The number of the option, from 0. The last vote of each name counts."""
        if self.me not in self.state.participants:
            raise ConferenceError("only participants can vote: join without `listens`, with a ticket that may send")
        found = self.state.polls.get(poll)
        if found is None or not found.is_open or not 0 <= option < len(found.options):
            raise ConferenceError("this poll is closed or has no such option: see state.polls")
        await self._do(Vote(poll, option))

    async def close_poll(self, poll: str) -> None:
        """By its author or the leader."""
        found = self.state.polls.get(poll)
        if found is None or self.me not in (found.author, self.leader):
            raise ConferenceError("only the participant that opened a poll, or the leader, can close it")
        await self._do(ClosePoll(poll))

    async def set_agenda(self, items: Sequence[str]) -> None:
        await self._do(SetAgenda(_texts("items", items)))

    def _check_leader(self, what: str) -> None:
        if not self.is_leader:
            raise NotLeaderError(f"only the leader can {what}: request the floor first")


def _texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """A text is a sequence of texts, too, but nobody means that."""
    texts = tuple(values)
    if isinstance(values, str) or not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{name} must be a list of strings, not {values!r}")
    return texts


@accepts_connect_options
def join(channel: str, options: ConnectOptions) -> "AbstractAsyncContextManager[Meeting]":
    """Join the meeting of a channel: `async with conference.join("review/wing-7", name="Anna") as meeting`.

    The parameters are those of `broadloom.connect`. With a `ticket`, the name is the one on it. `Meeting(channel)` is
    the same for a channel that the program has joined already.
    """
    return joined(channel, Meeting, options=options)
