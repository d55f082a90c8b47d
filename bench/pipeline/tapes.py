"""Synthetic tapes with injected faults, generated once and kept.

The faults go into the rows of one machine, so that injection needs memory for these only. The injected faults are
stored next to the tape: the audit must find exactly that.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools import synthetic
from tools.synthetic.fault_injection import FaultKind, InjectedFault, inject
from tools.synthetic.generate import SyntheticConfig, generate

FAULTS = (
    *(FaultKind.REMOVED, FaultKind.REMOVED, FaultKind.REMOVED, FaultKind.DUPLICATED, FaultKind.DUPLICATED),
    *(FaultKind.SWAPPED, FaultKind.REPLY_BEFORE_PARENT, FaultKind.REPORTED_MISSED),
)
SKEW_S = 0.05


@dataclass(frozen=True, slots=True)
class SyntheticTape:
    folder: Path
    events: int
    messages: int
    injected: list[InjectedFault]


def synthetic_tape(under: Path, events: int, peers: int = 100, faults: Sequence[FaultKind] = FAULTS) -> SyntheticTape:
    """A tape of about this many events on eight machines with different clocks; reuses an existing one."""
    plan = SyntheticConfig(rows=events, peers=peers, skew_s=SKEW_S)
    place = under / f"{events}-{_fingerprint(plan, faults)}"
    if not (place / "truth.json").exists():
        shutil.rmtree(place, ignore_errors=True)
        _generate(place, plan, faults)
    data = json.loads((place / "truth.json").read_text())
    return SyntheticTape(
        place / "tape", data["events"], data["messages"], [InjectedFault(**each) for each in data["injected"]]
    )


def _generate(place: Path, config: SyntheticConfig, faults: Sequence[FaultKind]) -> None:
    (truth,) = generate(place / "tape", config)
    apart = place / "apart"
    for path in sorted((place / "tape").rglob(f"{truth.runs[0]}-*.parquet")):
        target = apart / path.relative_to(place / "tape")
        target.parent.mkdir(parents=True)
        path.rename(target)
    injected = inject(apart, place / "tape", faults, seed=config.seed)
    shutil.rmtree(apart)
    # A removed delivery is one row less, a duplicated one is one row more; the other faults change rows.
    count = truth.rows - faults.count(FaultKind.REMOVED) + faults.count(FaultKind.DUPLICATED)
    data = {"events": count, "messages": truth.messages, "injected": [asdict(each) for each in injected]}
    (place / "truth.json").write_text(json.dumps(data, indent=1))


def _fingerprint(config: SyntheticConfig, faults: Sequence[FaultKind]) -> str:
    digest = hashlib.sha256(repr((config, faults)).encode())
    for path in sorted(Path(synthetic.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
