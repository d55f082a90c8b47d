"""Do the pipeline and the SQL say the same? Row by row, in all columns that both have."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.pipeline.questions import QUESTIONS
from weft.pipeline.made.faults import Planted
from weft.pipeline.results import Results
from weft.pipeline.table import TIME
from weft.pipeline.tables import table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def differences(base: "DuckDBPyConnection", results: Path, answers: Path) -> dict[str, int]:
    """For each question, how many rows only one of the two has."""
    return {name: _difference(base, name, results, answers) for name in QUESTIONS}


def _difference(base: "DuckDBPyConnection", name: str, results: Path, answers: Path) -> int:
    described = table(name)
    theirs = f"read_parquet('{answers / f'{name}.parquet'}')"
    known = {str(row[0]) for row in base.execute(f"DESCRIBE FROM {theirs}").fetchall()}
    shared = [each for each in described.columns if each.name in known]
    plain = ", ".join(f'"{each.name}"' for each in shared)
    ours = ", ".join(f'epoch_us("{each.name}")' if each.type == TIME else f'"{each.name}"' for each in shared)
    files = [str(path) for path in Results(results).files(name)]
    if not files:
        ((only,),) = base.execute(f"SELECT count(*) FROM {theirs}").fetchall()
        return int(only)
    one, other = f"SELECT {ours} FROM read_parquet({files})", f"SELECT {plain} FROM {theirs}"
    ((count,),) = base.execute(f"""
        SELECT (SELECT count(*) FROM ({one} EXCEPT ALL {other})) + (SELECT count(*) FROM ({other} EXCEPT ALL {one}))
    """).fetchall()
    return int(count)


def found(results: Path) -> set[Planted]:
    """What the audit of the pipeline tells, as planting tells it."""
    rows = Results(results).read(table("audit")).to_pylist()
    return {Planted(*(row[name] for name in Planted.__dataclass_fields__)) for row in rows}
