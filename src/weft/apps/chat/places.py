"""Where the chat keeps its files: one store for each name and channel, in the user's data folder.

    $XDG_DATA_HOME/weft/chat/<channel>/<name>.db      history and identity (SQLite)
    $XDG_DATA_HOME/weft/chat/<channel>/<name>.read    what was read (JSON)

The folder is for its user alone.
"""

import hashlib
import os
from pathlib import Path
from urllib.parse import quote, unquote

STORE_SUFFIX = ".db"
READ_SUFFIX = ".read"
FILE_NAME_MAX = 120
"""Signs; a longer name is cut, and told apart by a hash."""


def chat_folder() -> Path:
    given = os.environ.get("XDG_DATA_HOME", "")
    # A relative path there is to be ignored, says the standard.
    base = Path(given) if given and Path(given).is_absolute() else Path.home() / ".local" / "share"
    return base / "weft" / "chat"


def store_path(channel: str, name: str) -> Path:
    return chat_folder() / _file_name(channel) / (_file_name(name) + STORE_SUFFIX)


def read_path(store: Path) -> Path:
    """The file beside a store that says what was read."""
    return store.with_name(store.name.removesuffix(STORE_SUFFIX) + READ_SUFFIX)


def make_folder_of(store: Path) -> None:
    """Folders that are made here are for this user alone; those that exist are left as they are."""
    missing = [folder for folder in store.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def names_with_store(channel: str) -> list[str]:
    """Who has a store for this channel here."""
    folder = chat_folder() / _file_name(channel)
    return sorted(unquote(found.name.removesuffix(STORE_SUFFIX)) for found in folder.glob(f"*{STORE_SUFFIX}"))


def _file_name(text: str) -> str:
    """Readable, and another one for each text."""
    name = quote(text, safe=" ")
    if len(name) > FILE_NAME_MAX:
        name = f"{name[:FILE_NAME_MAX]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"%2E{name[1:]}" if name.startswith(".") else name
