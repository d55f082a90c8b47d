"""`broadloom switch`: send requests and notices that find their program, handle and observe them, host programs."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars, json_line
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, argument, command_group, option
from broadloom.cli.output import Output, argument_data, console, print_json, table
from broadloom.cli.runner import StopSignal, command, hint, joined_channel, print_error
from broadloom.cli.switch_formatting import (
    message_fields,
    message_line,
    pattern_fields,
    registration_fields,
    registration_table,
    step_line,
    stored_message,
)
from broadloom.switch import (
    Disposition,
    HandledRequest,
    MessageState,
    RequestFailedError,
    Scope,
    SqliteQueue,
    Switch,
    SwitchReply,
    load_program_types,
)
from broadloom.switch.command_handler import run_command

COMPLETE_TIMEOUT_S = 10.0
"""Maximum time until all registrations must be known."""
SCOPES = "|".join(scope.name.lower() for scope in Scope)
DISPOSITIONS = "|".join(each.name.lower() for each in Disposition if each.value)

switch = command_group(
    "Send requests and notices that find their program, and handle or observe them.\n\n"
    "A message names an operation and a scope: a session, a file, or both. At most one program handles it, and any "
    "number observe it.\n\n"
    "Examples:\n\n"
    "- `broadloom switch handle office/hq upper --session anna -- tr a-z A-Z`\n"
    "- `broadloom switch request office/hq upper hello --session anna`"
)

SessionOption = Annotated[
    str | None, option("Session. Default: the name on your ticket, or your login name and host.", "NAME")
]
FileOption = Annotated[str | None, option("File, or any other name of what the message is about.", "NAME")]
ScopeOption = Annotated[str | None, option("Scope. Default: the file if there is one, else the session.", SCOPES)]
AbsentOption = Annotated[
    str | None, option("For a program that does not run. Default: as its type defines.", DISPOSITIONS)
]
OperationArgument = Annotated[str, argument("What is to be done, as in `put_contents`.", "OPERATION")]
DataArgument = Annotated[str, argument("The data. With `-`: the whole input.", "[DATA]")]
WaitOption = Annotated[float, option("Maximum time to wait for the reply.", "SECONDS", min=0.001)]


@command("switch request", switch)
async def request(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    operation: OperationArgument,
    data: DataArgument = "",
    session: SessionOption = None,
    file: FileOption = None,
    scope: ScopeOption = None,
    absent: AbsentOption = None,
    retry: Annotated[bool, option("If the handler dies with the request, ask another one.")] = False,
    wait: WaitOption = 10.0,
    all: Annotated[bool, option("Ask every program that handles this, and print all replies.")] = False,
    follow: Annotated[bool, option("Print each state of the request.")] = False,
    json: JsonOption = False,
) -> int:
    """Send a request and print the reply.

    Exit status 1 if the request fails; the reason is printed as an error. With --all, exit status 1 if there is no
    reply, or if a program fails.

    Examples:

    - `broadloom switch request office/hq create_object box --session anna`
    - `cat notes.txt | broadloom switch request office/hq put_contents - --file notes`
    - `broadloom switch request office/hq convert --file notes --absent start --follow`
    - `broadloom switch request office/hq who_is_online --session anna --all --json`
    """
    if all and (follow or absent or retry):
        raise UsageError("--all excludes --follow, --absent and --retry")
    payload = await argument_data(data)
    options: dict[str, Any] = {"file": file, "scope": scope, "timeout_s": wait}
    async with _joined_switch(channel, join_options, stop, session) as opened:
        with usage_errors():
            if all:
                return await _print_all(opened, operation, payload, options, json=json)
            options |= {"absent": absent, "if_lost": "next" if retry else "fail"}
            end: SwitchReply | None = None
            if follow:
                async for step in opened.follow(operation, payload, **options):
                    print(json_line(step.as_dict()) if json else step_line(step), flush=True)
                    end = step
            else:
                try:
                    end = await opened.request(operation, payload, **options)
                except RequestFailedError as problem:
                    end = problem.reply
                    if not json:
                        print_error("switch request", str(problem))
                if json:
                    print_json(end.as_dict())
                elif end.state is MessageState.HANDLED:
                    _print_data(end.data)
    return SUCCESS if end is not None and end.state is MessageState.HANDLED else FAILURE


@command("switch notify", switch)
async def notify(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    operation: OperationArgument,
    data: DataArgument = "",
    session: SessionOption = None,
    file: FileOption = None,
    scope: ScopeOption = None,
    absent: AbsentOption = None,
    json: JsonOption = False,
) -> None:
    """Send a notice to all observers and to at most one handler.

    There is no reply. Prints `handled`, `queued`, or `sent` if there is no handler.

    Examples:

    - `broadloom switch notify office/hq saved --file notes`
    - `broadloom switch notify office/hq print report.pdf --session anna --absent queue --json`
    """
    payload = await argument_data(data)
    async with _joined_switch(channel, join_options, stop, session) as opened:
        with usage_errors():
            state = await opened.notify(operation, payload, file=file, scope=scope, absent=absent)
    print(json_line({"operation": operation, "state": state.name.lower()}) if json else state.name.lower())


@command("switch handle", switch)
async def handle(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    operation: OperationArgument,
    words: Annotated[list[str], argument("Command for each request, after `--`. No shell is used.", "COMMAND...")],
    session: SessionOption = None,
    file: FileOption = None,
    scope: ScopeOption = None,
    program: Annotated[str | None, option("Program type, for messages that were queued for it.", "NAME")] = None,
    rank: Annotated[int, option("Of several handlers, the one with the highest rank is asked.", "N")] = 0,
    concurrency: Annotated[int, option("Requests that are handled at a time.", "N", min=1)] = 1,
    json: JsonOption = False,
) -> None:
    """Handle an operation with a command, until interrupted.

    The command gets the data as its input, and what it prints is the reply. If it exits with another status than 0, the
    request fails with the end of its error output. With `--json`, a line says that the handler is registered, and each
    further one how a request ended.

    Examples:

    - `broadloom switch handle office/hq upper --session anna -- tr a-z A-Z`
    - `broadloom switch handle office/hq convert --file notes --rank 5 -- pandoc -t html`
    """

    def report(state: str) -> None:
        if json:
            print_json({"operation": operation, "state": state})

    async def run(handled: HandledRequest) -> bytes:
        try:
            reply = await run_command(words, handled)
        except BaseException:
            report("failed")
            raise
        report("handled")
        return reply

    async with _joined_switch(channel, join_options, stop, session, program=program) as opened:
        stop.interrupt_is_success = True
        with usage_errors():
            opened.handle(operation, file=file, scope=scope, rank=rank, concurrency=concurrency)(run)
        report("ready")
        hint(f"handling {escape_control_chars(operation)} as {opened.session}; Ctrl-C stops")
        await asyncio.get_running_loop().create_future()


@command("switch observe", switch)
async def observe(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    operation: Annotated[list[str] | None, argument("Only these operations. Default: all.", "[OPERATION]...")] = None,
    session: SessionOption = None,
    file: Annotated[
        list[str] | None, option("Only messages about this file; repeatable. Joins the file.", "NAME")
    ] = None,
    scope: ScopeOption = None,
    state: Annotated[
        str | None, option("Only messages in this state.", "sent|queued|started|accepted|handled|failed")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print messages as they are sent, handled or fail, until interrupted.

    Messages of other sessions are seen only if they are about a file that you name.

    Examples:

    - `broadloom switch observe office/hq --session anna`
    - `broadloom switch observe office/hq saved put_contents --file notes --state handled --json`
    """
    async with _joined_switch(channel, join_options, stop, session) as opened, Output(stop) as out:
        stop.interrupt_is_success = True
        with usage_errors():
            observer = opened.observe(operation or None, file=file or None, scope=scope, state=state)
        hint(f"observing as {opened.session}; Ctrl-C stops")
        async for message in observer:
            await out.write(f"{json_line(message_fields(message)) if json else message_line(message)}\n")


