"""Saves received files. The sender chooses the content but only suggests the name: nothing is overwritten, hidden, or
written outside the directory."""

import os
from pathlib import Path

from broadloom.cli.exit_codes import UsageError
from broadloom.protocol.events import Message

NAME_BYTES_MAX = 200
"""Below the limit of every file system, with room for a number."""
NUMBERS_MAX = 10_000
"""Files with the same name in one directory."""


def safe_name(name: str) -> str:
    """A visible file name without directories and control characters, of limited length."""
    name = "".join(char if char.isprintable() and char not in "/\\:" else "_" for char in name)
    if not name or name.startswith("."):
        name = f"_{name}"
    stem, suffix = os.path.splitext(name)
    suffix = suffix if len(suffix.encode()) <= NAME_BYTES_MAX // 4 else ""
    stem = name.removesuffix(suffix) if suffix else name
    while len((stem + suffix).encode()) > NAME_BYTES_MAX:
        stem = stem[:-1]
    return stem + suffix


def save_file(directory: Path, name: str, content: bytes) -> Path:
    """Write a new file, numbered if the name is taken, and return its path. Raises `OSError`."""
    stem, suffix = os.path.splitext(safe_name(name))
    for number in range(1, NUMBERS_MAX):
        path = directory / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            opened = path.open("xb")
        except FileExistsError:
            continue
        try:
            with opened:
                opened.write(content)
        except OSError as problem:
            path.unlink(missing_ok=True)  # an incomplete file is worse than none
            problem.filename = str(path)
            raise
        return path
    raise FileExistsError(f"{directory} has {NUMBERS_MAX:,} files named {stem}{suffix}")


def save_message(directory: Path, message: Message) -> Path:
    """Save the file that a message carries. Raises `ValueError` if it is damaged."""
    file = message.file
    assert file is not None
    return save_file(directory, file.name, file.content)


def prepare_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot save files in {path}: {problem.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"cannot save files in {path}: it is not writable")


def reason(problem: OSError | ValueError) -> str:
    if isinstance(problem, OSError) and problem.filename:
        return f"cannot save {problem.filename}: {problem.strerror}"
    return str(problem)
