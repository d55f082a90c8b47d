"""A class-data-sharing archive of Spark's classes, which takes seconds off each start of Java.

Java writes the archive (116 MB) when it exits, the first time Spark is started with it; later starts map it into
memory.
There is one per Java and installation of Spark, in the user's cache folder. Java ignores an archive that does not fit.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from broadloom.pipeline.embedded_java import spark_folder
from broadloom.pipeline.java import caches

STALE_S = 600.0
"""An archive that is not complete after this time never will be."""

_QUIET = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


class ClassArchive:
    def __init__(self, program: Path) -> None:
        """`program`: the Java that writes and uses it."""
        parts = (program.resolve(), spark_folder() / "jars")
        text = " ".join(f"{each} {each.stat().st_mtime_ns}" for each in parts)
        self._name = f"spark-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsa"
        self._written: Path | None = None

    def options(self) -> list[str]:
        """Options of Java: use the archive, or write it at exit."""
        folder = next(caches(), None)
        if folder is None or os.name == "nt":
            return []
        if (folder / self._name).is_file():
            return [*_QUIET, f"-XX:SharedArchiveFile={folder / self._name}"]
        for path in folder.glob(".spark-*.jsa.*"):  # of processes that were killed
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()
        # Under another name, so that no other process uses it before it is complete.
        self._written = folder / f".{self._name}.{os.getpid()}"
        return [*_QUIET, f"-XX:ArchiveClassesAtExit={self._written}"]

    def keep(self) -> None:
        """Java has exited: its archive can be used."""
        if self._written is not None and self._written.is_file():
            self._written.replace(self._written.with_name(self._name))
        self._written = None