@command("switch list", switch)
async def list_registrations(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    json: JsonOption = False,
) -> int:
    """List which programs handle and observe what.

    Joins the channel for a moment, and does not list itself. Exit status 1 if the list is not complete after ten
    seconds.

    Examples:

    - `broadloom switch list office/hq`
    - `broadloom switch list office/hq --json | jq .session`
    """
    async with _joined_switch(channel, join_options, stop, None) as opened:
        try:
            await opened.wait_until_complete(COMPLETE_TIMEOUT_S)
            is_complete = True
        except TimeoutError:
            is_complete = False
        own = opened.channel.peer_id
        listed = [each for each in opened.registrations() if each.peer_id != own]
    if json:
        for registration in listed:
            print_json(registration_fields(registration))
    else:
        console().print(registration_table(listed))
    if not is_complete:
        print_error("switch list", f"the list is not complete after {COMPLETE_TIMEOUT_S:g} s")
        return FAILURE
    return SUCCESS


@command("switch host", switch)
async def host(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    programs: Annotated[Path, argument("TOML file of program types.", "PROGRAMS")],
    session: SessionOption = None,
    store: Annotated[Path | None, option("SQLite file for the queues. Default: in memory.", "FILE")] = None,
    json: JsonOption = False,
) -> None:
    """Start programs for requests, or queue messages for them, until interrupted.

    Only programs of the file are started, and only for the sessions that it allows. They end with this command. With
    `--json`, a line says that the programs are registered.

    Examples:

    - `broadloom switch host office/hq programs.toml --session anna --store queue.db`
    """
    _check_programs(programs)
    async with _joined_switch(channel, join_options, stop, session, programs=programs, store=store) as opened:
        stop.interrupt_is_success = True
        if json:
            print_json({"session": opened.session, "state": "ready"})
        hint(f"hosting programs of {opened.session}; Ctrl-C stops")
        await asyncio.get_running_loop().create_future()


