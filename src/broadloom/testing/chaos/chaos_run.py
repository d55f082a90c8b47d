"""One trial under way: who lives, what they told, and everything that a scenario can make happen to them."""

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.chaos.pool import WorkerPool, WorkerTimeoutError
from broadloom.testing.chaos.processes import ForkedProcess
from broadloom.testing.checks.audit import DepartedPeer, PeerView, check_connected, find_convergence_problems

CONCURRENT_JOINS_MAX = 8
"""Newcomers under way at a time while a fabric is grown: on few cores, more would only wait for each other."""
STOP_POLL_S = 0.2
LOOPBACK = ("127.0.0.1",)


class PhaseListener(Protocol):
    """Where people read how far it is."""

    def phase(self, text: str) -> None: ...


@dataclass(slots=True)
class PeerRecord:
    """One peer, as far as the coordinator knows it."""

    number: int
    process: ForkedProcess
    peer_id: int = 0
    """Its id; 0 before it was connected."""
    connect_time_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    started_ns: int = 0
    is_leaving: bool = False
    """Told to leave."""


class ChaosRun:
    def __init__(self, config: ChaosConfig, listener: PhaseListener) -> None:
        self.config = config
        self.random = Random()
        self.pool = WorkerPool(self._on_report, self._on_process_death)
        self.listener = listener
        self.peers: dict[int, PeerRecord] = {}
        self.views: dict[int, PeerView] = {}
        self.departed: dict[int, DepartedPeer] = {}
        """By peer id."""
        self.kills_ns: list[int] = []
        self.problems: list[str] = []
        self.errors: list[str] = []
        self.metrics: dict[str, float] = {}
        self.killed = 0
        self.left = 0

    # -- told by processes

    def _on_report(self, process: ForkedProcess, report: dict[str, Any]) -> None:
        match report["tell"]:
            case "connected":
                peer = self.peers[report["number"]]
                peer.peer_id, peer.connect_time_s, peer.phases = report["view"][1], report["took_s"], report["phases"]
                self._on_view(process, report["view"])
            case "views":
                for view in report["views"]:
                    self._on_view(process, view)
            case "left":
                peer = self.peers[report["number"]]
                self.departed[peer.peer_id] = DepartedPeer(True, report["at_ns"], report["sent"], report["sent_ns"])
                self.left += 1
            case "broken":
                self.problems.append(f"promise {report['promise']}: {report['text']}")
            case "failed":
                self.problems.append(f"promise 5: peer {report['number']} could not connect: {report['text']}")
                del self.peers[report["number"]]
            case "fault":
                self.errors.append(f"process {process.number}: {report['text']}")

    def _on_view(self, process: ForkedProcess, row: list[Any]) -> None:
        """As `Member.view` tells it; nothing of those that are about to go."""
        number, peer, state, changed_ns, neighbors = row
        if not process.is_expected_to_exit and not self.peers[number].is_leaving:
            self.views[number] = PeerView(peer, state, tuple(neighbors), changed_ns)

    def _on_process_death(self, process: ForkedProcess) -> None:
        numbers = [known.number for known in self.peers.values() if known.process is process]
        peers_text = f" with peers {numbers[0]} to {numbers[-1]}" if numbers else ""
        self.errors.append(f"process {process.number}{peers_text} {process.exit_status}, and nobody had told it to")
        self._mark_dead([process])

    # -- who is there

    @property
    def members(self) -> dict[int, PeerView]:
        """Views of those that live and were not told to leave."""
        return {number: view for number, view in self.views.items() if not self.peers[number].process.is_paused}

    def _mark_dead(self, processes: Iterable[ForkedProcess]) -> None:
        """All their peers are dead."""
        at_ns = time.monotonic_ns()
        self.kills_ns.append(at_ns)
        for process in processes:
            for record in [each for each in self.peers.values() if each.process is process]:
                self.views.pop(record.number, None)
                if record.peer_id not in self.departed:
                    self.killed += 1
                    if record.peer_id:
                        self.departed[record.peer_id] = DepartedPeer(False, at_ns)

    # -- what a scenario can make happen

    def start(
        self,
        process: ForkedProcess,
        numbers: list[int],
        *,
        bootstrap: Iterable[str] = LOOPBACK,
        at_ns: int = 0,
        timed: bool = False,
    ) -> None:
        for number in numbers:
            self.peers[number] = PeerRecord(number, process, started_ns=at_ns or time.monotonic_ns())
        self.pool.send(process, do="start", numbers=numbers, portals=list(bootstrap), at_ns=at_ns, timed=timed)

    def connecting(self) -> list[int]:
        """Those that were started and are not connected yet."""
        return [each.number for each in self.peers.values() if not each.peer_id and each.process.exit_status is None]

    def grow(self, bootstrap: Iterable[str] = LOOPBACK) -> None:
        """All peers of the plan, a few at a time: as many as a quarter of those that are there."""
        bootstrap = list(bootstrap)
        waiting = [(self.process_of(number), number) for number in range(self.config.peers)]
        began = time.monotonic()
        while waiting or self.connecting():
            connected = sum(known.peer_id != 0 for known in self.peers.values())
            room = max(0, max(1, min(CONCURRENT_JOINS_MAX, connected // 4)) - len(self.connecting()))
            for process, number in waiting[:room]:
                self.start(process, [number], bootstrap=bootstrap)
            del waiting[:room]
            self.listener.phase(f"starting: {connected} of {self.config.peers} peers")
            self._wait_for_connect()
        self.metrics["started_s"] = time.monotonic() - began
        self.listener.phase("started; waiting for one regular fabric")
        self.metrics["grown_s"] = self.wait_until_converged(time.monotonic_ns())

    def _wait_for_connect(self) -> None:
        before = len(self.connecting())

        def find_problem() -> str | None:
            connecting = self.connecting()
            return f"peer {connecting[0]} is not connected yet" if len(connecting) >= before else None

        self.wait_until(find_problem, self.config.repair_timeout_s)

    def process_of(self, number: int) -> ForkedProcess:
        return self.pool.processes[number // self.config.peers_per_process]

    def set_traffic(self, per_s: float) -> None:
        """So many messages a second in all, from now on."""
        processes = [each for each in self.pool.responsive if self.peer_count(each)]
        count = sum(self.peer_count(each) for each in processes)
        for process in processes:
            self.pool.send(process, do="traffic", per_s=per_s * self.peer_count(process) / count)

    def send_at_full_speed(self) -> None:
        """All send as fast as they can, from now on."""
        for process in self.pool.responsive:
            self.pool.send(process, do="shout")

    def stop_traffic(self) -> None:
        """Until nobody sends any more."""
        self.set_traffic(0)
        deadline = time.monotonic() + self.config.repair_timeout_s
        while any(answer["is_shouting"] for answer in self.pool.request(self.pool.responsive, do="vitals")):
            if time.monotonic() > deadline:
                raise WorkerTimeoutError(
                    f"after {self.config.repair_timeout_s:g} s somebody still waits in `broadcast`"
                )
            self.run(STOP_POLL_S)

    def memory_mb(self) -> float:
        """Of the process that has most for itself."""
        replies = self.pool.request(self.pool.responsive, do="vitals")
        return max(float(answer["own_memory_mb"]) for answer in replies)

    def peer_count(self, process: ForkedProcess) -> int:
        return sum(self.peers[number].process is process for number in self.views)

    def kill(self, processes: list[ForkedProcess]) -> int:
        """Without warning, all at the same moment, which is returned."""
        at_ns = time.monotonic_ns()
        for process in processes:
            process.is_expected_to_exit = True
            process.signal(signal.SIGKILL)
        self._mark_dead(processes)
        return at_ns

    def pause(self, processes: list[ForkedProcess]) -> None:
        for process in processes:
            process.is_paused = True
            process.signal(signal.SIGSTOP)

    def resume(self, processes: list[ForkedProcess]) -> None:
        for process in processes:
            process.is_paused = False
            process.signal(signal.SIGCONT)

    def leave(self, number: int) -> None:
        peer = self.peers[number]
        peer.is_leaving = True
        self.views.pop(number, None)
        self.pool.send(peer.process, do="leave", numbers=[number])

    def leaving(self) -> list[int]:
        records = (each for each in self.peers.values() if each.is_leaving and each.process.exit_status is None)
        return [each.number for each in records if each.peer_id not in self.departed]

    # -- time

    def run(self, seconds: float) -> None:
        self.pool.run(seconds)
        self._raise_on_errors()

    def wait_until(self, find_problem: Callable[[], str | None], timeout_s: float) -> None:
        self.pool.wait_until(find_problem, timeout_s)
        self._raise_on_errors()

    def _raise_on_errors(self) -> None:
        """A process that ended by itself is a fault that nothing can be proved after."""
        if self.errors:
            raise WorkerTimeoutError("a process failed")

    def wait_until_converged(self, since_ns: int) -> float:
        """Wait for one regular fabric of all members; seconds from then to the last change that made it so."""
        return self.wait_and_measure(self.find_convergence_problems, since_ns)

    def wait_until_merged(self, since_ns: int) -> float:
        """The same for one fabric, be it regular or not."""
        return self.wait_and_measure(lambda: check_connected(self.members), since_ns)

    def wait_and_measure(self, find_problem: Callable[[], str | None], since_ns: int) -> float:
        self.wait_until(find_problem, self.config.repair_timeout_s)
        return max(0.0, (max(view.changed_ns for view in self.members.values()) - since_ns) / 1e9)

    def find_convergence_problems(self) -> str | None:
        if joiners := self.connecting():
            return f"peer {joiners[0]} is not connected yet"
        if leavers := self.leaving():
            return f"peer {leavers[0]} has not left yet"
        return find_convergence_problems(self.members, self.config.degree)
