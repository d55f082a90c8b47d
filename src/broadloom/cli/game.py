"""`broadloom game`: list, register, join, watch, monitor and replay games; publish and download their programs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from broadloom.cli.exit_codes import SUCCESS, CommandFailedError, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, argument, command_group, option
from broadloom.cli.output import Output, console, print_json, print_result, table
from broadloom.cli.record import TapeOption, recorded
from broadloom.cli.runner import StopSignal, command, hint, joined_channel, report_end

if TYPE_CHECKING:
    from broadloom.apps.game.lobby import Activity, Listing, Lobby

game = command_group(
    "Play games without a server.\n\n"
    "A lobby is a channel on which games are registered; each game has a channel of its own.\n\n"
    "Examples:\n\n"
    "- `broadloom game join games/friday board-1 --game chain --as Ann`\n"
    "- `broadloom game list games/friday`\n"
    "- `broadloom game watch games/friday board-1`",
)

NameArgument = Annotated[str, argument("Name of the game in the lobby.", "NAME")]
ProgramOption = Annotated[
    Path | None, option("Run the program of a game first, such as a download: only a file that you trust.", "FILE")
]
OwnerOption = Annotated[
    str, option("Name on the ticket of its owner, if several members use the name.", "OWNER", "--from")
]
PlayersOption = Annotated[int, option("Number of roles.", "N", min=1)]


@command("game list", game)
async def list_games(
    stop: StopSignal, join_options: JoinOptions, channel: ChannelArgument, json: JsonOption = False
) -> None:
    """List the games of a lobby. Players and scores are those that a player or a monitor reports.

    Examples:

    - `broadloom game list games/friday --json`
    """
    async with _lobby(channel, join_options, stop) as lobby:
        found = [(each, lobby.activity(each.name)) for each in lobby.games]
    if json:
        for listing, activity in found:
            print_json(_fields(listing, activity))
        return
    rows = table(["name", "game", "state", "players", "open roles", "score"])
    for listing, activity in found:
        cells = (listing.name, _game_text(listing), *_activity_texts(activity))
        rows.add_row(*(Text(escape_control_chars(each)) for each in cells))
    if not found:
        rows.add_row(Text("none", style="dim"))
    console().print(rows)


@command("game show", game)
async def show(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameArgument,
    owner: OwnerOption = "",
    json: JsonOption = False,
) -> None:
    """Show one game: its channel, players, open roles and score.

    Examples:

    - `broadloom game show games/friday board-1`
    """
    async with _lobby(channel, join_options, stop) as lobby:
        listing = await lobby.find(name, owner)
        fields = _fields(listing, lobby.activity(name))
    if json:
        print_json(fields)
        return
    rows = table(["", ""])
    for key, value in fields.items():
        text = ", ".join(f"{one}: {two}" for one, two in value.items()) if isinstance(value, dict) else value
        rows.add_row(Text(key), Text(escape_control_chars(str(text))))
    console().print(rows)


@command("game register", game)
async def register(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameArgument,
    kind: Annotated[str, argument("`chain` (in turns), `gems` (in real time), or the game of `--program`.", "GAME")],
    players: PlayersOption = 2,
    title: Annotated[str, option("A line for the list.", "TEXT")] = "",
    program: ProgramOption = None,
    json: JsonOption = False,
) -> None:
    """Register a game in a lobby, where it stays while members, such as a monitor, or a keeper are there.

    Examples:

    - `broadloom game register games/friday board-1 chain --players 3`
    """
    _load(program)
    async with _kept_by_others(channel, join_options, stop) as lobby:
        listing = await lobby.register(name, kind, players, title)
    print_result(asdict(listing), f"registered {escape_control_chars(name)}: {listing.channel}", json=json)


@command("game join", game)
async def join(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameArgument,
    kind: Annotated[str, option("Register it as this kind of game, if it is not there yet.", "GAME", "--game")] = "",
    players: PlayersOption = 2,
    role: Annotated[str, option("Role to take. Default: any that is free.", "ROLE")] = "*",
    owner: OwnerOption = "",
    program: ProgramOption = None,
    log: Annotated[Path | None, option("Write a game log, for `game replay`.", "FILE")] = None,
    tape: TapeOption = None,
    json: JsonOption = False,
) -> int:
    """Play: take a role, type actions, see what the others do. You need a name: `--as`, or a ticket.

    Standard input has one action per line: those of the game, and `start`, `quit`, `say NAME[,NAME] TEXT`. Real-time
    games at a terminal read single keys: `r` starts, `q` leaves.

    Examples:

    - `broadloom game join games/friday board-1 --game chain --as Ann`
    - `broadloom game join games/friday maze --game gems --players 4 --as Bob --role blue`
    """
    if role and not join_options.member_name.strip() and join_options.ticket is None:
        raise UsageError("a player needs a name: --as NAME, or --ticket")
    _load(program)
    return await _play(
        stop, join_options, channel, name, role,
        owner=owner, kind=kind, players=players, log=log, tape=tape, json=json,
    )  # fmt: skip


@command("game watch", game)
async def watch(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameArgument,
    owner: OwnerOption = "",
    program: ProgramOption = None,
    log: Annotated[Path | None, option("Write a game log, for `game replay`.", "FILE")] = None,
    tape: TapeOption = None,
    json: JsonOption = False,
) -> int:
    """Watch a game until interrupted.

    Examples:

    - `broadloom game watch games/friday board-1`
    """
    _load(program)
    return await _play(stop, join_options, channel, name, "", owner=owner, log=log, tape=tape, json=json)


@command("game publish", game)
async def publish(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    file: Annotated[Path, argument("The program: a Python file with one game.", "FILE")],
    picture: Annotated[Path | None, option("An SVG image.", "FILE")] = None,
    json: JsonOption = False,
) -> None:
    """Publish the program of a game in a lobby, for others to download. It stays as a registered game does.

    Examples:

    - `broadloom game publish games/friday nim.py --picture nim.svg`
    """
    async with _kept_by_others(channel, join_options, stop) as lobby:
        with usage_errors():
            package = await lobby.publish(file, picture)
    values = {"game": package.game, "title": package.title, "sha256": package.sha256}
    print_result(values, f"published {escape_control_chars(package.game)}: {package.sha256}", json=json)


@command("game download", game)
async def download(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    kind: Annotated[str, argument("The game.", "GAME")],
    owner: OwnerOption = "",
    out: Annotated[Path | None, option("File for the program. Default: a new GAME.py here.", "FILE")] = None,
    picture: Annotated[Path | None, option("File for its picture, an SVG image.", "FILE")] = None,
    json: JsonOption = False,
) -> None:
    """Download the program of a game from a lobby, without running it.

    Any member can publish a program, and it can do everything that you can. Read it, or compare its hash with one
    from somebody you trust, before you pass it to `game join --program`.

    Examples:

    - `broadloom game download games/friday nim`
    - `broadloom game download games/friday nim --out nim.py --picture nim.svg`
    """
    path = out or Path(f"{kind}.py")
    if out is None and path.exists():
        raise UsageError(f"{path} exists: choose a file with --out")
    async with _lobby(channel, join_options, stop) as lobby:
        package = lobby.package(kind, owner)
    path.write_bytes(package.program.encode())  # with its own line ends, which the hash covers
    if picture is not None:
        picture.write_bytes(package.picture.encode())
    values = {"game": kind, "title": package.title, "about": package.about, "sha256": package.sha256}
    print_result({**values, "file": str(path)}, f"{path}: {package.sha256}, not run; read it first", json=json)


@command("game monitor", game)
async def monitor(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    program: ProgramOption = None,
    json: JsonOption = False,
) -> None:
    """Watch the games of a lobby that no player reports, and report them there. Runs until interrupted.

    It watches 256 games at most; a monitor that is started later takes the next ones.

    Examples:

    - `broadloom game monitor games/friday`
    """
    from broadloom.apps.game.monitor import monitoring

    _load(program)
    async with _lobby(channel, join_options, stop) as lobby, monitoring(lobby, replace(join_options, port=0).connect):
        stop.interrupt_is_success = True
        fields = {"event": "monitoring", "channel": channel, "games": len(lobby.games)}
        print_result(fields, f"monitoring {escape_control_chars(channel)}: {len(lobby.games):,} games", json=json)
        await asyncio.Event().wait()


@command("game replay", game)
def replay(
    file: Annotated[Path, argument("Game log of `join --log` or `watch --log`, or a tape with payloads.", "FILE")],
    program: ProgramOption = None,
    number: Annotated[int | None, option("Which of several games on a tape.", "N", min=1)] = None,
    json: JsonOption = False,
) -> None:
    """Replay a game log: print its actions, and the final state with its hash.

    A tape with payloads (`join --tape`, a directory or one of its files) has the log, too. Exit status 1 if the hash
    differs from the one that the player had.

    Examples:

    - `broadloom game replay ann.log`
    - `broadloom game replay tapes --number 2`
    """
    from broadloom.apps.game import replay as replay_log
    from broadloom.cli.game_screen import board_text, table_text

    _load(program)
    last = None
    for last in replay_log(file, number=number):
        if json or last.entry is None:
            continue
        entry = last.entry
        problem = last.timeline.problem(entry)
        values = " ".join(f"{name}={value}" for name, value in entry.values.items())
        text = f"{entry.time:>6} {entry.kind} {entry.role} {entry.name} {values}{f' ({problem})' if problem else ''}"
        print(escape_control_chars(text))
    if last is None:
        raise CommandFailedError(f"{file} has no actions")
    final, made = last.timeline.tip, last.timeline.game
    fields = {"hash": final.hash(), "recorded_hash": last.recorded_hash or None, **final.as_dict()}
    try:
        board = board_text(made.board(final.state), is_colored=False) if final.state else ""
        seats = table_text(made, final)
    except (KeyError, TypeError, ValueError, IndexError):
        raise CommandFailedError(f"{file} does not end with a state of this game: it was changed") from None
    print_result(fields, f"\n{board}\n\n{seats}\n{final.hash()}", json=json)
    if last.recorded_hash not in ("", final.hash()):
        raise CommandFailedError(f"the player had the state {last.recorded_hash}: the log or the rules were changed")


def _load(program: Path | None) -> None:
    from broadloom.apps.game.package import load_program

    if program is not None:
        with usage_errors():
            load_program(program)


async def _play(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: str,
    name: str,
    role: str,
    *,
    owner: str,
    kind: str = "",
    players: int = 2,
    log: Path | None,
    tape: Path | None,
    json: bool,
) -> int:
    from broadloom.apps.game import Play
    from broadloom.apps.game.monitor import reporting
    from broadloom.cli.game_screen import GameScreen

    async with _lobby(channel, join_options, stop) as lobby:
        if kind and name not in {each.name for each in lobby.games}:
            await lobby.register(name, kind, players)
        listing = await lobby.find(name, owner)
        async with (
            recorded(tape) as recording,
            # --port is the lobby's
            joined_channel(listing.channel, replace(join_options, port=0), stop, tape=recording) as joined,
            Play(joined, listing.make_game(), role=role, log_file=log) as play,
            reporting(lobby, name, play),
            Output(stop) as out,
        ):
            stop.interrupt_is_success = True
            hint(f"{name}: {play.role or 'watching'}")
            screen = GameScreen(play, out, json=json)
            tasks = [asyncio.create_task(screen.show_changes())]
            if role:
                tasks.append(asyncio.create_task(screen.read_input()))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # raises the reason, if there is one
                return report_end(stop.command, joined) if tasks[0] in done else SUCCESS
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _lobby(channel: str, join_options: JoinOptions, stop: StopSignal) -> "AsyncIterator[Lobby]":
    from broadloom.apps.game.lobby import opened

    async with joined_channel(channel, join_options, stop) as joined, opened(joined) as lobby:
        yield lobby


@asynccontextmanager
async def _kept_by_others(channel: str, join_options: JoinOptions, stop: StopSignal) -> "AsyncIterator[Lobby]":
    """For what stays in the lobby when this command ends."""
    async with _lobby(channel, join_options, stop) as lobby:
        if len(lobby.channel.members()) < 2:
            raise CommandFailedError(
                f"nobody else is on {channel}, so it would be forgotten: start `broadloom game monitor {channel}` first"
            )
        yield lobby


def _fields(listing: "Listing", activity: "Activity | None") -> dict[str, Any]:
    return {**asdict(listing), **({"activity": asdict(activity)} if activity is not None else {"activity": None})}


def _game_text(listing: "Listing") -> str:
    owner = f"by {listing.owner}" if listing.owner else ""
    return " · ".join(filter(None, (listing.title, listing.program[:12], owner)))


def _activity_texts(activity: "Activity | None") -> tuple[str, ...]:
    if activity is None:
        return "unknown", "", "", ""
    return (
        activity.phase,
        ", ".join(name for name in activity.players.values() if name),
        ", ".join(role for role, name in activity.players.items() if not name),
        ", ".join(f"{role} {points}" for role, points in activity.score.items()),
    )
