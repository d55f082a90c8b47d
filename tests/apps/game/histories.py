"""Random histories of a game in the simulator, with kills, freezes, partitions, leaves and joins: what must hold.

After rest: all members have the same state; each role has exactly one actor, which is a member; a player that is there
plays its role itself; and every legal action of a member that stayed is in the history of all. The inputs of each
member, replayed, give the same state.

As a program: `python -m tests.apps.game.histories SEEDS`. Even seeds are games in free order.
"""

from random import Random

from broadloom.apps.game import Diverged, Game, Phase
from broadloom.apps.game.entry import Kind, entry_of
from broadloom.apps.game.timeline import Timeline
from broadloom.testing.sim.simulation import TapeFactory
from tests.apps.game.sim_runtime import SEED, FreeRelay, Relay, SimGame
from tests.histories import SimHistory, main, run_history

REST_S = 120.0
KEPT_FEW = 20
NAMES = "Anna", "Ben", "Carla", "Dora", "Emil"


class History(SimHistory):
    def __init__(
        self,
        seed: int,
        *,
        is_free: bool | None = None,
        game: Game | None = None,
        tape_factory: TapeFactory | None = None,
    ) -> None:
        super().__init__(seed, tape_factory=tape_factory)
        self.random = Random(seed)
        self.game = game or (FreeRelay() if (seed % 2 == 0 if is_free is None else is_free) else Relay())
        self.kept_count = KEPT_FEW if self.random.random() < 0.3 else 4096
        """Few entries: newcomers and those that were away need the state of others."""
        self.programs: list[SimGame] = []
        for name in NAMES:
            self.join(name)

    @property
    def is_complete(self) -> bool:
        """Whether nobody has forgotten anything."""
        return self.kept_count > KEPT_FEW

    @property
    def alive(self) -> list[SimGame]:
        return [each for each in self.programs if each.node.is_connected]

    def join(self, name: str) -> None:
        node = self.sim.add_peer()
        if self.sim.run_until(lambda: node.is_connected, 60.0):
            roles, number = self.game.seats(), NAMES.index(name)
            role = roles[number] if number < len(roles) else ""
            self.programs.append(SimGame(node, self.game, name, role, self.kept_count))

    # -- what happens

    def act(self) -> None:
        players = [each for each in self.alive if not each.node.is_paused and each.participant.role]
        if not players:
            return
        program = self.random.choice(players)
        participant = program.participant
        if participant.table.phase is not Phase.RUNNING:
            participant.submit(participant.new_entry(Kind.START))
        else:
            participant.submit(
                participant.new_entry(Kind.ACT, participant.role or "", "run", {"x": len(program.settled)})
            )

    def fault(self) -> None:
        kind = self.random.choice(["kill", "kill", "kill sequencer", "leave", "join", "pause", "partition", "miss"])
        self.counts[kind] += 1
        targets = [each for each in self.alive if not each.node.is_paused]
        if kind == "kill sequencer":
            leads = {each.participant._lead() for each in targets}
            targets = [each for each in targets if each.peer_id in leads] or targets
        match kind:
            case "kill" | "kill sequencer" if len(self.alive) > 3 and targets:
                self.random.choice(targets).node.kill(host=self.random.random() < 0.2)
            case "leave" if len(self.alive) > 3 and targets:
                self.leave(self.random.choice(targets))
            case "pause" if len(targets) > 2:
                node = self.random.choice(targets).node
                node.pause()
                self.run_for(self.random.choice([1.0, 6.0, 15.0]))
                node.resume()
            case "miss" if targets:
                self.random.choice(targets).missing_count = self.random.randrange(1, 8)
            case "partition":
                self.sim.partition(self.random.random() / 2)
                self.run_for(self.random.choice([1.0, 8.0, 20.0]))
                self.sim.heal()
            case _:
                self.join_missing()

    def leave(self, program: SimGame) -> None:
        program.participant.close()
        if program.order is not None:
            program.order.replica.close()
        program.node.leave()

    def join_missing(self) -> None:
        missing = [name for name in NAMES if name not in {each.participant.seating.name for each in self.alive}]
        if missing:
            self.join(self.random.choice(missing))

    def run_for(self, seconds: float) -> None:
        end = self.sim.clock.now + seconds
        while self.sim.clock.now < end:
            self.sim.run_for(self.random.expovariate(4.0))
            self.act()

    # -- what must hold

    def problem(self) -> str:
        """Why the game is not at rest; empty if it is."""
        programs = self.alive
        if not all(each.participant.is_ready for each in programs):
            return "a member has no state"
        hashes = {each.participant.table.hash() for each in programs}
        if len(hashes) > 1:
            return f"{len(hashes)} different states"
        table, members = programs[0].participant.table, {each.peer_id: each for each in programs}
        names = {each.participant.seating.name: each for each in programs if each.participant.seating.wanted}
        for program in programs:
            wanted = program.participant.seating.wanted
            if wanted and table.seats[wanted].name != program.participant.seating.name:
                return f"{program.participant.seating.name} does not have {wanted}"
        for role, seat in table.seats.items():
            if table.phase is Phase.RUNNING and seat.actor not in members:
                return f"nobody acts for {role}"
            if seat.name in names and seat.actor != names[seat.name].peer_id:
                return f"{seat.name} is back, but does not act for {role}"
        return ""

    def check(self) -> None:
        if not self.sim.run_until(lambda: not self.problem(), REST_S):
            self.fail(f"not at rest after {REST_S:g} s: {self.problem()}")
        final = self.alive[0].participant.timeline
        keys = {(each.author, each.number): each for each in final.entries}
        for program in self.alive:
            for number, problem in program.settled.items():
                found = keys.get((program.peer_id, number))
                if not problem and found is None and self.is_complete:
                    self.fail(f"entry {number} of {program.node} is lost")
            replayed = Timeline(self.game, SEED)
            for kind, value in program.inputs:
                match kind:
                    case "entry":
                        replayed.insert(entry_of(value[0], value[1:]))
                    case "rewound":
                        replayed.truncate(value)
                    case _:
                        replayed.restore(value)
            if replayed.tip.hash() != program.participant.table.hash():
                self.fail(f"the replay of {program.node} gives another state")
            for change in program.changes:
                self.counts[type(change).__name__] += 1
                if isinstance(change, Diverged) and self.is_complete:
                    self.fail(f"{program.node} had another state: {change.reason}")

    def run(self, rounds: int = 6) -> None:
        self.run_for(4.0)
        for _ in range(rounds):
            self.fault()
            self.run_for(self.random.choice([0.5, 3.0, 6.0]))
        while self.random.random() < 0.7:
            self.join_missing()
        self.run_for(3.0)
        self.check()


def run_seed(seed: int) -> History:
    """Raises `HistoryError`."""
    return run_history(History(seed))


if __name__ == "__main__":
    main(run_seed)
