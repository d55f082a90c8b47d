"""Compares the pipeline with the SQL, row by row, in all columns that both have."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.pipeline.questions import QUERIES
from broadloom.pipeline.results import Results
from broadloom.pipeline.tables import table
from broadloom.record.schema import TIME
from tools.synthetic.fault_injection import InjectedFault

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def differences(base: "DuckDBPyConnection", results: Path, answers: Path) -> dict[str, int]:
    """For each query, the number of rows that only one of the two has."""
    return {name: _difference(base, name, results, answers) for name in QUERIES}


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


def reported_faults(results: Path) -> set[InjectedFault]:
    """The findings of the audit as injected faults."""
    rows = Results(results).read(table("audit_findings")).to_pylist()
    return {InjectedFault(*(row[name] for name in InjectedFault.__dataclass_fields__)) for row in rows}
