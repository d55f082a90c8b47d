"""The games page in a real browser: two windows are two players."""

from collections.abc import Iterator

import pytest

from tests.channel.joined import unique_name
from tests.web.browser import Browser, browsing
from tests.web.server import page, running_server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def write(browser: Browser, label: str, text: str) -> None:
    field = browser.one(f"input[aria-label='{label}']")
    field.clear()
    field.send_keys(text)


class Window:
    """One player."""

    def __init__(self, browser: Browser, color: str, cell: str) -> None:
        self.browser = browser
        self.handle = browser.driver.current_window_handle
        self.color = color
        self.cell = cell

    def front(self) -> Browser:
        self.browser.driver.switch_to.window(self.handle)
        return self.browser

    def wait_for(self, text: str, selector: str = ".bl-game-title") -> None:
        browser = self.front()
        browser.wait_until(lambda: text in browser.text(selector), text)

    def is_on_turn(self) -> bool:
        return "your turn" in self.front().text(".bl-game-title")

    def cells(self) -> list[str]:
        script = "return [...document.querySelectorAll('.bl-cell')].map(each => each.getAttribute('aria-label'))"
        return list(self.front().run(script))


def test_two_windows_play_and_see_the_same_board(browser: Browser) -> None:
    with running_server("-m", "broadloom", "web", unique_name(), "--no-tls", "--listen", "0") as url:
        browser.open(page(url, "/games"))
        anna = Window(browser, "red", "c3")
        browser.driver.switch_to.new_window("window")
        browser.open(page(url, "/games"))
        ben = Window(browser, "blue", "f5")
        for window, name in ((anna, "Anna"), (ben, "Ben")):
            write(window.front(), "Your name", name)
        write(anna.front(), "Name of the game", "board-1")
        browser.click("#do-create-game")
        anna.wait_for("You are red")
        ben.wait_for("open: blue", ".bl-game")
        browser.click("[aria-label='Join board-1']")
        for window in (ben, anna):
            window.wait_for("turn")
        for _ in range(2):
            mover, other = (anna, ben) if anna.is_on_turn() else (ben, anna)
            mover.front().click(f".bl-cell[aria-label^='{mover.cell}']")
            for window in (mover, other):
                browser.wait_until(lambda: f"{mover.cell}: {mover.color}, 1" in window.cells(), "both see the orb")  # noqa: B023
            other.wait_for("your turn")
        anna.wait_for("red 1, blue 1", ".bl-game")
        ben.front().click("#do-leave-game")
        anna.wait_for("stand-in", ".bl-seats")
        assert browser.console_errors() == []
