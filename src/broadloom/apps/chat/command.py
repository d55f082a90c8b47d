"""What `broadloom chat` does after joining the channel, and `broadloom chat export`."""

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.apps.chat.storage import ChatFiles, ChatStoreError, open_chat_files, open_existing_store

if TYPE_CHECKING:
    from broadloom.apps.chat.chat_model import ChatModel
    from broadloom.channel import Channel

log = logging.getLogger("broadloom")


class _NotificationHandler(logging.Handler):
    """Library warnings appear in the chat instead of over it."""

    def __init__(self, chat: "ChatModel") -> None:
        super().__init__(logging.WARNING)
        self._chat = chat

    def emit(self, record: logging.LogRecord) -> None:
        self._chat.add_notice(record.getMessage())


def prepare(channel: str, name: str, store: Path | None, *, memory: bool) -> ChatFiles:
    """Everything that can fail before the channel is joined."""
    try:
        import textual  # noqa: F401
    except ImportError:
        raise ChatStoreError("the chat needs the extra `chat`: pip install 'broadloom[chat]'") from None
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        raise ChatStoreError("the chat needs a terminal; use `broadloom join` with pipes")
    return open_chat_files(channel, name, store, memory=memory)


async def run_chat(
    channel: "Channel",
    name: str,
    files: ChatFiles,
    route_warnings_to: Callable[[logging.Handler], AbstractContextManager[None]],
) -> int:
    """Run until the user quits; returns the exit status."""
    from broadloom.apps.chat.app import ChatApp
    from broadloom.apps.chat.chat_model import ChatModel
    from broadloom.groups import Groups

    async with Groups(channel, name, store=files.store) as own_groups:
        chat = ChatModel(own_groups, files.read_state)
        try:
            with route_warnings_to(_NotificationHandler(chat)):
                app = ChatApp(chat, channel)
                await app.run_async()
            return app.return_code or 0
        finally:
            try:
                chat.close()
            except OSError as problem:
                log.warning("the read state could not be saved: %s", problem)


def export(group: str, format: str, *, channel: str, name: str, store: Path | None, out: Path | None) -> int:
    from broadloom.apps.chat.export import FORMATS, export_group

    write = FORMATS.get(format)
    if write is None:
        raise ChatStoreError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    history_store = open_existing_store(channel, name, store)
    try:
        exported_group = export_group(history_store, group)
    finally:
        history_store.close()
    if out is None:
        sys.stdout.writelines(write(exported_group))
        return 0
    try:
        with out.open("w", encoding="utf-8") as file:
            file.writelines(write(exported_group))
    except OSError as problem:
        raise ChatStoreError(f"cannot write {out}: {problem.strerror}") from None
    return 0
