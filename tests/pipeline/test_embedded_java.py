"""Java started without Spark's scripts: with the same options, and only where the scripts are not needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from broadloom.pipeline import embedded_java, java
from broadloom.pipeline.embedded_java import MODULE_OPTIONS, EmbeddedJava, JavaStartError, spark_folder
from broadloom.protocol.events import LinkDownReason
from broadloom.record.schema import CRASH_REASONS, LEAVE_REASONS


def test_java_gets_the_options_of_the_launcher() -> None:
    """The launcher prints the command line that Spark's scripts would run."""
    launcher = [str(java.program()), "-cp", f"{spark_folder()}/jars/*", "org.apache.spark.launcher.Main"]
    command = [*launcher, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    environment = {"SPARK_HOME": str(spark_folder()), "SPARK_SCALA_VERSION": "2.13"}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    words = printed.decode().replace("\n", "\0").split("\0")
    options = words[
        words.index("-XX:+IgnoreUnrecognizedVMOptions") : words.index("org.apache.spark.deploy.SparkSubmit")
    ]
    assert {each for each in options if "incubator" not in each} == set(MODULE_OPTIONS)


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"])
def test_scripts_are_used_if_they_are_configured(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert embedded_java.is_supported()
    monkeypatch.setenv(name, "x")
    assert not embedded_java.is_supported()


def test_java_that_ends_at_once_is_reported() -> None:
    started = EmbeddedJava(java.program(), "nonsense", [])
    with pytest.raises(JavaStartError, match="Java ended with status 1 before Spark had started"):
        started.connect()
    started.kill()


def test_version_of_java_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = java.program()
    monkeypatch.setattr(java, "find", lambda: pytest.fail("asked again"))
    assert java.program() == first


def test_audit_in_a_worker_imports_neither_pandas_nor_the_protocol() -> None:
    """Both take longer to import than an audit of many events."""
    light = (
        "import sys, broadloom.pipeline.engine.warm_daemon, broadloom.pipeline.tables as tables; tables.all_tables()"
    )
    names = "print([name for name in ('pandas', 'broadloom.protocol') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", f"{light}; {names}"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_reasons_on_tapes_are_those_of_the_protocol() -> None:
    assert {*CRASH_REASONS, *LEAVE_REASONS} <= {each.value for each in LinkDownReason}
