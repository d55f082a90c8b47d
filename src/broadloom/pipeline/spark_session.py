"""The Spark session, embedded by default, or on a cluster.

Everything that affects results (time zone, types) is set here, the same for every master. `quick` only affects speed:
it is for small inputs and tests, where startup is most of the work.
"""

import atexit
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from broadloom import __version__
from broadloom.errors import BroadloomError
from broadloom.extras import missing_package
from broadloom.pipeline import embedded_java, java
from broadloom.pipeline.class_archive import ClassArchive
from broadloom.pipeline.embedded_java import KILL_TIMEOUT_S, EmbeddedJava
from broadloom.pipeline.spark_errors import cause_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "4g"
"""Memory of the driver, which is also the worker when Spark runs embedded."""

SPLIT_BYTES = 16 << 20
"""Bytes of a file per task. An event takes about 7 bytes, so that is some 2M events."""

BATCH_ROWS = 65_536
"""Rows per Arrow batch passed to Python."""

ALLOCATOR = "oversize_threshold:0,dirty_decay_ms:10000,muzzy_decay_ms:0"
"""For polars in workers: freed memory is kept for ten seconds, the default of jemalloc. As polars builds it, memory
is returned almost at once. Getting it back, page by page, was a third of the CPU time of large tapes."""

MASTER_CONNECT_TIMEOUT_S = 10.0
"""Time to wait for the master to accept a connection."""

JAVA_EXIT_TIMEOUT_S = 120.0
"""Java may write its archive of classes when it exits."""

JAVA_ANSWER_TIMEOUT_S = 5.0

_archives: list[ClassArchive] = []
"""Of the running Java."""

_starting: list[EmbeddedJava] = []
"""Java that PySpark does not know yet."""

_TESTING_UTILS = "pyspark.testing.utils"
_LOGGING = Path(__file__).with_name("logging.properties")


JAVA_ENDED = (
    "Java, in which Spark runs, has ended: it was killed, or out of memory. Try again, with more --driver-memory if it "
    "happens again. Results that were committed before are unchanged."
)


class _LightTestingUtils(ModuleType):
    """Stands for `pyspark.testing.utils`, which PySpark imports with pandas and much else, to learn one thing: whether
    there is numpy. For any other attribute, the real module is imported."""

    have_numpy = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by the import system
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class SparkUnavailableError(BroadloomError):
    """Spark is not installed, or the master does not answer."""


def start_java(memory: str = DRIVER_MEMORY) -> None:
    """Begin to start Java for a quick embedded session. It starts while the caller goes on, and imports packages."""
    if not _starting and "pyspark" not in sys.modules and find_spec("pyspark") and embedded_java.is_supported():
        _set_environment("local")
        _begin(memory, quick=True)


