"""Asks DuckDB: the tape's files as a view, each answer written as Parquet, and read from there by later questions."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.pipeline.questions import QUERIES
from broadloom.pipeline.arrow.clock_offsets import WINDOW_US

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def open_database(tape: Path, clocks: list[Path], cores: int) -> "DuckDBPyConnection":
    """A connection that knows the tape as `events`."""
    import duckdb

    base = duckdb.connect(config={"threads": cores})
    files = [str(path) for path in sorted(tape.glob("channel=*/day=*/*.parquet")) if not path.name.startswith(".")]
    base.execute(f"""
        CREATE VIEW events AS SELECT * REPLACE (epoch_us(time) AS time)
        FROM read_parquet({files}, hive_partitioning = true, hive_types = {{'channel': VARCHAR, 'day': DATE}})
    """)
    base.execute(f"""
        CREATE TABLE clocks AS SELECT run, epoch_us("window") AS "window", epoch_us("at") AS since, offset_us, drift_ppm
        FROM read_parquet({[str(path) for path in clocks]})
    """)
    _add_clock(base)
    return base


def _add_clock(base: "DuckDBPyConnection") -> None:
    """`ahead(run, time)`, of few runs and hours: cases, so that no join is needed."""
    rows = base.execute('SELECT run, "window", since, offset_us, drift_ppm FROM clocks WHERE offset_us IS NOT NULL')
    cases = " ".join(
        f"WHEN of_run = '{run}' AND when_us // {WINDOW_US} * {WINDOW_US} = {window} "
        f"THEN round({offset!r}::DOUBLE + {drift!r}::DOUBLE * (when_us - {since}) / 1e6)::BIGINT"
        for run, window, since, offset, drift in rows.fetchall()
    )
    base.execute(f"CREATE MACRO ahead(of_run, when_us) AS {f'CASE {cases} ELSE 0 END' if cases else '0'}")


def run_query(base: "DuckDBPyConnection", name: str, out: Path) -> int:
    """Ask one question, and write the answer as Parquet; later ones read it from there, as those of the pipeline do."""
    place = out / f"{name}.parquet"
    base.execute(f"COPY ({QUERIES[name]}) TO '{place}' (FORMAT parquet, COMPRESSION zstd)")
    base.execute(f"CREATE VIEW {name} AS FROM read_parquet('{place}')")
    ((rows,),) = base.execute(f"SELECT count(*) FROM {name}").fetchall()
    return int(rows)
