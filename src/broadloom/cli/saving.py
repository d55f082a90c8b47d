"""Files that others sent, put into a directory of ours.

The rule: a sender chooses the content, and no more than proposes the name. Nothing is written over, nothing is
written elsewhere, and nothing is hidden.
"""

import os
from pathlib import Path

from broadloom.cli.exit_codes import CommandFailed, UsageError

NAME_BYTES_MAX = 200
"""Shorter than any file system allows, so that a number fits in."""
NUMBERS_MAX = 10_000
"""Files of one name that are told apart."""


def prepare_directory(path: Path) -> Path:
    """Made, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot save files in {path}: {problem.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"cannot save files in {path}: it may not be written")
    return path


def safe_name(name: str) -> str:
    """Of one part, not hidden, fit for a terminal, and not too long."""
    name = "".join(char if char.isprintable() and char not in "/\\:" else "_" for char in name)
    if not name or name.startswith("."):
        name = f"_{name}"
    stem, suffix = os.path.splitext(name)
    suffix = suffix if len(suffix.encode()) <= NAME_BYTES_MAX // 4 else ""
    stem = name.removesuffix(suffix) if suffix else name
    while len((stem + suffix).encode()) > NAME_BYTES_MAX:
        stem = stem[:-1]
    return stem + suffix


def save(directory: Path, name: str, content: bytes) -> Path:
    """Under this name, or if that is taken with a number; returns where. `Failed` if it cannot be written."""
    stem, suffix = os.path.splitext(safe_name(name))
    for number in range(1, NUMBERS_MAX):
        path = directory / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        except OSError as problem:
            raise CommandFailed(f"cannot save {path}: {problem.strerror}") from None
        try:
            with file:
                file.write(content)
        except OSError as problem:
            path.unlink(missing_ok=True)  # half a file is worse than none
            raise CommandFailed(f"cannot save {path}: {problem.strerror}") from None
        return path
    raise CommandFailed(f"cannot save {stem}{suffix}: there are {NUMBERS_MAX:,} of that name in {directory}")
