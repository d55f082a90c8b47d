"""The games page: games to join, watch, create and replay, and programs to download. Each window is one player."""

from nicegui import ui

from broadloom.apps.game import GAMES, IllegalActionError
from broadloom.web.game_client import GameClient, GameWindow
from broadloom.web.pages.game_list import GameList, ProgramList
from broadloom.web.pages.game_view import GameView
from broadloom.web.pages.layout import button, empty_state, every, heading, keep_joining, paragraph, section
from broadloom.web.sources import Sources

LIST_REFRESH_S = 0.5
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
        window = GameWindow(client)
        self._wait_label = paragraph("Joining the lobby …", "bl-quiet")
        with ui.element("div").classes("bl-cluster bl-games") as self._all:
            with ui.element("div").classes("bl-cluster-controls"):
                with section("You"), ui.element("div").classes("bl-stack"):
                    self._name = ui.input("Your name").props("outlined dense stack-label maxlength=40")
                self._list = GameList(self._join, self._watch)
                with section("New game"):
                    self._build_new_game()
            with ui.element("div").classes("bl-cluster-view"):
                self._view = GameView(window)
                self._programs = ProgramList()
        self._all.set_visibility(False)
        ui.context.client.on_delete(window.close)
        self._refresh()  # a timer would begin when the browser has shown the page
        every(LIST_REFRESH_S, self._refresh)

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

    def _player(self) -> str:
        name = str(self._name.value or "").strip()
        if not name:
            raise IllegalActionError("type your name first")
        return name

    async def _create(self) -> None:
        player, name = self._player(), str(self._new_name.value or "").strip()
        assert self._client.lobby is not None
        listing = await self._client.lobby.register(name, str(self._kind.value), int(self._players.value or 2))
        await self._view.enter(listing.name, player)

    async def _join(self, name: str) -> None:
        await self._view.enter(name, self._player())

    async def _watch(self, name: str) -> None:
        await self._view.enter(name, "")

    def _refresh(self) -> None:
        lobby = self._client.lobby
        if lobby is None:
            keep_joining(self._client, self._wait_label)
            return
        self._wait_label.set_visibility(False)
        self._all.set_visibility(True)
        self._list.show(lobby)
        self._programs.show(lobby)
