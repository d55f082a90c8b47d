"""Masters and workers of a real Spark cluster, as processes of this machine."""

import os
import re
import subprocess
from pathlib import Path
from threading import Condition, Thread

from broadloom.pipeline import java

# Short work: compile little, and keep no threads for collecting garbage.
FRUGAL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


LISTEN = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class Daemon:
    """A process of Spark's own, whose log is read as it comes."""

    def __init__(self, *words: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java.home_for_spark(java.find())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FRUGAL,
        }
        self._process = subprocess.Popen(
            [home / "bin" / "spark-class", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._log = ""
        self._has_ended = False
        self._changed = Condition()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def wait_for_log(self, pattern: str, within_s: float = 120.0) -> str:
        """What it says, as soon as it says it: the pattern's group."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or re.search(pattern, self._log), within_s)
            found = re.search(pattern, self._log)
            assert found, f"it did not say {pattern!r}, but: {self._log}"
            return found[1]

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._log += line.decode(errors="replace")
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
