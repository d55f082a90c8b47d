"""A game in the terminal: the board, drawn again at each change, and what the player types."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from broadloom.cli.formatting import escape_control_chars, json_line
from broadloom.cli.output import Output, input_chunks, input_lines
from broadloom.cli.prompt import at_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broadloom.apps.game import Cell, Change, Game, Play, Table

HOME_AND_CLEAR = "\x1b[H\x1b[J"
COLORS = {"red": 31, "blue": 34, "green": 32, "yellow": 33}
ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
ARROW_LENGTH = 3
PEER_ID_MIN = 1 << 32
"""Larger numbers are ids."""
COMMANDS = "start: start the game, or a rematch. quit: leave it. say NAME[,NAME] TEXT: tell players something."
SAY_WORDS = 3
KEY_COMMANDS = "r: start the game, or a rematch. q: leave it."


def board_text(board: "list[list[Cell]]", *, is_colored: bool) -> str:
    """Rows and columns are labeled, as a player types them."""
    width = len(board[0]) if board else 0
    lines = ["   " + "".join(f" {chr(ord('a') + x)} " for x in range(width))]
    for number, row in enumerate(board, 1):
        lines.append(f"{number:>2} " + "".join(_cell_text(cell, is_colored=is_colored) for cell in row))
    return "\n".join(lines)


def _cell_text(cell: "Cell", *, is_colored: bool) -> str:
    initial = cell.role[:1].upper()
    match cell.kind:
        case "wall":
            return "███"
        case "gem":
            text = " ◆ "
        case "player":
            text = f"({initial})"
        case "orbs" if cell.number:
            text = f" {cell.number} " if is_colored else f"{initial}{cell.number} "
        case _:
            return " · "
    color = COLORS.get(cell.role, 36)
    return f"\x1b[1;{color}m{text}\x1b[0m" if is_colored else text


def table_text(game: "Game", table: "Table") -> str:
    """One line per role: its player, and the score."""
    score = game.score(table.state) if table.state else {}
    turn = game.turn(table.state) if table.state and table.phase == "running" else None
    lines = []
    for role, seat in table.seats.items():
        player = escape_control_chars(seat.player_text)
        lines.append(f"{'>' if role == turn else ' '} {role:<10} {score.get(role, 0):>4}  {player}")
    if table.result is not None:
        lines.append(f"over: {escape_control_chars(table.result.text)}")
    return "\n".join([*lines, f"  {table.phase}"])


def change_text(change: "Change") -> str:
    """One line."""
    from broadloom.apps.game import Action, Result

    texts = [type(change).__name__.lower()]
    for value in change:
        match value:
            case Action(name, values):
                texts += [name, *(f"{key}={each}" for key, each in values.items())]
            case Result(_, text):
                texts.append(text)
            case int() if value > PEER_ID_MIN:
                texts.append(f"{value:016x}")
            case _:
                texts.append(str(value))
    return escape_control_chars(" ".join(texts))


class GameScreen:
    def __init__(self, play: "Play", out: Output, *, json: bool) -> None:
        self._play = play
        self._out = out
        self._json = json
        self._at_terminal = at_terminal() and not json
        self._is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._notice = ""

    async def show_changes(self) -> None:
        """Until the game is left."""
        self.draw()
        async for change in self._play:
            if self._json:
                await self._out.write(json_line(self._fields(change)) + "\n")
            elif self._at_terminal:
                if type(change).__name__ in ("Said", "Refused", "Diverged", "Rewound", "Missed"):
                    self._notice = change_text(change)
                self.draw()
            else:
                await self._out.write(f"{change_text(change)}\n")

    def _fields(self, change: Any) -> dict[str, Any]:
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in change._asdict().items()}
        return {"change": type(change).__name__, **values, "hash": self._play.state_hash()}

    def draw(self) -> None:
        if not self._at_terminal:
            return
        play, game = self._play, self._play.game
        state = play.state
        board = board_text(game.board(state), is_colored=self._is_colored) if state else ""
        own = f"You are {play.role}. Type {game.help}." if play.role else "You watch. Ctrl-C ends."
        commands = (KEY_COMMANDS if self._reads_keys() else COMMANDS) if play.role else ""
        text = f"{game.title}\n\n{board}\n\n{table_text(game, play.table)}\n\n{own}\n{commands}\n{self._notice}\n"
        self._out.put(HOME_AND_CLEAR + text.replace("\n", "\r\n"))

    async def read_input(self) -> None:
        """Until the end of the input, or `quit`."""
        async for text in self._inputs():
            if text == "quit":
                return
            self._notice = ""
            await self._act(text)
            self.draw()

    async def _act(self, text: str) -> None:
        from broadloom.apps.game import GameError
        from broadloom.errors import BroadloomError

        try:
            words = text.split(maxsplit=2)
            if text == "start":
                await self._play.start()
            elif words and words[0] == "say":
                if len(words) < SAY_WORDS:
                    raise GameError("say NAME[,NAME] TEXT: a message needs a player and a text")
                await self._play.tell([each for each in words[1].split(",") if each], words[2])
            else:
                await self._play.typed(text)
        except (BroadloomError, ValueError) as problem:  # a `ValueError`: values of an action that cannot be sent
            self._notice = escape_control_chars(str(problem))
            if not self._at_terminal:
                fields = {"change": "Problem", "text": str(problem)}
                await self._out.write(f"{json_line(fields) if self._json else f'! {self._notice}'}\n")

    def _reads_keys(self) -> bool:
        from broadloom.apps.game import Input

        return self._play.game.input is Input.KEYS and self._at_terminal

    async def _inputs(self) -> AsyncIterator[str]:
        if not self._reads_keys():
            async for line in input_lines():
                yield line.decode(errors="replace").strip()
            return
        with _keys():
            rest = ""
            async for chunk in input_chunks():
                rest += chunk.decode(errors="replace")
                while rest:
                    length = ARROW_LENGTH if rest.startswith("\x1b[") else 1
                    if len(rest) < length:
                        break
                    key, rest = rest[:length], rest[length:]
                    yield {"q": "quit", "r": "start", " ": "space"}.get(key) or ARROWS.get(key, key)


@contextmanager
def _keys() -> "Iterator[None]":
    """Read single keys."""
    from broadloom.cli.prompt import _raw_mode

    with _raw_mode() if sys.stdin.isatty() else nullcontext():
        yield
