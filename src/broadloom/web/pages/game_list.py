"""The games of a lobby with players, roles and score, to join or watch; and the programs that it offers."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from broadloom.apps.game.lobby import Activity, Listing, Lobby
from broadloom.apps.game.package import Package
from broadloom.web.pages.layout import guarded, hint_paragraph, paragraph, section

SHOWN_MAX = 100
"""Games; searching finds the others."""
PROGRAMS_MAX = 50

Enter = Callable[[str], Awaitable[None]]
"""Enters the game of this name."""


class GameList:
    """Rows stay in place, and only those that changed are sent to the browser: no click is lost."""

    def __init__(self, join: Enter, watch: Enter) -> None:
        self._join, self._watch = join, watch
        self._shown: tuple[int, str] | None = None
        self._lobby: Lobby | None = None
        self._rows: dict[tuple[str, str], GameRow] = {}
        """By name and owner."""
        with section("Games"):
            self._search = ui.input("Search by name, game or player")
            self._search.props("outlined dense clearable debounce=200 maxlength=200")
            self._search.on_value_change(guarded(self._show))
            self._found = paragraph("", "bl-quiet bl-small bl-found")
            self._found.props("role=status")
            self._list = ui.element("div").classes("bl-stack bl-game-list")

    def show(self, lobby: Lobby) -> None:
        self._lobby = lobby
        self._show()

    def _show(self) -> None:
        lobby, words = self._lobby, str(self._search.value or "").casefold().split()
        if lobby is None or (lobby.version, " ".join(words)) == self._shown:
            return
        self._shown = lobby.version, " ".join(words)
        listed = [(each, lobby.activity(each.name)) for each in lobby.games]
        found = [each for each in listed if _matches(words, *each)]
        found.sort(key=lambda each: (_rank(each[1]), each[0].name))
        self._found.set_text(_found_text(len(found), len(listed)))
        self._show_rows(lobby, found[:SHOWN_MAX])

    def _show_rows(self, lobby: Lobby, shown: list[tuple[Listing, Activity | None]]) -> None:
        for gone in self._rows.keys() - {(listing.name, listing.owner) for listing, _ in shown}:
            self._rows.pop(gone).element.delete()
        for index, (listing, activity) in enumerate(shown):
            key = listing.name, listing.owner
            row = self._rows.get(key)
            if row is None:
                with self._list:
                    row = self._rows[key] = GameRow(listing.name, self._join, self._watch)
            row.show(listing, activity, is_ambiguous=lobby.is_ambiguous(listing.name))
            if self._list.default_slot.children[index] is not row.element:
                row.element.move(target_index=index)


class GameRow:
    def __init__(self, name: str, join: Enter, watch: Enter) -> None:
        with ui.element("div").classes("bl-game") as self.element:
            with ui.element("div").classes("bl-who"):
                ui.label(name).classes("bl-guarantee")
                self._title = ui.label("").classes("bl-quiet bl-small")
            self._status = ui.label("").classes("bl-small")
            self._roles = ui.label("").classes("bl-quiet bl-small")
            with ui.element("div").classes("bl-do"):
                self._join = _chip("Join", name, partial(join, name))
                self._watch = _chip("Watch", name, partial(watch, name))

    def show(self, listing: Listing, activity: Activity | None, *, is_ambiguous: bool) -> None:
        """A text that has not changed is not sent again."""
        is_playable = listing.is_known and not is_ambiguous
        texts = [listing.title, *([f"one of several games of this name, by {listing.owner}"] if is_ambiguous else [])]
        self._title.set_text(" · ".join([*texts, *([] if is_playable else ["in the terminal"])]))
        self._status.set_text(_status_text(activity, listing.players))
        self._roles.set_text(_roles_text(activity) if activity is not None else "")
        phase = activity.phase if activity is not None else "unknown"
        if self.element.props.get("data-phase") != phase:
            self.element.props["data-phase"] = phase
            self.element.update()
        has_room = activity is None or activity.phase == "over" or bool(_free_roles(activity))
        self._join.set_visibility(is_playable and has_room)
        self._watch.set_visibility(is_playable)


class ProgramList:
    """Programs to download. None is ever run here."""

    def __init__(self) -> None:
        self._shown: list[tuple[Package, str]] = []
        with section("Programs") as self._section:
            hint_paragraph(
                "Other games of this lobby, to play in the terminal with `broadloom game join --program FILE`. A "
                "program can do everything that you can: read it, or compare its hash with somebody you trust.",
                "bl-small",
            )
            self._list = ui.element("div").classes("bl-stack bl-programs")
            self._more = paragraph("", "bl-quiet bl-small")
        self._section.set_visibility(False)

    def show(self, lobby: Lobby) -> None:
        packages = lobby.packages
        if packages == self._shown:
            return
        self._shown = packages
        self._section.set_visibility(bool(packages))
        more = len(packages) - PROGRAMS_MAX
        self._more.set_text(
            f"{more:,} more can be downloaded with the command broadloom game download." if more > 0 else ""
        )
        self._list.clear()
        with self._list:
            for package, publisher in packages[:PROGRAMS_MAX]:
                self._show_program(package, publisher)

    def _show_program(self, package: Package, publisher: str) -> None:
        with ui.element("article").classes("bl-program"):
            if package.picture:
                # As an image: a browser runs no script in it, and loads nothing that it refers to.
                source = b64encode(package.picture.encode()).decode()
                ui.element("img").props["src"] = f"data:image/svg+xml;base64,{source}"
            with ui.element("div"):
                with ui.element("div").classes("bl-who"):
                    ui.label(package.title).classes("bl-guarantee")
                    by = f"published by {publisher}" if publisher else "publisher not proven: the lobby has no tickets"
                    size = len(package.program.encode())
                    ui.label(f"{package.game} · {size:,} bytes · {by}").classes("bl-quiet bl-small")
                paragraph(package.about, "bl-small")
                paragraph(f"SHA-256 {package.sha256}", "bl-quiet bl-code")
                _chip("Download", package.game, partial(_download, package))


def _download(package: Package) -> None:
    ui.download.content(package.program.encode(), f"{package.game}.py", "text/x-python")


def _chip(text: str, name: str, act: Callable[[], Awaitable[None] | None]) -> ui.element:
    """A small button that acts on the thing of this name."""
    with ui.element("button").props("type=button").classes("bl-chip") as chip:
        ui.label(text)
    chip.props["aria-label"] = f"{text} {name}"
    return chip.on("click", guarded(act))


def _matches(words: list[str], listing: Listing, activity: Activity | None) -> bool:
    players = activity.players.values() if activity is not None else ()
    text = "\n".join((listing.name, listing.title, listing.game, *players)).casefold()
    return all(word in text for word in words)


def _rank(activity: Activity | None) -> int:
    """Games in which a player waits for others come first, then those with a free role, then those to watch."""
    if activity is None or not any(activity.players.values()):
        return 3
    if activity.phase == "over":
        return 4
    if not _free_roles(activity):
        return 2
    return 0 if activity.phase == "open" else 1


def _free_roles(activity: Activity) -> list[str]:
    """Roles without a player, or whose player is gone."""
    return [role for role, name in activity.players.items() if not name or role in activity.stand_ins]


def _found_text(found: int, listed: int) -> str:
    if not listed:
        return "None yet. Create one."
    games = f"{listed:,} game{'s' * (listed != 1)}"
    if found <= SHOWN_MAX:
        return f"{games}." if found == listed else f"{found:,} of {games}."
    if found == listed:
        return f"{SHOWN_MAX} of {games}. Search to find the others."
    return f"{SHOWN_MAX} of {found:,} found. Type more to find the others."


def _status_text(activity: Activity | None, roles: int) -> str:
    if activity is None:
        return f"no players · {roles} roles"
    players = sum(bool(name) for name in activity.players.values())
    result = f": {activity.result}" if activity.result else ""
    return f"{activity.phase}{result} · {players} of {len(activity.players)} players"


def _roles_text(activity: Activity) -> str:
    def player(role: str, name: str) -> str:
        if role in activity.stand_ins:
            return f"stand-in for {name}" if name else "stand-in"
        return name or "open"

    texts = (f"{role} {player(role, name)} {activity.score.get(role, '')}" for role, name in activity.players.items())
    return " · ".join(each.strip() for each in texts)
