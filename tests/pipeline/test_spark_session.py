"""Spark as Broadloom needs it: times are UTC, Arrow goes through Python, and nothing is loaded before it is used."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from broadloom.pipeline import spark_session
from broadloom.record.arrow_import import pa
from broadloom.record.schema import TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHEN = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)


def test_timestamps_are_utc_with_microseconds(spark: "SparkSession") -> None:
    frame = spark.createDataFrame(pa.table({"time": pa.array([WHEN], TIME)}))
    assert frame.selectExpr("CAST(time AS STRING) AS text").toArrow()["text"].to_pylist() == [
        "2026-03-29 01:30:00.123456"
    ]
    assert frame.toArrow()["time"].to_pylist() == [WHEN]


def test_arrow_batches_pass_through_python(spark: "SparkSession") -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([2 * each for each in batch["id"].to_pylist()])], ["id"])

    assert sorted(spark.range(4).mapInArrow(doubled, "id BIGINT").toArrow()["id"].to_pylist()) == [0, 2, 4, 6]


def test_running_session_is_reused(spark: "SparkSession") -> None:
    assert spark_session.is_running()
    assert spark_session.session() is spark


def test_java_that_does_not_exit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "JAVA_EXIT_TIMEOUT_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:
        spark_session._wait_for_exit(process)
    assert process.returncode == -signal.SIGKILL


def test_missing_extra_is_reported_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda _name: None)
    with pytest.raises(spark_session.SparkUnavailableError, match=r"pip install '\.\[pipeline\]'"):
        spark_session.session()


def test_cli_imports_no_heavy_packages() -> None:
    names = "'pyspark', 'polars', 'numba', 'pyarrow', 'pandas', 'matplotlib'"
    code = (
        "import sys, broadloom.cli.main, broadloom.pipeline; "
        f"print([each for each in ({names}) if each in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_build_module_does_not_import_pyspark() -> None:
    code = "import sys, broadloom.pipeline.build, broadloom.cli.pipeline; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
