"""`broadloom chat`: the threaded chat in the terminal, and exports of its history."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer.core import TyperGroup

from broadloom.apps.chat.storage import ChatFiles, open_chat_files, open_existing_store
from broadloom.cli.exit_codes import SUCCESS, UsageError
from broadloom.cli.options import JoinOptions, argument, command_group, option
from broadloom.cli.runner import StopSignal, command, joined_channel, print_error, route_warnings_to

if TYPE_CHECKING:
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
    machine and is there when you come back. Needs the extra `chat`.

    Examples:

    - `broadloom chat Anna`
    - `broadloom chat Anna --channel chat/club --bootstrap 10.0.0.5`
    - `broadloom chat export "Chess club" --format html --out club.html`
    """,
)

ChannelOption = Annotated[str, option("Channel of the chat.", "CHANNEL")]
StoreOption = Annotated[
    Path | None,
    option("SQLite file with the history. Default: a file in your data directory, for this name and channel.", "FILE"),
]


@command("chat join", chat, extra="chat")
async def join(
    stop: StopSignal,
    join_options: JoinOptions,
    name: Annotated[str, argument("Your display name.", "NAME")],
    channel: ChannelOption = LOBBY,
    store: StoreOption = None,
    ephemeral: Annotated[bool, option("Do not store anything; you get a new identity each time.")] = False,
) -> int:
    """Open the chat in this terminal.

    Press `?` in the chat for all keys, Ctrl-Q to quit. You remain a member of your groups when you quit, and receive
    what you missed when you come back.

    Examples:

    - `broadloom chat join Anna`
    - `broadloom chat join Anna --channel chat/club --bootstrap 10.0.0.5`
    - `broadloom chat join Anna --ephemeral`
    """
    joining = joined_channel(channel, join_options, stop)  # a missing ticket must not leave a new store behind
    files = _prepare(channel, name, store, ephemeral=ephemeral)
    try:
        async with joining as joined:
            stop.interrupt_is_success = True
            return await _run_chat(joined, name, files)
    finally:
        files.close()


@command("chat export", chat)
def export(
    group: Annotated[str, argument("Description or ID of the group.", "GROUP")],
    format: Annotated[str, option("Output format.", "md|json|html")] = "md",
    channel: ChannelOption = LOBBY,
    name: Annotated[str, option("Display name that the store belongs to, if there are several on this machine.")] = "",
    store: StoreOption = None,
    out: Annotated[Path | None, option("Output file. Default: standard output.", "FILE", "--out", "-o")] = None,
    json: Annotated[bool, option("Short for `--format json`.", None, "--json", "-j")] = False,
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
    with closing(open_existing_store(channel, name, store)) as history:
        exported_group = export_group(history, group)
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
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        raise UsageError("the chat needs a terminal; use `broadloom group join` in a pipe")
    return open_chat_files(channel, name, store, memory=ephemeral)


async def _run_chat(channel: "Channel", name: str, files: ChatFiles) -> int:
    from broadloom.apps.chat.app import ChatApp
    from broadloom.apps.chat.chat_model import ChatModel
    from broadloom.groups import Groups

    async with Groups(channel, name, store=files.store) as own_groups:
        model = ChatModel(own_groups, files.read_state)
        try:
            with route_warnings_to(model.add_notice):  # standard error would garble the screen
                app = ChatApp(model, channel)
                await app.run_async()
            return app.return_code or SUCCESS
        finally:
            try:
                model.close()
            except OSError as problem:
                print_error("chat", f"cannot save which messages you have read: {problem}")
