"""Takes the screenshots of the web pages: `python -m tools.web_screenshots docs/images [replay demo games]`.

Needs Chromium, its driver and Selenium, as the tests of the pages do. Those of the review and auction pages are taken
by their tests: `BROADLOOM_SCREENSHOTS=folder pytest tests/web/test_review.py tests/web/test_auction.py`. Those of the
pages Operator, Switch, and Audit and tables are taken by hand.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.web.browser import Browser, browsing
from tests.web.sample_data import make_tape
from tests.web.server import page, running_server

PEERS, SEED = 200, 7
BEFORE_KILL_S = 0.25
SLOWEST = 0
"""The first speed in the list: a tenth."""
BURST = 30
"""Pictures of the replay, of which the fullest is kept: its file is the largest."""
SETTLE_S = 3.0
"""The force layout comes to rest, and messages arrive."""
KILLED = 6
SIZE, TALL = (1440, 900), (1440, 1180)


class Camera:
    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder

    def take(self, name: str, size: tuple[int, int] = SIZE) -> None:
        self._browser.size(*size)
        time.sleep(SETTLE_S)
        self._save(name, self._browser.driver.get_screenshot_as_png())

    def take_fullest(self, name: str) -> None:
        shots = [self._browser.driver.get_screenshot_as_png() for _ in range(BURST)]
        self._save(name, max(shots, key=len))

    def _save(self, name: str, picture: bytes) -> None:
        (self._folder / f"web-{name}.png").write_bytes(picture)
        print(f"web-{name}.png", flush=True)


def replay(browser: Browser, camera: Camera, scratch: Path) -> None:
    make_tape(scratch / "kill", PEERS, seed=SEED)
    with running_server("-m", "broadloom", "web", "--tapes", str(scratch), "--listen", "127.0.0.1:0") as url:
        browser.size(*SIZE)
        browser.open(page(url, "/replay"))
        browser.wait_until(lambda: "peers crashed" in browser.page_text(), "the kill, at normal speed")
        killed_at = browser.text(".bl-log").split("\n")[1].split()[0].partition(":")
        _select(browser, ".bl-speed select", SLOWEST)
        for scheme, name in (("light", "fabric"), ("dark", "fabric-dark")):
            browser.prefer(scheme)
            _scrub(browser, 60 * int(killed_at[0]) + float(killed_at[2]) - BEFORE_KILL_S)
            camera.take_fullest(name)
        browser.prefer("light")
        browser.open(page(url, "/rules"))
        browser.one(".bl-steps li")
        camera.take("rules", TALL)


def demo(browser: Browser, camera: Camera, _scratch: Path) -> None:
    with running_server("-m", "broadloom", "demo", "--no-spark", "--no-browser", "--port", "0") as line:
        url = line.split()[-1]
        browser.size(*SIZE)
        browser.open(page(url, "/conversations"))
        browser.wait_until(lambda: len(browser.all(".bl-said")) > 8, "a conversation")
        camera.take("conversations")
        _topics(browser, camera, url)
        browser.open(page(url, "/cluster"))
        _write(browser, "Peers to kill: how many", str(KILLED))
        browser.one("#do-kill").click()
        browser.wait_until(lambda: f"{KILLED} peers were killed" in browser.text(".bl-log"), "the kill")
        camera.take("cluster", TALL)


def _topics(browser: Browser, camera: Camera, url: str) -> None:
    browser.open(page(url, "/topics"))
    browser.one("#do-sign-in-ann").click()
    browser.wait_until(lambda: "Signed in as ann" in browser.page_text(), "the reader is signed in")
    browser.open(page(url, "/topics") + "&topic=sports/nfl/scores")
    browser.one("#do-subscribe, #do-unsubscribe")
    for each in browser.all("#do-subscribe"):
        each.click()
    browser.wait_until(lambda: len(browser.all(".bl-item")) > 6, "items")
    camera.take("topics")


def games(browser: Browser, camera: Camera, _scratch: Path) -> None:
    """Carla waits for a player. Anna and Ben play with two stand-ins."""
    with running_server("-m", "broadloom", "web", "games/friday", "--no-tls", "--listen", "127.0.0.1:0") as url:
        for player, name, kind, players in (
            ("Carla", "tea table", "Chain", "2 players"),
            ("Ben", "maze", "Gems", "4 players"),
            ("Anna", "maze", "", ""),
        ):
            browser.driver.switch_to.new_window("window")
            browser.size(*SIZE)
            browser.open(page(url, "/games"))
            _write(browser, "Your name", player)
            if kind:
                browser.choose("Game", kind)
                browser.choose("Players", players)
                _write(browser, "Name of the game", name)
                browser.click("#do-create-game")
            else:
                browser.click(f"[aria-label='Join {name}']")
            browser.wait_until(lambda: "You are" in browser.text(".bl-game-title"), "a role")
        browser.click("#do-start-game")
        browser.wait_until(lambda: "1" in browser.text(".bl-seats li:nth-child(3)"), "a stand-in has found a gem")
        browser.click("h1")  # away from the button, and to the top of the page
        camera.take("games")


def _select(browser: Browser, selector: str, index: int) -> None:
    script = "const s = document.querySelector(arguments[0]); s.selectedIndex = arguments[1];"
    browser.run(f"{script} s.dispatchEvent(new Event('change'))", selector, index)


def _scrub(browser: Browser, at: float) -> None:
    script = "const s = document.querySelector('.bl-track input'); s.value = arguments[0];"
    browser.run(f"{script} s.dispatchEvent(new Event('input'))", at)


def _write(browser: Browser, label: str, text: str) -> None:
    field = browser.one(f'input[aria-label="{label}"]')
    browser.run("arguments[0].focus(); arguments[0].select()", field)
    field.send_keys(text)


STEPS: dict[str, Callable[[Browser, Camera, Path], None]] = {"replay": replay, "demo": demo, "games": games}


def main(folder: Path, steps: list[str]) -> None:
    for name in steps or list(STEPS):
        with browsing() as browser, TemporaryDirectory() as scratch:
            STEPS[name](browser, Camera(browser, folder), Path(scratch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
