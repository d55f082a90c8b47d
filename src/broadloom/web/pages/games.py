"""The games page: running games with players, open roles and score; play or watch one. Each window is one player."""

import json
from functools import partial

from nicegui import events, ui

from broadloom.apps.game import GAMES, IllegalActionError
from broadloom.apps.game.lobby import Activity, Listing
from broadloom.web.game_client import GameClient, GamePlay, GameWindow
from broadloom.web.pages.game_board import GameBoard
from broadloom.web.pages.layout import button, empty_state, every, guarded, heading, keep_joining, paragraph, section
from broadloom.web.sources import Sources

LIST_REFRESH_S = 0.5
BOARD_REFRESH_S = 0.05
SHOWN_MAX = 100
PLAYERS = {2: "2 players", 3: "3 players", 4: "4 players"}


def build(sources: Sources) -> None:
    client = sources.game_client
    if not client.own_peer.is_available:
        heading("Games")
        empty_state(
            "No channel is joined here.", "Start `broadloom demo` or join a lobby: `broadloom web games/friday`."
        )
        return
    heading("Games", "Play with others, without a server. A second window is a second player.")
    client.start_joining()
    GamesPage(client)


class GamesPage:
    def __init__(self, client: GameClient) -> None:
        self._client = client
        self._window = GameWindow(client)
        self._shown: tuple[object, ...] = ()
        self._listed: list[tuple[Listing, Activity | None]] | None = None
        self._wait_label = paragraph("Joining the lobby …", "bl-quiet")
        with ui.element("div").classes("bl-cluster bl-games") as self._all:
            with ui.element("div").classes("bl-cluster-controls"):
                with section("You"), ui.element("div").classes("bl-stack"):
                    self._name = ui.input("Your name").props("outlined dense stack-label maxlength=40")
                with section("Games") as listing:
                    listing.props("aria-live=polite")
                    self._list = ui.element("div").classes("bl-stack")
                with section("New game"):
                    self._build_new_game()
            with ui.element("div").classes("bl-cluster-view"), section("Board") as self._play_section:
                self._title = paragraph("", "bl-quiet bl-game-title")
                self._title.props("role=status")
                self._board = GameBoard()
                self._board.on("typed", self._on_typed)
                self._problem = paragraph("", "bl-mistake-text bl-small")
                self._seats = ui.element("ol").classes("bl-seats").props('aria-label="Players"')
                with ui.element("div").classes("bl-do"):
                    self._start = button("Start", self._start_game, "start-game", is_primary=True)
                    button("Leave", self._leave, "leave-game")
        self._all.set_visibility(False)
        self._play_section.set_visibility(False)
        ui.context.client.on_delete(self._window.close)
        every(LIST_REFRESH_S, self._refresh_list)
        every(BOARD_REFRESH_S, self._refresh_board)

    def _build_new_game(self) -> None:
        kinds = {name: kind.title for name, kind in GAMES.items()}
        with ui.element("div").classes("bl-stack"):
            self._kind = ui.select(kinds, value=next(iter(kinds)), label="Game").props("outlined dense options-dense")
            about = paragraph("", "bl-quiet bl-small")
            about.bind_text_from(self._kind, "value", lambda name: GAMES[name].about)
            self._players = ui.select(PLAYERS, value=2, label="Players").props("outlined dense options-dense")
            self._new_name = ui.input("Name of the game").props("outlined dense stack-label maxlength=40")
        with ui.element("div").classes("bl-do"):
            button("Create and play", self._create, "create-game", is_primary=True)

    # -- actions

    def _player(self) -> str:
        name = str(self._name.value or "").strip()
        if not name:
            raise IllegalActionError("type your name first")
        return name

    async def _create(self) -> None:
        player, name = self._player(), str(self._new_name.value or "").strip()
        assert self._client.lobby is not None
        listing = await self._client.lobby.register(name, str(self._kind.value), int(self._players.value or 2))
        await self._enter(listing.name, player)

    async def _join(self, name: str) -> None:
        await self._enter(name, self._player())

    async def _watch(self, name: str) -> None:
        await self._enter(name, "")

    async def _enter(self, name: str, player: str) -> None:
        self._play_section.set_visibility(False)
        if await self._window.enter(name, player):
            self._problem.set_text("")
            self._play_section.set_visibility(True)

    async def _leave(self) -> None:
        self._play_section.set_visibility(False)
        await self._window.leave()

    async def _start_game(self) -> None:
        if self._window.entered is not None:
            await self._window.entered.play.start()

    async def _on_typed(self, event: events.GenericEventArguments) -> None:
        """An illegal action is no error of the page: say why, next to the board."""
        if self._window.entered is None:
            return
        self._problem.set_text("")
        try:
            await self._window.entered.play.typed(str(event.args))
        except IllegalActionError as problem:
            self._problem.set_text(str(problem))

    # -- showing

    def _refresh_list(self) -> None:
        lobby = self._client.lobby
        if lobby is None:
            keep_joining(self._client, self._wait_label)
            return
        self._wait_label.set_visibility(False)
        self._all.set_visibility(True)
        listed = [(each, lobby.activity(each.name)) for each in lobby.games][:SHOWN_MAX]
        if listed == self._listed:
            return
        self._listed = listed
        self._list.clear()
        with self._list:
            if not listed:
                paragraph("None yet. Create one.", "bl-quiet")
            for listing, activity in listed:
                self._show_listing(listing, activity)

    def _show_listing(self, listing: Listing, activity: Activity | None) -> None:
        players = activity.players if activity is not None else {}
        names = ", ".join(name for name in players.values() if name)
        free = [role for role, name in players.items() if not name]
        with ui.element("div").classes("bl-game").props(f"data-phase={activity.phase if activity else 'unknown'}"):
            with ui.element("div").classes("bl-who"):
                ui.label(listing.name).classes("bl-guarantee")
                ui.label(listing.title).classes("bl-quiet bl-small")
            score = ", ".join(f"{role} {points}" for role, points in activity.score.items()) if activity else ""
            texts = (
                activity.phase if activity else "asking …",
                f"players: {names}" if names else "no players",
                f"open: {', '.join(free)}" if free else "",
                f"stand-ins: {', '.join(activity.stand_ins)}" if activity and activity.stand_ins else "",
                score,
            )
            ui.label(" · ".join(filter(None, texts))).classes("bl-quiet bl-small")
            with ui.element("div").classes("bl-do"):
                for text, act in (("Join", self._join), ("Watch", self._watch)):
                    press = ui.element("button").props("type=button").classes("bl-chip")
                    press.props["aria-label"] = f"{text} {listing.name}"
                    with press:
                        ui.label(text)
                    press.on("click", guarded(partial(act, listing.name)))

    def _refresh_board(self) -> None:
        entered = self._window.entered
        if entered is None:
            return
        table = entered.play.table
        shown = (entered, entered.version, entered.play.role, table.phase)
        if shown == self._shown:
            return
        self._shown = shown
        play, game = entered.play, entered.play.game
        role = f"You are {play.role}." if play.role else "You watch."
        turn = game.turn(table.state) if table.state and table.phase.value == "running" else None
        if table.result is not None:
            text = f"Over: {table.result.text}."
        elif table.phase.value == "open":
            text = f"Waiting for players: {', '.join(table.open_roles())}. Start, and stand-ins play for them."
        else:
            whose = "your" if turn == play.role else f"{turn}'s"
            text = f"It is {whose} turn." if turn else f"Keys: {game.help}."
        self._title.set_text(f"{entered.name} · {role} {text}")
        self._start.set_visibility(table.phase.value != "running" and play.role is not None)
        self._start.set_text("Start" if table.round == 0 else "Play again")
        self._board.show(play)
        self._show_seats(entered, turn)

    def _show_seats(self, entered: GamePlay, turn: str | None) -> None:
        table, game = entered.play.table, entered.play.game
        score = game.score(table.state) if table.state else {}
        self._seats.clear()
        with self._seats:
            for role, seat in table.seats.items():
                with ui.element("li").props(f"data-color={json.dumps(role)}") as line:
                    line.classes("bl-turn" if role == turn else "")
                    ui.label(role).classes("bl-guarantee")
                    ui.label(seat.player_text)
                    ui.label(f"{score.get(role, 0)}").classes("bl-points")
