"""What happens to the peers of a trial: one function a scenario, each told in the order in which it happens.

All begin with peers that find each other, and end with the audit of `closing.py`, which is not repeated here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weft.trial.plan import Plan, WrongUse

if TYPE_CHECKING:
    from weft.trial.namespaces import Hosts
    from weft.trial.trial import Trial

BEFORE_S = 2.0
"""Traffic before anything happens."""
AFTER_S = 1.0
"""Traffic after all is well again."""
STORM_LEAD_S = 1.5
"""Everyone must have heard the word before the moment comes."""
MEMORY_LOOKS = 30
"""So often memory is looked at under load; what it was after a third of the time is what it may stay at."""
MEMORY_GROWTH_MAX = 1.1
MEMORY_JUDGED_S = 600.0
"""In a shorter time, what is retained may still grow to its limit."""
DYING_SHARE = 0.5
"""Of those who go in a churn: killed; the others leave in good order."""


def _grow_and_talk(trial: "Trial") -> None:
    """What comes before the trouble."""
    trial.grow()
    trial.teller.phase("traffic")
    trial.traffic(trial.plan.rate_per_s)
    trial.run(BEFORE_S)


def kill(trial: "Trial") -> None:
    plan = trial.plan
    _grow_and_talk(trial)
    victims = trial.random.sample(trial.crew.processes, plan.processes_hit)
    trial.teller.phase(f"killing {plan.hit} peers in {len(victims)} processes")
    killed_ns = trial.kill(victims)
    trial.teller.phase("repairing")
    trial.figures["whole_again_s"] = trial.whole(killed_ns)
    trial.run(AFTER_S)


def freeze(trial: "Trial") -> None:
    plan = trial.plan
    _grow_and_talk(trial)
    victims = trial.random.sample(trial.crew.processes, plan.processes_hit)
    trial.teller.phase(f"freezing {plan.hit} peers for {plan.seconds:g} s")
    frozen_ns, began = time.monotonic_ns(), time.monotonic()
    trial.freeze(victims)
    trial.figures["whole_without_s"] = trial.whole(frozen_ns)
    trial.run(max(0.0, plan.seconds - (time.monotonic() - began)))
    trial.teller.phase("they go on; repairing")
    trial.thaw(victims)
    trial.figures["whole_again_s"] = trial.whole(time.monotonic_ns())
    trial.run(AFTER_S)


def join_storm(trial: "Trial") -> None:
    plan = trial.plan
    at_ns = time.monotonic_ns() + int(STORM_LEAD_S * 1e9)
    trial.teller.phase(f"{plan.peers} peers start at the same instant")
    for process in trial.crew.processes:
        first = process.number * plan.per_process
        trial.start(process, list(range(first, first + plan.per_process)), at_ns=at_ns)
    trial.figures["woven_s"] = trial.whole(at_ns)
    trial.teller.phase("traffic")
    trial.traffic(plan.rate_per_s)
    trial.run(BEFORE_S)


def churn(trial: "Trial") -> None:
    plan = trial.plan
    trial.grow()
    trial.traffic(plan.rate_per_s)
    end = time.monotonic() + plan.seconds
    spare = trial.crew.processes[plan.peers :]
    arrivals = 0
    while (left_s := end - time.monotonic()) > 0:
        trial.teller.phase(f"churn: {arrivals} came, {trial.left} left, {trial.killed} died; {left_s:.0f} s to go")
        trial.run(min(left_s, trial.random.expovariate(2 * plan.per_min / 60)))
        members = list(trial.members)
        if trial.random.random() < 0.5:
            if arrivals < len(spare):
                trial.start(spare[arrivals], [plan.peers + arrivals])
                arrivals += 1
        elif len(members) > max(2, plan.peers // 2):
            number = trial.random.choice(members)
            if trial.random.random() < DYING_SHARE:
                trial.kill([trial.known[number].process])
            else:
                trial.leave(number)
            trial.traffic(plan.rate_per_s)
    trial.teller.phase("repairing")
    trial.figures["arrivals"] = arrivals
    trial.figures["whole_again_s"] = trial.whole(time.monotonic_ns())
    trial.run(AFTER_S)


def join(trial: "Trial") -> None:
    plan = trial.plan
    trial.grow()
    trial.traffic(plan.rate_per_s)
    for count in range(plan.newcomers):
        trial.teller.phase(f"newcomer {count + 1} of {plan.newcomers}")
        trial.start(trial.crew.processes[plan.processes + count], [plan.peers + count], timed=True)
        trial.whole(0)
    trial.run(AFTER_S)


def partition(trial: "Trial", hosts: "Hosts") -> None:
    from weft.trial.namespaces import HOSTS

    plan = trial.plan
    trial.grow(portals=HOSTS[:1])
    trial.teller.phase("traffic")
    trial.traffic(plan.rate_per_s)
    trial.run(BEFORE_S)
    trial.teller.phase(f"no connection between the halves for {plan.seconds:g} s")
    hosts.pull_the_plug()
    trial.run(plan.seconds)
    hosts.plug_in()
    trial.teller.phase("connected again; merging")
    healed_ns = time.monotonic_ns()
    trial.figures["one_fabric_s"] = trial.one(healed_ns)
    trial.figures["whole_again_s"] = trial.whole(healed_ns)
    trial.run(AFTER_S)


def load(trial: "Trial") -> None:
    plan = trial.plan
    trial.grow()
    trial.shout()
    began, end = time.monotonic(), time.monotonic() + plan.seconds
    memory_mb: list[float] = []
    while (left_s := end - time.monotonic()) > 0:
        trial.teller.phase(f"everyone sends as fast as it can; {left_s:.0f} s to go")
        trial.run(min(left_s, plan.seconds / MEMORY_LOOKS))
        memory_mb.append(trial.memory_mb())
    trial.hush()
    trial.figures["load_s"] = time.monotonic() - began
    settled, last = memory_mb[len(memory_mb) // 3], memory_mb[-1]
    trial.figures["memory_settled_mb"], trial.figures["memory_last_mb"] = settled, last
    if plan.seconds >= MEMORY_JUDGED_S and last > settled * MEMORY_GROWTH_MAX:
        trial.problems.append(f"promise 7: memory grew from {settled:.0f} to {last:.0f} MB in the largest process")


@dataclass(frozen=True, slots=True)
class Scenario:
    about: str
    play: Callable[..., None]
    default: Plan
    namespaces: bool = False


SCENARIOS = {
    "kill": Scenario("processes are killed without warning, all at once", kill, Plan(peers=50, hit=10)),
    "churn": Scenario("peers come, leave and die for a minute", churn, Plan(peers=40, seconds=60, per_min=40)),
    "freeze": Scenario("processes stand still, and go on later", freeze, Plan(peers=40, hit=8, seconds=15)),
    "load": Scenario("everyone sends as fast as it can", load, Plan(peers=8, seconds=30)),
    "join-storm": Scenario("all start at the same instant, through one portal", join_storm, Plan(peers=50)),
    "join": Scenario("how long newcomers take, one after the other", join, Plan(peers=50, newcomers=20)),
    "partition": Scenario(
        "two halves cannot reach each other for a while (root only)", partition, Plan(peers=40, seconds=20), True
    ),
}


def spare_processes(name: str, plan: Plan) -> int:
    """Those for peers that come later: all processes are made at the start."""
    if name == "churn":
        if plan.processes != plan.peers:
            raise WrongUse("churn: peers die one by one, so each needs a process of its own")
        return round(plan.per_min / 60 * plan.seconds * 1.5) + 2
    return plan.newcomers


def merged(default: Plan, given: dict[str, object]) -> Plan:
    """A scenario's own numbers, where nothing else was asked for."""
    chosen = {name: value for name, value in given.items() if value not in (0, None, "")}
    return replace(default, **chosen).checked()  # type: ignore[arg-type]
