"""The measurements: who speaks, how fast, and what else happens meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.channel.large import PART_BYTES
from weft.trial.bench.figures import Figures, figures_of
from weft.trial.bench.machine import Meter
from weft.trial.bench.plan import NEWCOMERS

if TYPE_CHECKING:
    from weft.trial.bench.plan import Setting
    from weft.trial.bench.stage import Stage

WARM_EACH = 20
"""Before anything is measured everybody says so many: links, trees and Python itself are warm then."""
WARM_BYTES = 256 << 10
"""But not more than this each."""
WARM_S = 10.0
LATE_S = 20.0
"""How much longer than it may speak somebody may need to say that it has spoken."""
BETWEEN_S = 0.1
"""From one newcomer to the next."""
JOIN_S = 300.0
"""The traffic for newcomers ends by then in any case."""


@dataclass(frozen=True, slots=True)
class Measure:
    about: str
    play: "Callable[[Stage, Setting], None]"
    """Until all have spoken."""
    timed: bool = False
    """Whether the way of each message is timed."""


def measured(name: str, stage: "Stage", setting: "Setting", network_of: int) -> Figures:
    """One of them, from a fabric at rest to one at rest."""
    measure, crew = MEASURES[name], stage.crew
    crew.ask(crew.living, do="begin", timed=measure.timed)
    before = set(stage.known)
    meter = Meter([process.pid for process in crew.living], network_of)
    measure.play(stage, setting)
    stage.drain()
    cost = meter.read()
    reports = crew.ask(crew.living, do="report")
    messages = sum(spoken.count for spoken in stage.spoken.values())
    first_ns = min(spoken.first_ns for spoken in stage.spoken.values())
    found = figures_of(reports, first_ns, messages, setting.size_bytes, cost)
    newcomers = [known for number, known in stage.known.items() if number not in before]
    found.connect_ms = [round(known.took_s * 1000, 1) for known in newcomers] or None
    for peer in [peer for report in reports for peer in report["peers"] if peer["missed"]]:
        parts = "messages" if setting.size_bytes <= PART_BYTES else f"parts of {PART_BYTES >> 10} KiB"
        stage.problems.append(
            f"{name}: peer {peer['number']} did not keep up, and was told that it missed {peer['missed']:,} {parts}"
        )
    if not newcomers and not stage.problems and found.deliveries != messages * (len(before) - 1):
        stage.problems.append(f"{name}: {found.deliveries:,} deliveries of {messages:,} messages: not each once")
    return found


def warm_up(stage: "Stage", setting: "Setting") -> None:
    stage.teller.phase("warming up")
    _all_speak(stage, max(1, min(WARM_EACH, WARM_BYTES // setting.size_bytes)), WARM_S, setting)
    stage.drain()


def _all_speak(stage: "Stage", each: int, seconds: float, setting: "Setting") -> None:
    stage.speak(list(range(setting.peers)), each, seconds)
    stage.until_spoken(seconds + LATE_S)


def _throughput(stage: "Stage", setting: "Setting") -> None:
    stage.speak([0], setting.messages, setting.seconds)
    stage.until_spoken(setting.seconds + LATE_S)


def _latency(stage: "Stage", setting: "Setting") -> None:
    stage.speak([0], max(1, int(setting.rate_per_s * setting.seconds)), setting.seconds, setting.rate_per_s)
    stage.until_spoken(setting.seconds + LATE_S)


def _all_to_all(stage: "Stage", setting: "Setting") -> None:
    _all_speak(stage, max(1, setting.messages // setting.peers), setting.seconds, setting)


def _join(stage: "Stage", setting: "Setting") -> None:
    """One after the other, while one speaks."""
    stage.speak([0], 1 << 40, JOIN_S, setting.rate_per_s)
    stage.run(BETWEEN_S)
    for newcomer in range(setting.peers, setting.peers + NEWCOMERS):
        stage.start(stage.process_of(newcomer), [newcomer])
        stage.until(lambda: "a newcomer is not connected yet" if stage.connecting() else None, stage.plan.within_s)
        stage.bar.share((newcomer + 1 - setting.peers) / NEWCOMERS)
        stage.run(BETWEEN_S)
    stage.run(2 / setting.rate_per_s)  # the last one, too, shall hear something
    stage.crew.order(stage.process_of(0), do="hush")
    stage.until_spoken(LATE_S)


MEASURES = {
    "throughput": Measure("one speaks as fast as it can", _throughput),
    "latency": Measure("one speaks {rate:g} times a second", _latency, timed=True),
    "all-to-all": Measure("all speak as fast as they can", _all_to_all),
    "join": Measure("newcomers join; one speaks {rate:g} times a second", _join),
}
