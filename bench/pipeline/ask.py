"""Runs the queries in DuckDB: the tape is a view, and each answer is a Parquet file that later queries read."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.pipeline.questions import QUERIES
from broadloom.pipeline.analysis.clock_correction import WINDOW_US

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def open_database(tape: Path, clock_offsets: list[Path], cores: int) -> "DuckDBPyConnection":
    """A connection with the tape as the view `events`."""
    import duckdb

    base = duckdb.connect(config={"threads": cores})
    files = [
        str(path) for path in sorted(tape.glob("channel=*/event_date=*/*.parquet")) if not path.name.startswith(".")
    ]
    base.execute(f"""
        CREATE VIEW events AS SELECT * REPLACE (epoch_us(event_time) AS event_time)
        FROM read_parquet({files}, hive_partitioning = true, hive_types = {{'channel': VARCHAR, 'event_date': DATE}})
    """)
    base.execute(f"""
        CREATE TABLE clock_offsets AS
        SELECT run_id, epoch_us(start_time) AS start_time, epoch_us(offset_time) AS offset_time,
               offset_ms, drift_ppm, error_ms
        FROM read_parquet({[str(path) for path in clock_offsets]})
    """)
    _add_clock(base)
    return base


def _add_clock(base: "DuckDBPyConnection") -> None:
    """Define `ahead(run_id, time)`, `clock_error(run_id)` and `clock_error_max()`.

    There are few runs and hours, so a CASE is enough and no join is needed.
    """
    rows = base.execute(
        "SELECT run_id, start_time, offset_time, offset_ms, drift_ppm FROM clock_offsets WHERE offset_ms IS NOT NULL"
    )
    cases = " ".join(
        f"WHEN of_run = '{run}' AND when_us // {WINDOW_US} * {WINDOW_US} = {start} "
        f"THEN round({offset!r}::DOUBLE * 1000 + {drift!r}::DOUBLE * (when_us - {since}) / 1e6)::BIGINT"
        for run, start, since, offset, drift in rows.fetchall()
    )
    base.execute(f"CREATE MACRO ahead(of_run, when_us) AS {f'CASE {cases} ELSE 0 END' if cases else '0'}")
    errors = base.execute("SELECT run_id, max(error_ms) * 1000 FROM clock_offsets GROUP BY run_id").fetchall()
    cases = " ".join(f"WHEN of_run = '{run}' THEN {error or 0.0!r}::DOUBLE" for run, error in errors)
    base.execute(f"CREATE MACRO clock_error(of_run) AS {f'CASE {cases} ELSE 0 END' if cases else '0'}")
    largest = max((each or 0.0 for _, each in errors), default=0.0)
    base.execute(f"CREATE MACRO clock_error_max() AS {largest!r}::DOUBLE")


def run_query(base: "DuckDBPyConnection", name: str, out: Path) -> int:
    """Run one query and write the answer as Parquet. Later queries read it from there, as in the pipeline."""
    path = out / f"{name}.parquet"
    base.execute(f"COPY ({QUERIES[name]}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
    base.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}')")
    ((rows,),) = base.execute(f"SELECT count(*) FROM {name}").fetchall()
    return int(rows)
