"""Inside a process of a trial: peers that do as the coordinator says, and tell what happens to them.

Ends when told to, and when the coordinator is gone (its end of the socket closes).
"""

import asyncio
import socket
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import weft
from weft.trial import testimony, vitals
from weft.trial.member import Member, Witness
from weft.trial.orders import Terms
from weft.trial.reporting import Reporting
from weft.trial.timeline import Timeline

if TYPE_CHECKING:
    from weft.record import Tape

SHOUTED_AT_ONCE = 50
"""Messages of one peer before the next one's turn, and before anything else is looked at."""
VIEW_PAUSE_S = 0.1
"""Changes of links within this time are told together."""


class Worker(Reporting):
    def __init__(self, terms: Terms, end: socket.socket) -> None:
        super().__init__(end)
        self._terms = terms
        self._random = Random()
        self._members: dict[int, Member] = {}
        self._left: list[Member] = []
        self._changed: dict[Member, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._traffic: asyncio.Task[None] | None = None
        self._shouting = False
        self._shouts = 0
        """Under way, also for a moment after the order to stop."""
        self._warnings: dict[str, int] = {}
        self._tape: Tape | None = None

    async def main(self) -> None:
        await self.begin(self.warned)
        if self._terms.tape:
            from weft.record import Tape

            self._tape = Tape(Path(self._terms.tape))
        try:
            async for order in self.orders():
                self._obey(order)
        finally:
            self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._traffic is not None:
            self._traffic.cancel()
        for member in self._members.values():
            member.channel.vanish()
        if self._tape is not None:
            self._tape.close()

    # -- telling

    def warned(self, text: str) -> None:
        self._warnings[text] = self._warnings.get(text, 0) + 1

    def _link_changed(self, member: Member) -> None:
        if not self._changed:
            self._loop.call_later(VIEW_PAUSE_S, self._tell_views)
        self._changed[member] = None

    def _tell_views(self) -> None:
        changed, self._changed = self._changed, {}
        self.tell(tell="views", views=[member.view() for member in changed if member.number in self._members])

    # -- orders

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "start":
                for number in order["numbers"]:
                    self._spawn(self._start(number, order))
            case "traffic":
                self._set_traffic(order["per_s"])
            case "shout":
                self._set_traffic(0)
                self._shouting = True
                self._spawn(self._shout())
            case "leave":
                for number in order["numbers"]:
                    self._spawn(self._leave(self._members.pop(number)))
            case question:
                self.tell(answer=order["ask"], **self._answer(question, order))

    def _answer(self, question: str, order: dict[str, Any]) -> dict[str, Any]:
        members = list(self._members.values())
        match question:
            case "heads":
                return testimony.heads(members, order["gone"])
            case "check":
                return testimony.check(members, order["roll"])
            case "missed":
                return {"told": [(each.number, *one) for each in members for one in each.ledger.told()]}
            case "held":
                return {"held": testimony.held(members, order["ranges"])}
            case "vitals":
                return vitals.usage() | {"is_shouting": bool(self._shouts)}
            case "report":
                left = [member.report() for member in self._left]
                reports = {"peers": [member.report() for member in members], "left": left}
                return reports | {"broken_count": self._broken_count, "warnings": self._warnings} | vitals.usage()
        raise ValueError(f"no such order: {question!r}")

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, number: int, order: dict[str, Any]) -> None:
        terms, witness = self._terms, Witness(self._tape)
        wait_s = order["at_ns"] / 1e9 - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        start_ns = time.monotonic_ns()
        timeline = Timeline() if order["timed"] else None
        try:
            channel = await weft.connect(
                terms.channel,
                portals=order["portals"],
                key=terms.key,
                plain=terms.key is None,
                timeout_s=terms.connect_s,
                tape=witness,
                settings=weft.Settings(degree=terms.degree),
            )
        except weft.WeftError as problem:
            self.tell(tell="failed", number=number, text=str(problem))
            return

        def broken(promise: int, text: str) -> None:
            self.broken(promise, f"peer {number} ({channel.peer:016x}) {text}")

        member = Member(number, channel, witness, broken=broken, changed=self._link_changed)
        self._members[number] = member
        took_s = (member.connected_ns - start_ns) / 1e9
        phases = timeline.phases(start_ns, witness, member.connected_ns) if timeline is not None else {}
        # With its links: a peer of which they are not known must not be overlooked when the fabric is looked at.
        self.tell(tell="connected", number=number, took_s=took_s, phases=phases, view=member.view())

    async def _leave(self, member: Member) -> None:
        self._left.append(member)
        start_ns = time.monotonic_ns()
        await member.channel.leave()
        at_ns = time.monotonic_ns()
        self.tell(
            tell="left",
            number=member.number,
            sent=member.sent,
            sent_ns=member.sent_ns,
            at_ns=at_ns,
            took_s=(at_ns - start_ns) / 1e9,
        )

    # -- traffic

    def _set_traffic(self, per_s: float) -> None:
        self._shouting = False
        if self._traffic is not None:
            self._traffic.cancel()
            self._traffic = None
        if per_s:
            self._traffic = self._loop.create_task(self._talk(per_s))

    async def _talk(self, per_s: float) -> None:
        """At random moments, each time a random peer; an order to stop never breaks off a message half sent."""
        while True:
            await asyncio.sleep(self._random.expovariate(per_s))
            if self._members:
                member = self._random.choice(list(self._members.values()))
                await asyncio.shield(self._loop.create_task(member.say(self._terms.size_bytes)))

    async def _shout(self) -> None:
        """As fast as `broadcast` lets us. Ends by itself, so that no message is broken off half sent."""
        self._shouts += 1
        while self._shouting:
            for member in list(self._members.values()):
                for _ in range(SHOUTED_AT_ONCE):
                    await member.say(self._terms.size_bytes)
            await asyncio.sleep(0)
        self._shouts -= 1
