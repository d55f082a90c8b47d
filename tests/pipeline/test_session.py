"""Spark as Weft needs it: times are UTC, Arrow goes through Python, and nothing of it is loaded before it is used."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from weft.pipeline import session
from weft.pipeline.table import TIME
from weft.record.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHEN = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)


def test_times_are_utc_to_the_microsecond(spark: "SparkSession") -> None:
    frame = spark.createDataFrame(pa.table({"time": pa.array([WHEN], TIME)}))
    assert frame.selectExpr("CAST(time AS STRING) AS text").toArrow()["text"].to_pylist() == [
        "2026-03-29 01:30:00.123456"
    ]
    assert frame.toArrow()["time"].to_pylist() == [WHEN]


def test_arrow_goes_through_python(spark: "SparkSession") -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([2 * each for each in batch["id"].to_pylist()])], ["id"])

    assert sorted(spark.range(4).mapInArrow(doubled, "id BIGINT").toArrow()["id"].to_pylist()) == [0, 2, 4, 6]


def test_the_running_session_is_used_again(spark: "SparkSession") -> None:
    assert session.is_running()
    assert session.session() is spark


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _name: None)
    with pytest.raises(session.NoSpark, match=r"pip install 'weft\[pipeline\]'"):
        session.session()


def test_nothing_heavy_is_loaded_by_the_command_line() -> None:
    names = "'pyspark', 'polars', 'numba', 'pyarrow', 'pandas', 'matplotlib'"
    code = f"import sys, weft.cli, weft.pipeline; print([each for each in ({names}) if each in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_run_that_changes_nothing_needs_no_spark() -> None:
    code = "import sys, weft.pipeline.job, weft.pipeline.command; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
