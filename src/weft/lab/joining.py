"""How a lab grows: in which process a newcomer is started, and how many at a time."""

import asyncio
from collections import deque
from collections.abc import Callable

from weft.lab.plan import LabPlan
from weft.lab.roster import Known, Roster
from weft.lab.staff import Hand, LabFailed, Staff

AT_ONCE_MAX = 8
"""Newcomers under way at a time: on few cores, more would only wait for each other."""
ALONE = 4
"""If processes are shared, the first so many peers still have one each: they can be frozen by themselves."""
TRIES = 2
ADD_S = 30.0
PER_PEER_S = 2.0
"""Adding is given up after `ADD_S`, and so much for each newcomer."""


class Joining:
    """`portals` tells where newcomers shall look for the channel; `brief` tells a new process how things stand."""

    def __init__(
        self,
        plan: LabPlan,
        staff: Staff,
        roster: Roster,
        portals: Callable[[], list[str]],
        brief: Callable[[Hand], None],
    ) -> None:
        self._plan = plan
        self._staff = staff
        self._roster = roster
        self._portals = portals
        self._brief = brief
        self._numbers = 0
        self._waiting: deque[int] = deque()
        self._starting: dict[int, int] = {}
        """Numbers of those under way, and how often they were tried."""
        self._done: dict[int, asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> list[int]:
        return [*self._starting, *self._waiting]

    async def add(self, count: int) -> list[int]:
        """The ids of so many newcomers, when all are connected."""
        loop = asyncio.get_running_loop()
        numbers = range(self._numbers + 1, self._numbers + count + 1)
        self._numbers += count
        done = {number: loop.create_future() for number in numbers}
        self._done.update(done)
        self._waiting.extend(numbers)
        self._start_some()
        within_s = ADD_S + PER_PEER_S * count
        try:
            _, left = await asyncio.wait(done.values(), timeout=within_s)
        finally:
            for number in numbers:
                self._done.pop(number, None)
        if left:
            raise LabFailed(f"after {within_s:g} s, {len(left)} of {count} newcomers are not connected")
        problems = [problem for future in done.values() if (problem := future.exception()) is not None]
        if problems:
            raise problems[0]
        return [future.result() for future in done.values()]

    def _start_some(self) -> None:
        there = len(self._roster.connected)
        room = max(1, min(AT_ONCE_MAX, there // 4)) - len(self._starting)
        for _ in range(min(room, len(self._waiting))):
            self._start(self._waiting.popleft(), 1)

    def _start(self, number: int, tries: int) -> None:
        self._starting[number] = tries
        task = asyncio.get_running_loop().create_task(self._started(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _started(self, number: int) -> None:
        try:
            hand = self._shared() or await self._hired()
        except OSError as problem:
            self.failed(number, f"no process could be started: {problem}")
            return
        talks = sum(known.talks for known in self._roster.known.values()) < self._plan.talkers_max
        self._roster.known[number] = Known(number, hand, talks)
        hand.peers.add(number)
        hand.order(do="start", number=number, portals=self._portals(), talks=talks)

    async def _hired(self) -> Hand:
        hand = await self._staff.hire()
        self._brief(hand)
        return hand

    def _shared(self) -> Hand | None:
        """A process that has room; None if there shall be one more."""
        living = self._staff.living
        if len(living) < self._plan.processes_max:
            return None
        others = living[ALONE:] or living
        return min(others, key=lambda hand: len(hand.peers))

    # -- told by processes

    def connected(self, number: int, peer: int, port: int) -> None:
        self._starting.pop(number, None)
        self._roster.came(self._roster.known[number], peer, port)
        if number in self._done and not self._done[number].done():
            self._done[number].set_result(peer)
        self._start_some()

    def failed(self, number: int, text: str) -> None:
        tries = self._starting.pop(number, None)
        if tries is None:
            return  # it had been connected
        known = self._roster.known.pop(number, None)
        if known is not None:
            known.hand.peers.discard(number)
        if tries < TRIES:
            self._start(number, tries + 1)
            return
        if number in self._done and not self._done[number].done():
            self._done[number].set_exception(LabFailed(f"peer {number} could not connect: {text}"))
        self._start_some()
