"""The Java of an embedded Spark, started directly.

Spark's own scripts start a shell, a first Java that computes the command line of a second one, and there a program that
prepares for clusters before it opens the gateway to Python. An embedded Spark needs only the gateway. Started directly,
it is ready sooner, starts while this process imports packages, and can be killed at any moment.
"""

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.errors import BroadloomError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

START_TIMEOUT_S = 120.0
KILL_TIMEOUT_S = 10.0
_POLL_S = 0.01

_SCRIPT_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
_SCRIPT_FILES = ("conf/spark-defaults.conf", "conf/spark-env.sh")
"""Only Spark's scripts know what to do with these."""

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={each}=ALL-UNNAMED"
        for each in (
            *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
            *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref"),
            *("java.base/sun.nio.ch", "java.base/sun.nio.cs", "java.base/sun.security.action"),
            *("java.base/sun.util.calendar", "java.security.jgss/sun.security.krb5"),
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""As in `org.apache.spark.launcher.JavaModuleOptions`; a test compares the two."""


class JavaStartError(BroadloomError):
    """Java ended, or does not answer."""


def spark_folder() -> Path:
    """The folder of the package pyspark, which is not imported for that."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def is_supported() -> bool:
    """Whether nothing is configured that needs Spark's scripts."""
    if os.name == "nt" or any(os.environ.get(name) for name in _SCRIPT_VARIABLES):
        return False
    return not any((spark_folder() / name).is_file() for name in _SCRIPT_FILES)


class EmbeddedJava:
    """Starts Java with this program; `connect` waits for it."""

    def __init__(self, program: Path, memory: str, options: Sequence[str]) -> None:
        folder = spark_folder()
        # As in Spark's scripts: this one first, because several jars have its classes.
        jars = [*map(str, (folder / "jars").glob("slf4j-api-*.jar")), f"{folder}/jars/*"]
        self._folder = Path(tempfile.mkdtemp(prefix="broadloom-java-"))
        self._address = self._folder / "address"
        environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address)}
        environment.setdefault("PYTHONHASHSEED", "0")  # equal in all workers, as in Spark's scripts
        self._process = subprocess.Popen(
            [
                *(str(program), "-cp", ":".join([f"{folder}/conf", *jars]), f"-Xmx{memory}", *options),
                *(*MODULE_OPTIONS, "org.apache.spark.api.python.PythonGatewayServer"),
            ],
            stdin=subprocess.PIPE,  # Java exits when it is closed, also by the end of this process
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which stops Java
        )

    def connect(self) -> "JavaGateway":
        """Make this the Java of PySpark."""
        from pyspark import SparkContext

        try:
            port, secret = self._wait_for_address()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        given = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(given)
        try:
            SparkContext._ensure_initialized()
        finally:
            for name in given:
                os.environ.pop(name, None)
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.proc = self._process
        return gateway

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(KILL_TIMEOUT_S)
        if self._process.stdin is not None:
            self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_for_address(self) -> tuple[int, str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._address.is_file():
            if self._process.poll() is not None:
                raise JavaStartError(f"Java ended with status {self._process.returncode} before Spark had started")
            if time.monotonic() > deadline:
                raise JavaStartError(f"Java did not start Spark within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
        content = self._address.read_bytes()
        port, size = struct.unpack_from("!ii", content)
        return port, content[8 : 8 + size].decode()