@command("switch queue", switch)
def queue(
    store: Annotated[Path, argument("SQLite file of a host that does not run now.", "STORE")],
    drop: Annotated[str | None, option("Remove what is queued for this program.", "PROGRAM")] = None,
    json: JsonOption = False,
) -> None:
    """List the messages in a queue on disk, or remove some.

    Examples:

    - `broadloom switch queue queue.db`
    - `broadloom switch queue queue.db --drop starcalc --json`
    """
    if not store.exists():
        raise UsageError(f"{store}: no such file")
    opened = SqliteQueue(store)
    rows = table(["program", "operation", "file", "session", "bytes", "handed over"], right="bytes")
    try:
        for stored in opened.load():
            message = stored_message(stored.copy)
            if drop is not None and stored.program != drop:
                continue
            if drop is not None:
                opened.remove(stored.row)
            fields = {"program": stored.program, **message_fields(message), "is_handed_over": bool(stored.is_marked)}
            if json:
                print_json(fields)
            shown = [stored.program, message.operation, message.file, message.session]
            size, is_marked = str(len(message.data)), "yes" if stored.is_marked else ""
            rows.add_row(*map(escape_control_chars, shown), size, is_marked)
    finally:
        opened.close()
    if not json:
        console().print(rows)


@command("switch check", switch)
def check(
    programs: Annotated[Path, argument("TOML file of program types.", "PROGRAMS")],
    json: JsonOption = False,
) -> None:
    """Check a file of program types, and list what it defines.

    Exit status 2 if there is a mistake in it.

    Examples:

    - `broadloom switch check programs.toml`
    - `broadloom switch check programs.toml --json | jq .start`
    """
    types = _check_programs(programs)
    rows = table(["program", "operations", "absent", "command"])
    for kind in types.values():
        handles = [pattern_fields(pattern) for pattern in kind.handles]
        if json:
            print_json({"program": kind.name, "start": list(kind.start), "handles": handles})
        operations = sorted({each for pattern in kind.handles for each in pattern.operations})
        absent = sorted({pattern.disposition.name.lower() for pattern in kind.handles})
        shown = (kind.name, ", ".join(operations), ", ".join(absent), " ".join(kind.start))
        rows.add_row(*map(escape_control_chars, shown))
    if not json:
        console().print(rows)


# -- shared


@asynccontextmanager
async def _joined_switch(
    channel: str, join_options: JoinOptions, stop: StopSignal, session: str | None, **options: Any
) -> AsyncIterator[Switch]:
    async with joined_channel(channel, join_options, stop) as joined:
        with usage_errors():
            opened = Switch(joined, session=session, **options)
        async with opened:
            yield opened


def _check_programs(path: Path) -> dict[str, Any]:
    try:
        return dict(load_program_types(path))
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)) from None


async def _print_all(opened: Switch, operation: str, payload: bytes, options: dict[str, Any], *, json: bool) -> int:
    replies = [reply async for reply in opened.request_all(operation, payload, **options)]
    for reply in replies:
        print(json_line(reply.as_dict()) if json else step_line(reply), flush=True)
    if not replies:
        print_error("switch request", f"no program handles {operation!r}")
    return SUCCESS if replies and all(reply.state is MessageState.HANDLED for reply in replies) else FAILURE


def _print_data(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data if not data or data.endswith(b"\n") else data + b"\n")
    sys.stdout.buffer.flush()
