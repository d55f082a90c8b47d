"""Simulated histories of mailboxes with kills, partitions, joins and leaves, and what must hold at their end.

As a program: `python -m tests.mailboxes.histories SEEDS`.
"""

from dataclasses import dataclass

from broadloom.mailboxes import ChangeKind, Overruled
from broadloom.mailboxes.classes import CLASSES
from broadloom.mailboxes.errors import MailboxError
from broadloom.mailboxes.letterbox import Letterbox
from broadloom.mailboxes.limits import MailboxSettings
from broadloom.mailboxes.own_mailboxes import PutResult
from broadloom.mailboxes.record import Record
from broadloom.mailboxes.table import LASTING
from broadloom.wire import Address
from tests.histories import SimHistory, main, run_history
from tests.mailboxes.sim_runtime import Disk, SimProgram

KEEPERS = 3
PROGRAMS = 4
OWNERS = ("anna", "ben", "carl")
"""Fewer than programs: some of them write to the same mailboxes."""
NAMES = ("plan", "state", "here")
CLASS_OF = {"plan": 10, "state": 8, "here": 8}
STEPS = 25
SETTLE_S = 120.0
BOOTSTRAP = tuple(Address(f"keeper{number}", 0) for number in range(KEEPERS))
"""Keepers start again on the same hosts, so that every part of the channel finds the others."""
SETTINGS = MailboxSettings(digest_interval_s=3.0)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A held value that enough keepers have acknowledged."""

    key: tuple[str, str]
    revision: int
    writer: int
    data: bytes


class History(SimHistory):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.random = self.sim.random
        self.disks = [Disk() for _ in range(KEEPERS)]
        self.keepers: list[SimProgram | None] = [None] * KEEPERS
        self.programs: list[SimProgram] = []
        self.acknowledged: list[Acknowledged] = []
        self.put_count = 0
        self._is_split = False

    def run(self) -> None:
        for number in range(KEEPERS):
            self._start_keeper(number)
        for _ in range(PROGRAMS):
            self._start_program()
        for _ in range(STEPS):
            getattr(self, f"_step_{self.random.choice(_STEPS)}")()
            self.sim.run_for(self.random.expovariate(0.6))
        self._settle()
        self._check()

    # -- steps

    def _start_keeper(self, number: int) -> None:
        node = self.sim.add_peer(host=f"keeper{number}", bootstrap=BOOTSTRAP)
        self.keepers[number] = SimProgram(
            self.sim, f"keeper {number}", store=self.disks[number], settings=SETTINGS, node=node
        )
        self._run_until_connected(self.keepers[number])

    def _start_program(self) -> None:
        node = self.sim.add_peer(bootstrap=BOOTSTRAP)
        program = SimProgram(self.sim, self.random.choice(OWNERS), settings=SETTINGS, node=node)
        self.programs.append(program)
        self._run_until_connected(program)

    def _run_until_connected(self, program: SimProgram | None) -> None:
        assert program is not None
        self.sim.run_until(lambda: program.is_synced, 5.0)

    @property
    def _alive(self) -> list[SimProgram]:
        return [each for each in self.programs if each.node.is_alive and each.is_synced and not each.node.is_paused]

    def _step_put(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self._put_one()

    def _put_one(self) -> None:
        if not self._alive:
            return
        program, name = self.random.choice(self._alive), self.random.choice(NAMES)
        own = program.office.own
        if own.get(name) is None:
            copies = self.random.choice((1, 2)) if CLASSES[CLASS_OF[name]].held else 1
            own.bind(name, CLASSES[CLASS_OF[name]], while_here=name == "here", copies=copies, letterbox=Letterbox())
        self.put_count += 1
        data = b"%s %d" % (name.encode(), self.put_count)

        def on_done(result: PutResult) -> None:
            if isinstance(result, int):
                self.note(f"{program.node} put {data!r}: {result}")
                if name == "plan":
                    key = program.office.owner, name
                    self.counts["acknowledged"] += 1
                    self.acknowledged.append(Acknowledged(key, result, program.peer_id, data))

        try:
            own.put(name, data, on_done)
        except MailboxError as problem:
            self.note(f"{program.node} could not put: {problem}")

    def _step_unbind(self) -> None:
        bound = [(each, name) for each in self._alive for name in NAMES if each.office.own.get(name) is not None]
        if bound:
            program, name = self.random.choice(bound)
            program.office.own.unbind(name)
            self.note(f"{program.node} unbinds {name}")

    def _step_kill_keeper(self) -> None:
        number = self.random.randrange(KEEPERS)
        keeper = self.keepers[number]
        if keeper is not None:
            self.note(f"keeper {number} is killed")
            keeper.kill()
            self.keepers[number] = None

    def _step_restart_keeper(self) -> None:
        missing = [number for number in range(KEEPERS) if self.keepers[number] is None]
        if missing:
            number = self.random.choice(missing)
            self.note(f"keeper {number} starts again")
            self._start_keeper(number)

    def _step_kill(self) -> None:
        if len(self._alive) > 1:
            program = self.random.choice(self._alive)
            self.note(f"{program.node} ({program.office.owner}) is killed")
            program.kill()

    def _step_blackout(self) -> None:
        """Everyone is killed at the same time. Only what is on the disks of the keepers is left."""
        self.note("everyone is killed")
        for program in self._everyone:
            program.kill()
        self.keepers = [None] * KEEPERS
        self._step_heal()
        for number in range(KEEPERS):
            self._start_keeper(number)
        self._start_program()

    def _step_leave(self) -> None:
        if len(self._alive) > 1:
            program = self.random.choice(self._alive)
            program.office.own.unbind_all()
            program.node.leave()

    def _step_join(self) -> None:
        if len(self._alive) < 2 * PROGRAMS:
            self._start_program()

    def _step_split(self) -> None:
        if not self._is_split:
            self._is_split = True
            self.note("partition")
            self.sim.partition(0.5)
            if self.random.random() < 0.7:  # long enough for both sides to notice
                self.sim.run_for(self.random.uniform(2.0, 14.0))

    def _step_heal(self) -> None:
        if self._is_split:
            self._is_split = False
            self.note("heals")
            self.sim.heal()

    def _step_pause(self) -> None:
        if len(self._alive) > 2:
            program = self.random.choice(self._alive)
            program.node.pause()
            self.sim.run_for(self.random.uniform(0.1, 9.0))
            program.node.resume()

    # -- the end

    def _settle(self) -> None:
        self._step_heal()
        for number in range(KEEPERS):
            if self.keepers[number] is None:
                self._start_keeper(number)
        if not self.sim.run_until(self._is_settled, SETTLE_S):
            tables = {
                f"{each.node} {each.office.owner}": sorted(
                    (record.key, record.revision, record.writer & 0xFFFF) for record in each.office.table.seen()
                )
                for each in self._everyone
            }
            self.fail(f"the tables are not equal after {SETTLE_S:g} s: {tables}")
        self.sim.run_for(15.0)
        if not self._is_settled():
            self.fail("the tables were equal, and are no longer")

    @property
    def _everyone(self) -> list[SimProgram]:
        found = [*self.keepers, *self.programs]
        return [each for each in found if each is not None and each.node.is_alive]

    def _is_settled(self) -> bool:
        everyone = self._everyone
        return (
            all(each.is_synced and len(each.peers()) == len(everyone) - 1 for each in everyone)
            and len({each.office.table.digest for each in everyone}) == 1
        )

    def _check(self) -> None:
        everyone = self._everyone
        final: dict[tuple[str, str], Record] = {record.key: record for record in everyone[0].office.table.seen()}
        for value in self.acknowledged:
            known = max(_rank(each, value.key) for each in everyone)
            if known < (value.revision, value.writer):
                self.fail(f"lost, although keepers have acknowledged it: {value}")
            if known == (value.revision, value.writer) and final[value.key].data != value.data:
                self.fail(f"replaced by other data of the same revision: {value}")
        alive = {each.peer_id for each in everyone}
        for record in final.values():
            if record.is_while_here and record.writer not in alive:
                self.fail(f"present without its owner: {record}")
        for program in everyone:
            self._check_changes(program, final)
            self._check_overruled(program)

    def _check_changes(self, program: SimProgram, final: dict[tuple[str, str], Record]) -> None:
        """A watcher sees each revision once, in order, and the last value of each mailbox."""
        last: dict[tuple[str, str, int], tuple[int, int]] = {}
        present: dict[tuple[str, str], bytes] = {}
        for change in program.changes:
            value = change.value
            key, rank = (value.owner, value.name), (value.revision, int(value.writer))
            if change.kind is ChangeKind.GONE:
                present.pop(key, None)
                continue
            if change.kind is ChangeKind.PUT:
                # Each program that has bound a name to its presence has a value of its own.
                series = (*key, int(value.writer) if value.name == "here" else 0)
                if rank <= last.get(series, (0, 0)):
                    self.fail(f"{program.node} sees {key} {rank} after {last[series]}")
                last[series] = rank
            elif value.name != "here":
                self.fail(f"{program.node} sees {key} {rank} a second time")
            present[key] = value.data
        expected = {key: record.data for key, record in final.items() if record.is_valid}
        if present != expected:
            self.fail(f"{program.node} has seen {present}, not {expected}")

    def _check_overruled(self, program: SimProgram) -> None:
        """Who has lost against another program of the same owner was notified."""
        last: dict[tuple[str, str], int] = {}
        lost = 0
        for change in program.changes:
            key = change.value.owner, change.value.name
            if change.kind is ChangeKind.GONE:
                last.pop(key, None)
            else:
                is_other = last.get(key) == program.peer_id != change.value.writer
                lost += is_other and change.kind is ChangeKind.PUT
                last[key] = change.value.writer
        notified = [each for each in program.events if isinstance(each, Overruled) and each.value is not None]
        if len(notified) < lost:
            self.fail(f"{program.node} was overruled {lost} times, and notified of {notified}")


_STEPS = (
    *("put",) * 8, "unbind", "kill_keeper", "kill_keeper", "restart_keeper", "restart_keeper",
    "kill", "leave", "join", "join", "split", "split", "heal", "heal", "pause", "blackout",
)  # fmt: skip


def _rank(program: SimProgram, key: tuple[str, str]) -> tuple[int, int]:
    """Of the lasting record, also of one that says that the mailbox was unbound."""
    entry = program.office.table._entries.get((*key, LASTING))
    return (entry.record.revision, entry.record.writer) if entry is not None else (0, 0)


def run_seed(seed: int) -> History:
    """Raises `HistoryError`."""
    return run_history(History(seed))


if __name__ == "__main__":
    main(run_seed)
