"""The design review in a real browser: one participant at the page, another one in a program."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from broadloom.apps import conference
from broadloom.apps.conference import Meeting, Viewpoint
from tests.channel.joined import QUICK, unique_name
from tests.support import eventually
from tests.web.browser import Browser, browsing
from tests.web.server import page, running_cluster, running_server

WHOLE = Viewpoint((-2900.0, -2500.0, 3100.0), (1750.0, 2700.0, 0.0))
SIDE = Viewpoint((-2600.0, 5200.0, 2400.0), (1500.0, 2500.0, 0.0))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(browser: Browser) -> Iterator[dict[str, Any]]:
    """After the browser: without one, no cluster is needed."""
    with running_cluster(3) as started:
        yield started


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where the picture is kept."""
    folder = Path(os.environ.get("BROADLOOM_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def shown(browser: Browser, name: str) -> str:
    return str(browser.one(".bl-review").get_attribute(f"data-{name}") or "")


async def seen(browser: Browser, condition: Callable[[], Any], what: str) -> None:
    """The program goes on while the browser is watched."""
    await asyncio.to_thread(browser.wait_until, condition, what)


def drag(browser: Browser, x: int, y: int) -> None:
    canvas = browser.one(".bl-review canvas")
    ActionChains(browser.driver).move_to_element(canvas).click_and_hold().move_by_offset(x, y).release().perform()


async def test_person_at_the_page_and_program_review_a_model_together(
    browser: Browser, cluster: dict[str, Any], pictures: Path
) -> None:
    browser.console_errors()
    browser.open(page(cluster["url"], "/review"))
    browser.one(".bl-review-join input").send_keys("Anna")
    browser.click("#do-join-review")
    await seen(browser, lambda: shown(browser, "ready") == "true", "joined")
    async with conference.join(cluster["channel"], name="Ben", bootstrap=cluster["bootstrap"]) as ben:
        browser.click("#do-load-all")
        await eventually(lambda: "rib-4" in ben.state.parts and "winglet" in ben.state.parts, "the wing is loaded")
        await _person_leads(browser, ben)
        await _program_leads(browser, ben)
        await _ask_and_vote(browser, ben)
        browser.click("#do-minutes")
        await seen(browser, lambda: int(shown(browser, "saved")) > 500, "minutes")
        async with ben.floor():
            await ben.show(WHOLE)
            await seen(browser, lambda: shown(browser, "view") == "-2900,-2500,3100", "the whole wing")
            pointing = asyncio.create_task(_point(ben))
            await seen(browser, lambda: shown(browser, "pointer") == "Ben 2250,3200,300", "pointer")
            await asyncio.to_thread(browser.driver.save_screenshot, str(pictures / "web-review.png"))
            pointing.cancel()
    await seen(browser, lambda: "Ben" not in browser.text(".bl-review-people"), "Ben has left")
    assert browser.console_errors() == []


async def test_page_whose_meeting_fails_shows_the_reason_and_joins_again(browser: Browser) -> None:
    channel = unique_name()
    with running_server("-m", "tests.web.review_server", channel) as line:
        started = json.loads(line)
        async with conference.join(channel, name="Ben", tls=False, settings=QUICK) as ben:
            await asyncio.to_thread(browser.open, page(started["url"], "/review"))
            await asyncio.to_thread(browser.click, "#do-join-review")
            await seen(browser, lambda: shown(browser, "ready") == "true", "joined")
            os.kill(started["process"], signal.SIGUSR1)
            await seen(browser, lambda: "the entries are gone" in browser.text("main"), "the reason")
            await seen(browser, lambda: "Ben" in browser.text(".bl-review-people"), "joined again")
            await asyncio.to_thread(browser.click, "#do-hand")
            await eventually(lambda: ben.state.hands, "the person at the page is heard")
            assert [each.name for each in ben.participants()] == ["Ben", "Server"]


async def _point(ben: Meeting) -> None:
    """Until canceled: a pointer expires."""
    while True:
        await ben.point((2250.0, 3200.0, 300.0))
        await asyncio.sleep(0.1)


async def _person_leads(browser: Browser, ben: Meeting) -> None:
    browser.click("#do-floor")
    await seen(browser, lambda: shown(browser, "leads") == "true", "the floor")
    await eventually(lambda: ben.viewpoint is not None, "a new leader shows its view")
    before = ben.viewpoint
    drag(browser, 120, 30)
    await eventually(lambda: ben.viewpoint != before, "the view was turned")
    browser.click("#tool-note")
    ActionChains(browser.driver).move_to_element(browser.one(".bl-review canvas")).click().perform()
    browser.one("#review-draft").send_keys("Is this a crack?")
    browser.click("#do-note")
    await eventually(lambda: len(ben.state.notes) == 1, "a note")
    (note,) = ben.state.notes.values()
    assert note.text == "Is this a crack?"
    assert note.at is not None
    assert note.part in ben.state.parts, "the part under the mouse"
    await ben.annotate(note.part, "No, a scratch.", reply_to=note.id)
    await seen(browser, lambda: "No, a scratch." in browser.text(".bl-review-notes"), "the reply")
    assert note.text in browser.text(".bl-review-notes")


async def _program_leads(browser: Browser, ben: Meeting) -> None:
    browser.click("#do-release")
    await seen(browser, lambda: shown(browser, "leads") == "false", "the floor is free")
    async with ben.floor():
        await seen(browser, lambda: shown(browser, "leader") == "Ben", "another leader")
        await ben.show(SIDE)
        await seen(browser, lambda: shown(browser, "view") == "-2600,5200,2400", "followed")
        drag(browser, -60, 0)
        await seen(browser, lambda: shown(browser, "follows") == "false", "a person that looks around is detached")
        assert shown(browser, "view") != "-2600,5200,2400"
        assert ben.viewpoint == SIDE
        browser.click("#do-follow")
        await seen(browser, lambda: shown(browser, "view") == "-2600,5200,2400", "attached again")


async def _ask_and_vote(browser: Browser, ben: Meeting) -> None:
    await ben.set_agenda(["Wing box", "Next steps"])
    await seen(browser, lambda: "Next steps" in browser.text(".bl-review-agenda"), "the agenda")
    poll = await ben.open_poll("Release the wing?", ["Yes", "Not yet"])
    browser.run("arguments[0].click()", browser.one(".bl-review-poll button"))
    await eventually(lambda: ben.state.polls[poll].counts == (1, 0), "a vote")
    browser.click("#do-hand")
    await eventually(lambda: [each.name for each in ben.participants() if each.has_hand_up] == ["Anna"], "a hand")
    await ben.measure("rib-1", (432.0, 120.0, -150.0), (1584.0, 120.0, 190.0))
    await seen(browser, lambda: "hand up" in browser.text(".bl-review-people"), "a hand on the page")
