"""`broadloom chat`: the threaded chat in the terminal, and exports of its history."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from broadloom.apps.chat.storage import ChatFiles, ChatStoreError, open_chat_files, open_existing_store
from broadloom.cli.exit_codes import SUCCESS, UsageError, require_extra
from broadloom.cli.options import JoinOptions, command_group, option, with_join_options
from broadloom.cli.runner import StopSignal, joined_channel, print_error, reports_errors, route_warnings_to, run

if TYPE_CHECKING:
    from broadloom.apps.chat.chat_model import ChatModel
    from broadloom.channel import Channel

LOBBY = "chat/lobby"


class _DefaultSubcommandGroup(TyperGroup):
    """If the first argument is not a command, it is the name of the user."""

    default = "join"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "--"):
            args = [self.default, *args]
        return list(super().parse_args(ctx, args))


chat = command_group(
    cls=_DefaultSubcommandGroup,
    help="""Chat in groups, with threads, in the terminal.

    `broadloom chat NAME` is short for `broadloom chat join NAME` and takes its options. The history is stored on this
    machine and is there when you come back. Needs the extra: `pip install 'broadloom[chat]'`.

    Examples:

    - `broadloom chat Anna`
    - `broadloom chat Anna --channel chat/club --bootstrap 10.0.0.5`
    - `broadloom chat export "Chess club" --format html --out club.html`
    """,
)

ChannelOption = Annotated[str, typer.Option("--channel", metavar="CHANNEL", help="Channel of the chat.")]
StoreOption = Annotated[
    Path | None,
    option(
        "--store",
        metavar="FILE",
        help="SQLite file with the history. Default: a file in your data directory, for this name and channel.",
    ),
]


@chat.command()
@with_join_options
def join(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Your display name.")],
    join_options: JoinOptions,
    channel: ChannelOption = LOBBY,
    store: StoreOption = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Do not store anything; you get a new identity each time.")
    ] = False,
) -> int:
    """Open the chat in this terminal.

    Press `?` in the chat for all keys, Ctrl-Q to quit. You remain a member of your groups when you quit, and receive
    what you missed when you come back.

    Examples:

    - `broadloom chat join Anna`
    - `broadloom chat join Anna --channel chat/club --bootstrap 10.0.0.5`
    - `broadloom chat join Anna --ephemeral`
    """

    async def work(stop: StopSignal) -> int:
        files = _prepare(channel, name, store, ephemeral=ephemeral)
        try:
            async with joined_channel(channel, join_options, stop) as joined:
                stop.interrupt_is_success = True
                return await _run_chat(joined, name, files)
        finally:
            files.close()

    return run("chat", work)


@chat.command()
@reports_errors("chat export")
def export(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Description or ID of the group.")],
    format: Annotated[str, typer.Option("--format", metavar="md|json|html", help="Output format.")] = "md",
    channel: ChannelOption = LOBBY,
    name: Annotated[
        str, option("--name", help="Display name that the store belongs to, if there are several on this machine.")
    ] = "",
    store: StoreOption = None,
    out: Annotated[
        Path | None, option("--out", "-o", metavar="FILE", help="Output file. Default: standard output.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", "-j", help="Short for `--format json`.")] = False,
) -> int:
    """Export a conversation from a local store.

    Does not join the channel. The store must not be in use: quit the chat first.

    Examples:

    - `broadloom chat export "Chess club"`
    - `broadloom chat export "Chess club" --format html --out club.html`
    - `broadloom chat export "Chess club" --json --name Anna --channel chat/club | jq .messages`
    """
    from broadloom.apps.chat.export import FORMATS, export_group

    write = FORMATS.get("json" if json else format)
    if write is None:
        raise UsageError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    try:
        history = open_existing_store(channel, name, store)
        try:
            exported_group = export_group(history, group)
        finally:
            history.close()
    except ChatStoreError as problem:
        raise UsageError(str(problem)) from None
    if out is None:
        sys.stdout.writelines(write(exported_group))
        return SUCCESS
    try:
        with out.open("w", encoding="utf-8") as file:
            file.writelines(write(exported_group))
    except OSError as problem:
        raise UsageError(f"cannot write {out}: {problem.strerror}") from None
    return SUCCESS


def _prepare(channel: str, name: str, store: Path | None, *, ephemeral: bool) -> ChatFiles:
    """Everything that can fail before joining."""
    require_extra("chat")
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        raise UsageError("the chat needs a terminal; use `broadloom group join` in a pipe")
    try:
        return open_chat_files(channel, name, store, memory=ephemeral)
    except ChatStoreError as problem:
        raise UsageError(str(problem)) from None


async def _run_chat(channel: "Channel", name: str, files: ChatFiles) -> int:
    from broadloom.apps.chat.app import ChatApp
    from broadloom.apps.chat.chat_model import ChatModel
    from broadloom.groups import groups

    async with groups(channel, name, store=files.store) as own_groups:
        model = ChatModel(own_groups, files.read_state)
        try:
            with route_warnings_to(_NotificationHandler(model)):
                app = ChatApp(model, channel)
                await app.run_async()
            return app.return_code or SUCCESS
        finally:
            try:
                model.close()
            except OSError as problem:
                print_error("chat", f"cannot save which messages you have read: {problem}")


class _NotificationHandler(logging.Handler):
    """Shows warnings of the library in the chat; on standard error they would garble the screen."""

    def __init__(self, model: "ChatModel") -> None:
        super().__init__(logging.WARNING)
        self._model = model

    def emit(self, record: logging.LogRecord) -> None:
        self._model.add_notice(record.getMessage())
