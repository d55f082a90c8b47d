"""Made tapes of a size, with faults planted in them; made once, then kept.

The faults go into the rows of one machine, so that planting needs memory for these only. What was planted is kept
beside the tape: whoever audits it has to find exactly that.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.pipeline import made
from weft.pipeline.made.faults import Fault, Planted, plant
from weft.pipeline.made.tape import Plan, make

FAULTS = (
    *(Fault.REMOVED, Fault.REMOVED, Fault.REMOVED, Fault.DOUBLED, Fault.DOUBLED),
    *(Fault.SWAPPED, Fault.BEFORE_PARENT, Fault.MISSED),
)
SKEW_S = 0.05


@dataclass(frozen=True, slots=True)
class MadeTape:
    folder: Path
    events: int
    messages: int
    planted: list[Planted]


def made_tape(under: Path, events: int, peers: int = 100, faults: Sequence[Fault] = FAULTS) -> MadeTape:
    """A tape of about so many events on eight machines whose clocks differ; the one from last time, if it is there."""
    plan = Plan(rows=events, peers=peers, skew_s=SKEW_S)
    place = under / f"{events}-{_fingerprint(plan, faults)}"
    if not (place / "truth.json").exists():
        shutil.rmtree(place, ignore_errors=True)
        _make(place, plan, faults)
    told = json.loads((place / "truth.json").read_text())
    return MadeTape(place / "tape", told["events"], told["messages"], [Planted(**each) for each in told["planted"]])


def _make(place: Path, plan: Plan, faults: Sequence[Fault]) -> None:
    (truth,) = make(place / "tape", plan)
    apart = place / "apart"
    for path in sorted((place / "tape").rglob(f"{truth.runs[0]}-*.parquet")):
        target = apart / path.relative_to(place / "tape")
        target.parent.mkdir(parents=True)
        path.rename(target)
    planted = plant(apart, place / "tape", faults, seed=plan.seed)
    shutil.rmtree(apart)
    # A delivery taken away is a row less, a doubled one is a row more; the other faults change rows.
    count = truth.rows - faults.count(Fault.REMOVED) + faults.count(Fault.DOUBLED)
    told = {"events": count, "messages": truth.messages, "planted": [asdict(each) for each in planted]}
    (place / "truth.json").write_text(json.dumps(told, indent=1))


def _fingerprint(plan: Plan, faults: Sequence[Fault]) -> str:
    digest = hashlib.sha256(repr((plan, faults)).encode())
    for path in sorted(Path(made.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
