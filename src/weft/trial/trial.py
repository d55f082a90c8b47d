"""One trial under way: who lives, what they told, and everything that a scenario can make happen to them."""

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from weft.trial.audit import Gone, View, apart, unrest
from weft.trial.crew import Crew, Expired
from weft.trial.plan import Plan
from weft.trial.processes import Process

AT_ONCE_MAX = 8
"""Newcomers under way at a time while a fabric is grown: on few cores, more would only wait for each other."""
HUSH_LOOK_S = 0.2
LOOPBACK = ("127.0.0.1",)


class Teller(Protocol):
    """Where people read how far it is."""

    def phase(self, text: str) -> None: ...


@dataclass(slots=True)
class Known:
    """One peer, as far as the coordinator knows it."""

    number: int
    process: Process
    peer: int = 0
    """Its id; 0 before it was connected."""
    took_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    started_ns: int = 0
    going: bool = False
    """Told to leave."""


class Trial:
    def __init__(self, plan: Plan, teller: Teller) -> None:
        self.plan = plan
        self.random = Random()
        self.crew = Crew(self._told, self._died)
        self.teller = teller
        self.known: dict[int, Known] = {}
        self.views: dict[int, View] = {}
        self.gone: dict[int, Gone] = {}
        """By peer id."""
        self.deaths_ns: list[int] = []
        self.problems: list[str] = []
        self.faults: list[str] = []
        self.figures: dict[str, float] = {}
        self.killed = 0
        self.left = 0

    # -- told by processes

    def _told(self, process: Process, told: dict[str, Any]) -> None:
        match told["tell"]:
            case "connected":
                known = self.known[told["number"]]
                known.peer, known.took_s, known.phases = told["view"][1], told["took_s"], told["phases"]
                self._seen(process, told["view"])
            case "views":
                for view in told["views"]:
                    self._seen(process, view)
            case "left":
                known = self.known[told["number"]]
                self.gone[known.peer] = Gone(True, told["at_ns"], told["sent"], told["sent_ns"])
                self.left += 1
            case "broken":
                self.problems.append(f"promise {told['promise']}: {told['text']}")
            case "failed":
                self.problems.append(f"promise 5: peer {told['number']} could not connect: {told['text']}")
                del self.known[told["number"]]
            case "fault":
                self.faults.append(f"process {process.number}: {told['text']}")

    def _seen(self, process: Process, told: list[Any]) -> None:
        """As `Member.view` tells it; nothing of those that are about to go."""
        number, peer, state, changed_ns, neighbours = told
        if not process.expected_to_end and not self.known[number].going:
            self.views[number] = View(peer, state, tuple(neighbours), changed_ns)

    def _died(self, process: Process) -> None:
        numbers = [known.number for known in self.known.values() if known.process is process]
        who = f" with peers {numbers[0]} to {numbers[-1]}" if numbers else ""
        self.faults.append(f"process {process.number}{who} {process.ended}, and nobody had told it to")
        self._forget([process])

    # -- who is there

    @property
    def members(self) -> dict[int, View]:
        """Views of those that live and were not told to leave."""
        return {number: view for number, view in self.views.items() if not self.known[number].process.frozen}

    def _forget(self, processes: Iterable[Process]) -> None:
        """All their peers are dead."""
        at_ns = time.monotonic_ns()
        self.deaths_ns.append(at_ns)
        for process in processes:
            for known in [each for each in self.known.values() if each.process is process]:
                self.views.pop(known.number, None)
                if known.peer not in self.gone:
                    self.killed += 1
                    if known.peer:
                        self.gone[known.peer] = Gone(False, at_ns)

    # -- what a scenario can make happen

    def start(
        self,
        process: Process,
        numbers: list[int],
        *,
        portals: Iterable[str] = LOOPBACK,
        at_ns: int = 0,
        timed: bool = False,
    ) -> None:
        for number in numbers:
            self.known[number] = Known(number, process, started_ns=at_ns or time.monotonic_ns())
        self.crew.order(process, do="start", numbers=numbers, portals=list(portals), at_ns=at_ns, timed=timed)

    def connecting(self) -> list[int]:
        """Those that were started and are not connected yet."""
        return [each.number for each in self.known.values() if not each.peer and each.process.ended is None]

    def grow(self, portals: Iterable[str] = LOOPBACK) -> None:
        """All peers of the plan, a few at a time: as many as a quarter of those that are there."""
        portals = list(portals)
        waiting = [(self.process_of(number), number) for number in range(self.plan.peers)]
        began = time.monotonic()
        while waiting or self.connecting():
            connected = sum(known.peer != 0 for known in self.known.values())
            room = max(0, max(1, min(AT_ONCE_MAX, connected // 4)) - len(self.connecting()))
            for process, number in waiting[:room]:
                self.start(process, [number], portals=portals)
            del waiting[:room]
            self.teller.phase(f"starting: {connected} of {self.plan.peers} peers")
            self._one_more_connected()
        self.figures["started_s"] = time.monotonic() - began
        self.teller.phase("started; waiting for one regular fabric")
        self.figures["grown_s"] = self.whole(time.monotonic_ns())

    def _one_more_connected(self) -> None:
        before = len(self.connecting())

        def lacking() -> str | None:
            connecting = self.connecting()
            return f"peer {connecting[0]} is not connected yet" if len(connecting) >= before else None

        self.until(lacking, self.plan.within_s)

    def process_of(self, number: int) -> Process:
        return self.crew.processes[number // self.plan.per_process]

    def traffic(self, per_s: float) -> None:
        """So many messages a second in all, from now on."""
        processes = [each for each in self.crew.living if self.peers_of(each)]
        count = sum(self.peers_of(each) for each in processes)
        for process in processes:
            self.crew.order(process, do="traffic", per_s=per_s * self.peers_of(process) / count)

    def shout(self) -> None:
        """All send as fast as they can, from now on."""
        for process in self.crew.living:
            self.crew.order(process, do="shout")

    def hush(self) -> None:
        """Until nobody sends any more."""
        self.traffic(0)
        deadline = time.monotonic() + self.plan.within_s
        while any(answer["is_shouting"] for answer in self.crew.ask(self.crew.living, do="vitals")):
            if time.monotonic() > deadline:
                raise Expired(f"after {self.plan.within_s:g} s somebody still waits in `broadcast`")
            self.run(HUSH_LOOK_S)

    def memory_mb(self) -> float:
        """Of the process that has most for itself."""
        answers = self.crew.ask(self.crew.living, do="vitals")
        return max(float(answer["own_memory_mb"]) for answer in answers)

    def peers_of(self, process: Process) -> int:
        return sum(self.known[number].process is process for number in self.views)

    def kill(self, processes: list[Process]) -> int:
        """Without warning, all at the same moment, which is returned."""
        at_ns = time.monotonic_ns()
        for process in processes:
            process.expected_to_end = True
            process.signal(signal.SIGKILL)
        self._forget(processes)
        return at_ns

    def freeze(self, processes: list[Process]) -> None:
        for process in processes:
            process.frozen = True
            process.signal(signal.SIGSTOP)

    def thaw(self, processes: list[Process]) -> None:
        for process in processes:
            process.frozen = False
            process.signal(signal.SIGCONT)

    def leave(self, number: int) -> None:
        known = self.known[number]
        known.going = True
        self.views.pop(number, None)
        self.crew.order(known.process, do="leave", numbers=[number])

    def leaving(self) -> list[int]:
        going = (each for each in self.known.values() if each.going and each.process.ended is None)
        return [each.number for each in going if each.peer not in self.gone]

    # -- time

    def run(self, seconds: float) -> None:
        self.crew.run(seconds)
        self._watch_out()

    def until(self, lacking: Callable[[], str | None], within_s: float) -> None:
        self.crew.until(lacking, within_s)
        self._watch_out()

    def _watch_out(self) -> None:
        """A process that ended by itself is a fault that nothing can be proved after."""
        if self.faults:
            raise Expired("a process failed")

    def whole(self, since_ns: int) -> float:
        """Wait for one regular fabric of all members; seconds from then to the last change that made it so."""
        return self.settled(self.unrest, since_ns)

    def one(self, since_ns: int) -> float:
        """The same for one fabric, be it regular or not."""
        return self.settled(lambda: apart(self.members), since_ns)

    def settled(self, lacking: Callable[[], str | None], since_ns: int) -> float:
        self.until(lacking, self.plan.within_s)
        return max(0.0, (max(view.changed_ns for view in self.members.values()) - since_ns) / 1e9)

    def unrest(self) -> str | None:
        if newcomers := self.connecting():
            return f"peer {newcomers[0]} is not connected yet"
        if leavers := self.leaving():
            return f"peer {leavers[0]} has not left yet"
        return unrest(self.members, self.plan.degree)
