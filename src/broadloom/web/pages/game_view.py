"""One game on the games page: the board, the players, and a replay of the round with a slider."""

import json

from nicegui import events, ui

from broadloom.apps.game import IllegalActionError, Phase, Play, Table
from broadloom.apps.game.entry import Entry, Kind
from broadloom.web.game_client import GamePlay, GameWindow
from broadloom.web.pages.game_board import GameBoard
from broadloom.web.pages.layout import button, empty_state, every, guarded, paragraph

BOARD_REFRESH_S = 0.05


class Replay:
    """The latest round of a game, action by action."""

    def __init__(self, play: Play) -> None:
        self._play = play
        entries = play.latest_round()
        first = next((at for at, each in enumerate(entries) if each.kind is Kind.ACT), len(entries))
        self.steps = [*entries[:first][-1:], *(each for each in entries[first:] if each.kind is Kind.ACT)]
        """What the board looked like before the first action, if that is still known, and after each."""

    def table(self, step: int) -> Table | None:
        """None if that is too long ago by now."""
        return self._play.table_at(self.steps[step])

    def text(self, step: int) -> str:
        entry = self.steps[step]
        return f"{step} of {len(self.steps) - 1}: {_action_text(entry)}"


class GameView:
    def __init__(self, window: GameWindow) -> None:
        self._window = window
        self._shown: tuple[object, ...] = ()
        self._replay: Replay | None = None
        with ui.element("section").classes("bl-section") as self._section:
            with ui.element("h2"):
                self._name = ui.label("")
            with ui.element("div").classes("bl-playing"):
                with ui.element("div"):
                    self._board = GameBoard()
                    self._board.on("typed", self._on_typed)
                with ui.element("div").classes("bl-play-side"):
                    self._title = paragraph("", "bl-game-title")
                    self._title.props("role=status")
                    self._problem = paragraph("", "bl-mistake-text bl-small")
                    self._seats = ui.element("ol").classes("bl-seats").props('aria-label="Players"')
                    self._build_buttons()
        with ui.element("div") as self._empty:
            empty_state("No game is chosen.", "Join or watch one, or create one.")
        self._section.set_visibility(False)
        every(BOARD_REFRESH_S, self._refresh)

    def _build_buttons(self) -> None:
        with ui.element("div").classes("bl-do") as self._live_buttons:
            self._start = button("Start", self._start_game, "start-game", is_primary=True)
            self._begin = button("Replay", self._begin_replay, "replay-game")
            button("Leave", self.leave, "leave-game")
        with ui.element("div") as self._replay_buttons:
            self._slider = ui.slider(min=0, max=1, step=1).props('aria-label="Action"')
            self._slider.on_value_change(guarded(self._refresh))
            with ui.element("div").classes("bl-do"):
                button("Previous", lambda: self._step(-1), "previous-action")
                button("Next", lambda: self._step(1), "next-action")
                button("Back to the game", self._end_replay, "end-replay")
        self._replay_buttons.set_visibility(False)

    # -- actions

    async def enter(self, name: str, player: str) -> None:
        self._show_section(False)
        if await self._window.enter(name, player):
            self._problem.set_text("")
            self._show_section(True)

    async def leave(self) -> None:
        self._show_section(False)
        await self._window.leave()

    def _show_section(self, is_shown: bool) -> None:
        self._end_replay()
        self._section.set_visibility(is_shown)
        self._empty.set_visibility(not is_shown)

    async def _start_game(self) -> None:
        if self._window.entered is not None:
            await self._window.entered.play.start()

    async def _on_typed(self, event: events.GenericEventArguments) -> None:
        """An illegal action is no error of the page: say why, next to the board."""
        if self._window.entered is None or self._replay is not None:
            return
        self._problem.set_text("")
        try:
            await self._window.entered.play.typed(str(event.args))
        except IllegalActionError as problem:
            self._problem.set_text(str(problem))

    def _begin_replay(self) -> None:
        if self._window.entered is None:
            return
        replay = Replay(self._window.entered.play)
        if len(replay.steps) < 2:
            self._problem.set_text("there is no action to replay yet")
            return
        self._replay = replay
        self._slider.props["max"] = len(replay.steps) - 1
        self._slider.set_value(0)
        self._slider.update()
        self._show_buttons()

    def _end_replay(self) -> None:
        self._replay = None
        self._show_buttons()

    def _show_buttons(self) -> None:
        self._shown = ()
        self._live_buttons.set_visibility(self._replay is None)
        self._replay_buttons.set_visibility(self._replay is not None)

    def _step(self, by: int) -> None:
        if self._replay is not None:
            self._slider.set_value(min(max(int(self._slider.value or 0) + by, 0), len(self._replay.steps) - 1))

    # -- showing

    def _refresh(self) -> None:
        entered = self._window.entered
        if entered is None:
            return
        replay, step = self._replay, int(self._slider.value or 0)
        step = min(step, len(replay.steps) - 1) if replay is not None else step
        live = entered.play.table
        shown = (entered, replay, step) if replay else (entered, entered.version, entered.play.role, live.phase)
        if shown == self._shown:
            return
        self._shown = shown
        self._name.set_text(f"{entered.name} · {entered.play.game.title}")
        if replay is None:
            self._show_table(entered, live, _status_text(entered), is_live=True)
        elif (table := replay.table(step)) is not None:
            self._show_table(entered, table, f"Replay, action {replay.text(step)}", is_live=False)
        else:
            self._end_replay()

    def _show_table(self, entered: GamePlay, table: Table, text: str, *, is_live: bool) -> None:
        play = entered.play
        self._title.set_text(text)
        self._start.set_visibility(table.phase is not Phase.RUNNING and play.role is not None)
        self._start.set_text("Start" if table.round == 0 else "Play again")
        self._begin.set_visibility(table.round > 0)
        self._board.show(play.game, table, play.role, is_live=is_live)
        self._show_seats(entered, table)

    def _show_seats(self, entered: GamePlay, table: Table) -> None:
        game = entered.play.game
        score = game.score(table.state) if table.state else {}
        turn = _turn(entered, table)
        self._seats.clear()
        with self._seats:
            for role, seat in table.seats.items():
                with ui.element("li").props(f"data-color={json.dumps(role)}") as line:
                    line.classes("bl-turn" if role == turn else "")
                    ui.label(role).classes("bl-guarantee")
                    ui.label(seat.player_text)
                    ui.label(f"{score.get(role, 0)}").classes("bl-points")


def _turn(entered: GamePlay, table: Table) -> str | None:
    return entered.play.game.turn(table.state) if table.state and table.phase is Phase.RUNNING else None


def _status_text(entered: GamePlay) -> str:
    play, table = entered.play, entered.play.table
    role = f"You are {play.role}." if play.role else "You watch."
    turn = _turn(entered, table)
    if table.result is not None:
        text = f"Over: {table.result.text}."
    elif table.phase is Phase.OPEN:
        text = f"Waiting for players: {', '.join(table.open_roles())}. Start, and stand-ins play for them."
    else:
        whose = "your" if turn == play.role else f"{turn}'s"
        text = f"It is {whose} turn." if turn else f"Keys: {play.game.help}."
    return f"{role} {text}"


def _action_text(entry: Entry) -> str:
    if entry.kind is not Kind.ACT:
        return "the start"
    values = " ".join(f"{name}={value}" for name, value in entry.values.items())
    return f"{entry.role} {entry.name} {values}".strip()
