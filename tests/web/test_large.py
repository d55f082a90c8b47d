"""Large ones: a tape of a thousand peers stays smooth, and of two hundred real peers forty are killed by a click."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.browser import Browser, browsing
from tests.web.sample_data import make_tape
from tests.web.server import page, running_cluster, running_server

pytestmark = pytest.mark.long

REPAIR_S = 240.0
"""As long as it takes if all peers, the server and the browser share one core."""
FRAMES_PER_S_MIN = 15
"""Without a graphics card, everything drawn by the processor; with one it is what the screen shows."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def frames_per_s(browser: Browser, seconds: float) -> float:
    """Drawn frames, counted in the browser."""
    script = """const [ms, done] = arguments; const began = performance.now(); let frames = 0;
        requestAnimationFrame(function count(now) {
            frames++; now - began < ms ? requestAnimationFrame(count) : done(frames * 1000 / (now - began)); })"""
    return float(browser.driver.execute_async_script(script, seconds * 1000))


def test_drawing_a_thousand_peers_is_smooth(browser: Browser, tmp_path: Path) -> None:
    tape = make_tape(tmp_path / "half", 1000, "kill-half", seed=1)
    with running_server(
        "-c", "from broadloom.cli.main import main; main()", "web", "--tapes", str(tape), "--listen", "0"
    ) as url:
        browser.open(page(url, "/replay"))
        browser.wait_until(lambda: browser.fabric("ready") == "true" and float(browser.fabric("end")) > 20, within_s=60)
        browser.run(
            """const slider = document.querySelector('.bl-track input'); slider.value = arguments[0];
            slider.dispatchEvent(new Event('input'))""",
            16.5,
        )
        browser.wait_until(lambda: browser.fabric("nodes") == "1000")
        before = frames_per_s(browser, 3)
        browser.wait_until(lambda: browser.fabric("nodes") == "500", "half of them died", within_s=60)
        after = frames_per_s(browser, 3)
        print(f"{before:.0f} frames/s with 1,000 peers and their messages, {after:.0f} while half of them are replaced")
        assert min(before, after) >= FRAMES_PER_S_MIN


@pytest.mark.timeout(900)
def test_killing_forty_of_two_hundred_peers_heals(browser: Browser) -> None:
    with running_cluster(200) as cluster:
        browser.open(page(cluster["url"], "/cluster"))
        browser.wait_until(lambda: browser.fabric("nodes") == "200", "all are drawn", within_s=60)
        field = browser.one('input[aria-label="Peers to kill: how many"]')
        browser.run("arguments[0].focus(); arguments[0].select()", field)
        field.send_keys("40")
        began = time.monotonic()
        browser.click("#do-kill")
        browser.wait_until(lambda: browser.fabric("nodes") == "160", "the dead are gone", within_s=60)
        repaired = "repaired in"
        browser.wait_until(lambda: repaired in browser.text(".bl-log"), "connected", within_s=REPAIR_S)
        print(f"repaired on the page {time.monotonic() - began:.1f} s after the click; {browser.text('.bl-log')}")
        browser.wait_until(
            lambda: browser.fabric("free-slots") == "0" and browser.fabric("partitions") == "1", within_s=60
        )
        guarantees = ".bl-guarantees li"
        browser.wait_until(
            lambda: len(browser.all(f"{guarantees}[data-state=holds]")) == len(browser.all(guarantees)), within_s=120
        )