def context(
    master: str | None = None,
    *,
    name: str = "broadloom",
    cores: int | None = None,
    memory: str = DRIVER_MEMORY,
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkContext":
    """Start Spark, or return what runs. `SparkContext` is enough for jobs without SQL, and starts faster.

    `master` is a master URL (`spark://host:port`); None runs embedded, on `cores` of this machine (default: all).
    `settings` are Spark settings that override those made here.
    """
    if find_spec("pyspark") is None:
        raise SparkUnavailableError(missing_package("pyspark", "pipeline"))
    cores = cores or os.cpu_count() or 1
    where = master or f"local[{cores}]"
    _check_master(where)
    _set_environment(where)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    logging.getLogger().addFilter(_is_not_py4j)  # it logs, as root, what is raised anyway
    sys.modules.setdefault(_TESTING_UTILS, _LightTestingUtils(_TESTING_UTILS))
    try:
        if SparkContext._gateway is None and is_embedded(where) and embedded_java.is_supported():
            if not _starting:
                _begin(memory, quick)
            _starting[0].connect()
            _starting.clear()
        chosen = {**_settings(where, cores, memory, quick), **(settings or {}), "spark.app.name": name}
        spark = SparkContext.getOrCreate(SparkConf().setMaster(where).setAll(list(chosen.items())))
    except (PySparkException, Py4JError, RuntimeError, OSError, embedded_java.JavaStartError) as problem:
        raise SparkUnavailableError(f"Spark did not start on {where}: {cause_of(problem)}") from problem
    if not is_embedded(where):
        # Workers have Spark and the packages; Broadloom itself is shipped.
        spark.addPyFile(str(_package_archive()))
    return spark


def session(
    master: str | None = None,
    *,
    name: str = "broadloom",
    cores: int | None = None,
    memory: str = DRIVER_MEMORY,
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session for SQL and DataFrames, or the running one; arguments as for `context`."""
    running = context(master, name=name, cores=cores, memory=memory, quick=quick, settings=settings)
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").disabled = True  # prints what is raised anyway
    builder = SparkSession.builder
    chosen = _settings(str(running.master), cores or os.cpu_count() or 1, memory, quick)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _begin(memory: str, quick: bool) -> None:
    """Start Java. Ctrl-C waits until it is known here, so that it can be killed; Java itself never gets it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        _starting.append(_embedded(memory, quick))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _embedded(memory: str, quick: bool) -> EmbeddedJava:
    program, options = java.program(), _java_options(quick)
    if quick:
        _archives.append(ClassArchive(program))
        options += _archives[-1].options()
    return EmbeddedJava(program, memory, options)


def is_embedded(master: str) -> bool:
    """Whether Spark runs in this process and its JVM; otherwise tasks run in other processes or machines."""
    return master == "local" or master.startswith("local[")


def is_running() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def has_java_ended() -> bool:
    """Whether the JVM that this process started has exited, or is about to: killed, or out of memory."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return False
    if process.poll() is not None:
        return True
    where = gateway.gateway_parameters
    try:
        socket.create_connection((where.address, where.port), JAVA_ANSWER_TIMEOUT_S).close()
    except OSError:
        return True
    return False


def _forget_session() -> None:
    """After the end of Java, whose objects can only raise."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    _archives.clear()


def stop() -> None:
    """Stop the running session and its JVM, if any; also one that is just starting."""
    while _starting:
        _starting.pop().kill()
        _archives.clear()
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is not None and has_java_ended():
        _forget_session()
        return
    running = SparkSession.getActiveSession() or SparkContext._active_spark_context
    if running is not None:
        running.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    # Otherwise the JVM keeps its memory until this process exits.
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        _wait_for_exit(process)
        while _archives:
            _archives.pop().keep()


def _wait_for_exit(process: "subprocess.Popen[bytes]") -> None:
    """On a busy machine, Java may need minutes to write its archive of classes: then the next one writes it."""
    try:
        process.wait(timeout=JAVA_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _archives.clear()
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=KILL_TIMEOUT_S)


def _check_master(master: str) -> None:
    """Report errors that Spark would report late: it retries an unreachable master for a minute."""
    if master.startswith("sc://"):
        raise SparkUnavailableError(
            "Spark Connect cannot run the pipeline; use the cluster's own master, as spark://host:7077"
        )
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SparkUnavailableError(
            "for YARN, set HADOOP_CONF_DIR to the directory with the cluster's yarn-site.xml and core-site.xml"
        )
    if master.startswith("spark://"):
        _probe_master(master)
    elif master not in ("local", "yarn") and not master.startswith(("local[", "local-cluster[", "k8s://")):
        raise SparkUnavailableError(
            f"{master!r} is not a Spark master; use spark://host:7077, yarn, or k8s://https://host:6443"
        )


def _probe_master(master: str) -> None:
    """One of the masters of a standalone cluster must answer."""
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_CONNECT_TIMEOUT_S).close()
            return
        except ValueError:
            raise SparkUnavailableError(
                f"{master} is not the address of a Spark master; use spark://host:7077"
            ) from None
        except OSError as problem:
            reasons.append(problem.strerror or str(problem))
    raise SparkUnavailableError(
        f"no Spark master answers at {master} ({', '.join(reasons)}); start it, or omit --master"
    )


def _settings(master: str, cores: int, memory: str, quick: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": memory,
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
        # Small files are the usual case: combine many in one task.
        "spark.sql.files.openCostInBytes": str(256 << 10),
        "spark.sql.shuffle.partitions": "2" if quick else str(4 * cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark runs a task per core, so polars needs no threads of its own.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.executorEnv._RJEM_MALLOC_CONF": ALLOCATOR,
        # Reused workers import the packages once.
        "spark.python.worker.reuse": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    if quick:
        settings["spark.sql.adaptive.enabled"] = "false"
    settings["spark.driver.extraJavaOptions"] = " ".join(_java_options(quick))
    if is_embedded(master):
        settings["spark.python.daemon.module"] = "broadloom.pipeline.engine.warm_daemon"
    if _is_local(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def _java_options(quick: bool) -> list[str]:
    # Derby, which keeps a catalog, would write its log into the working directory.
    options = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", f"-Dderby.stream.error.file={os.devnull}"]
    # Startup is most of the work: compile little, and use no GC threads.
    return [*options, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if quick else options


def _set_environment(master: str) -> None:
    """Set the environment variables that Spark reads at startup."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not (is_embedded(master) and embedded_java.is_supported()) and not is_running():
        os.environ["JAVA_HOME"] = str(java.home_for_spark(java.find()))


def _is_local(master: str) -> bool:
    """Whether the master is on this machine, so that loopback is enough."""
    return master.startswith("local") or any(f"//{host}" in master for host in ("127.", "localhost", "[::1]"))


@cache
def _package_archive() -> Path:
    """Broadloom's own code as one file, created once: workers may fetch it while this process runs."""
    package = Path(__file__).resolve().parent.parent
    folder = tempfile.mkdtemp(prefix="broadloom-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # A unique name: Spark rejects a second file of the same name, and the user may have added a broadloom.zip.
    archive = Path(folder) / f"broadloom-{__version__}-code.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, Path("broadloom") / path.relative_to(package))
    return archive
