"""The file of a run: every single measurement, from which tables and charts can be generated again."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from bench.result_row import Row
from bench.summary import summarize

FORMAT = 1


@dataclass(slots=True)
class Result:
    when: str
    machine: str
    rounds: int
    rows: list[Row]
    interrupted: bool = False

    def summaries(self) -> list[Row]:
        return summarize(self.rows)


def save(result: Result, path: Path) -> None:
    """First beside it, then in its place: a run that is killed leaves a whole file."""
    fields = {"format": FORMAT, "when": result.when, "machine": result.machine, "rounds": result.rounds}
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps({**fields, "rows": result.rows}, indent=1) + "\n")
    os.replace(beside, path)


def load(path: Path) -> Result:
    fields = json.loads(path.read_text())
    if fields.get("format") != FORMAT:
        raise ValueError(f"{path}: not a result of this benchmark (format {fields.get('format')})")
    return Result(fields["when"], fields["machine"], fields["rounds"], fields["rows"])
