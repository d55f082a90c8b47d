"""The auction page in a real browser: lots, live prices, own bids, and why a bid is not accepted."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import broadloom
from broadloom.apps.auction import Room
from tests.apps.auction.saleroom import ORDER
from tests.channel.joined import QUICK
from tests.web.browser import Browser, browsing
from tests.web.server import page, running_server

FITS = "return document.documentElement.scrollWidth <= window.innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def write(browser: Browser, label: str, text: str) -> None:
    field = browser.one(f'input[aria-label="{label}"]')
    browser.run("arguments[0].focus(); arguments[0].select()", field)
    field.send_keys(text)
    browser.wait_until(lambda: field.get_attribute("value") == text, f"{label}: {text}")


def test_bids_and_live_prices_are_shown_and_mistakes_explained(browser: Browser, tmp_path: Path) -> None:
    with running_server("-m", "tests.web.auction_server", str(tmp_path)) as line:
        started = json.loads(line)
        browser.open(page(started["url"], "/auction"))
        atlas = '.bl-lot[data-lot="lot-1"]'
        browser.wait_until(lambda: browser.text(f"{atlas} .bl-amount") == "150", "the highest bid")
        write(browser, "Your bid for lot-1", "155")
        browser.click("#do-bid-lot-1")
        browser.wait_until(lambda: "bid at least 160" in browser.text("main > .bl-problem"), "the lowest bid")
        write(browser, "Your bid for lot-1", "165.50")
        browser.click("#do-bid-lot-1")
        browser.wait_until(lambda: "You lead." in browser.text(atlas), "the own bid")
        assert browser.text(f"{atlas} .bl-amount") == "165.50"
        browser.wait_until(lambda: ", notary-" in browser.text('[aria-label="Your bids"]'), "the receipt")
        write(browser, "Your bid for lot-3", "410")
        browser.click("#do-bid-lot-3")
        browser.wait_until(lambda: "Your sealed bid is in the list." in browser.text('.bl-lot[data-lot="lot-3"]'))
        assert "410" not in browser.text(".bl-news")
        write(browser, "Your bid for lot-1", "210")  # is still there when another member has bid
        asyncio.run(_bid(started["channel"], tmp_path / "dora.ticket"))
        browser.wait_until(lambda: "You are outbid." in browser.text(atlas), "the bid of another program")
        assert browser.text(f"{atlas} .bl-amount") == "200"
        assert browser.one('input[aria-label="Your bid for lot-1"]').get_attribute("value") == "210"
        browser.wait_until(lambda: "dora bids 200" in browser.text(".bl-news"), "the list")
        _pictures(browser)
        assert [each for each in browser.console_errors() if "favicon" not in each] == []


def test_room_that_fails_shows_the_reason_instead_of_its_last_prices_and_is_joined_again(
    browser: Browser, tmp_path: Path
) -> None:
    with running_server("-m", "tests.web.auction_server", str(tmp_path)) as line:
        started = json.loads(line)
        browser.open(page(started["url"], "/auction"))
        atlas = '.bl-lot[data-lot="lot-1"]'
        browser.wait_until(lambda: browser.text(f"{atlas} .bl-amount") == "150", "the highest bid")
        os.kill(started["process"], signal.SIGUSR1)
        browser.wait_until(
            lambda: "the list is gone. Retrying" in (text := browser.text("main")) and "Atlas" not in text,
            "the reason, and no price",
        )
        browser.wait_until(lambda: browser.text(f"{atlas} .bl-amount") == "150", "it is joined again")
        asyncio.run(_bid(started["channel"], tmp_path / "dora.ticket"))
        browser.wait_until(lambda: browser.text(f"{atlas} .bl-amount") == "200", "the bid of another program")
        assert "the list is gone" not in browser.text("main")


async def _bid(channel: str, ticket: Path) -> None:
    async with (
        broadloom.connect(channel, ticket=ticket, settings=QUICK) as joined,
        Room(joined, order_settings=ORDER) as room,
    ):
        await room.bid("lot-1", 200)


def _pictures(browser: Browser) -> None:
    folder = os.environ.get("BROADLOOM_SCREENSHOTS")
    for name, scheme, size in (
        ("light", "light", (1440, 900)),
        ("dark", "dark", (1440, 900)),
        ("phone", "light", (390, 844)),
    ):
        browser.prefer(scheme)
        browser.size(*size, is_phone=name == "phone")
        browser.wait_until(lambda: browser.run(FITS), f"it is not too wide: {name}", within_s=5.0)
        if folder:
            browser.driver.save_screenshot(str(Path(folder) / f"auction-{name}.png"))
