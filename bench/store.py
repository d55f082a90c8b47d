"""The file in which a run is kept: every single measurement, so that everything else can be made anew from it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from bench.row import Row
from bench.summary import summarise

FORMAT = 1


@dataclass(slots=True)
class Result:
    when: str
    machine: str
    rounds: int
    rows: list[Row]
    interrupted: bool = False

    def summaries(self) -> list[Row]:
        return summarise(self.rows)


def save(result: Result, path: Path) -> None:
    """First beside it, then in its place: a run that is killed leaves a whole file."""
    told = {"format": FORMAT, "when": result.when, "machine": result.machine, "rounds": result.rounds}
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps({**told, "rows": result.rows}, indent=1) + "\n")
    os.replace(beside, path)


def load(path: Path) -> Result:
    told = json.loads(path.read_text())
    if told.get("format") != FORMAT:
        raise ValueError(f"{path}: not a result of this benchmark (format {told.get('format')})")
    return Result(told["when"], told["machine"], told["rounds"], told["rows"])
