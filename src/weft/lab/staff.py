"""The coordinator's side of a lab's processes: orders out, answers and news in, every wait with a deadline.

The asynchronous counterpart of `trial.crew`: a lab lives in the event loop of a page.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from weft.errors import WeftError
from weft.lab.nursery import NurseryProcess
from weft.lab.worker import Terms
from weft.trial.orders import LINE_BYTES_MAX, from_line, to_line

READY_S = 30.0
"""For the nursery to load; on a busy machine that has not done so lately, this takes seconds."""
ANSWER_S = 10.0
END_S = 15.0
"""For all processes to finish their tapes."""


class LabFailed(WeftError):
    """The lab cannot go on; says why."""


class Hand:
    """One process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        """0 until the nursery has told."""
        self.peers: set[int] = set()
        """Numbers of the peers that were ever started in it and have not gone."""
        self.is_frozen = False
        self.ended = asyncio.Event()
        self.is_expected_to_end = False
        self._writer: asyncio.StreamWriter | None = None
        self._early: list[bytes] = []
        """Orders from before it could be reached."""

    @property
    def can_answer(self) -> bool:
        return not self.ended.is_set() and not self.is_frozen

    def order(self, **content: Any) -> None:
        if self._writer is None:
            self._early.append(to_line(content))
        elif not self.ended.is_set():
            self._writer.write(to_line(content))

    def reached(self, writer: asyncio.StreamWriter, terms: Terms) -> None:
        self._writer = writer
        writer.write(to_line(asdict(terms)))
        writer.writelines(self._early)
        self._early.clear()

    def hang_up(self) -> None:
        self.ended.set()
        if self._writer is not None:
            self._writer.close()


class Staff:
    """`told` is given everything that processes tell unasked; `died` those that ended without being told to."""

    def __init__(
        self, terms: Terms, told: Callable[[Hand, dict[str, Any]], None], died: Callable[[Hand], None]
    ) -> None:
        self.hands: list[Hand] = []
        self._terms = terms
        self._told = told
        self._died = died
        self._nursery = NurseryProcess(terms.channel, tape=bool(terms.tape))
        self._ready = asyncio.Event()
        self._is_lost = False
        self._asked = 0
        self._answers: dict[int, dict[int, dict[str, Any]]] = {}
        self._news = asyncio.Event()
        self._readers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._nursery.end.fileno(), self._hear_nursery)

    @property
    def living(self) -> list[Hand]:
        """Those that can be asked."""
        return [hand for hand in self.hands if hand.can_answer]

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(READY_S):
                await self._ready.wait()
        except TimeoutError:
            raise LabFailed(f"the processes of the lab were not ready after {READY_S:g} s") from None
        if self._is_lost:
            raise LabFailed("the process that starts the peers has ended; what it said is above")

    def _hear_nursery(self) -> None:
        while (told := self._nursery.heard()) is not None:
            if not told:
                self._is_lost = True
                self._loop.remove_reader(self._nursery.end.fileno())
                self._ready.set()
                return
            if "ready" in told:
                self._ready.set()
            elif "forked" in told:
                self.hands[told["forked"]].pid = told["pid"]

    # -- processes

    async def hire(self) -> Hand:
        """One more process."""
        hand = Hand(len(self.hands))
        self.hands.append(hand)
        ours = self._nursery.fork(hand.number)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
        hand.reached(writer, self._terms)
        task = self._loop.create_task(self._read(hand, reader))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)
        return hand

    async def _read(self, hand: Hand, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                self._heard(hand, from_line(line))
        hand.hang_up()
        self._news.set()
        if not hand.is_expected_to_end:
            self._died(hand)

    def _heard(self, hand: Hand, content: dict[str, Any]) -> None:
        number = content.get("answer")
        if number is None:
            self._told(hand, content)
        elif number in self._answers:
            self._answers[number][hand.number] = content
            self._news.set()

    def kill(self, hand: Hand) -> None:
        """SIGKILL: it is gone before it knows."""
        hand.is_expected_to_end = True
        self._nursery.signal(hand.number, "kill")

    def freeze(self, hand: Hand) -> None:
        """SIGSTOP: it does nothing at all, and its sockets stay open."""
        hand.is_frozen = True
        self._nursery.signal(hand.number, "stop")

    def thaw(self, hand: Hand) -> None:
        hand.is_frozen = False
        self._nursery.signal(hand.number, "continue")

    def order_all(self, **content: Any) -> None:
        """Those that are frozen will read it when they are thawed."""
        for hand in self.hands:
            hand.order(**content)

    async def ask(self, hands: Iterable[Hand], within_s: float = ANSWER_S, **content: Any) -> list[dict[str, Any]]:
        """The answers of all of these that live, and are not frozen, until they have answered; of those that have by
        then, if some have not."""
        asked = list(hands)
        self._asked += 1
        number = self._asked
        answers = self._answers[number] = {}
        for hand in asked:
            hand.order(ask=number, **content)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while any(hand.number not in answers for hand in asked if hand.can_answer):
                    self._news.clear()
                    await self._news.wait()
        del self._answers[number]
        return list(answers.values())

    # -- the end

    async def close(self) -> None:
        """All end in good order, and finish their tapes; whoever does not is killed. Leaves no process behind."""
        try:
            for hand in self.hands:
                hand.is_expected_to_end = True
                if hand.is_frozen:
                    self.thaw(hand)
                hand.order(do="end")
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    for hand in self.hands:
                        await hand.ended.wait()
        finally:
            for task in list(self._readers):
                task.cancel()
            for hand in self.hands:
                hand.hang_up()
            if not self._is_lost:
                self._loop.remove_reader(self._nursery.end.fileno())
            self._nursery.close()
