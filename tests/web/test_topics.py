"""The pages of a delivery service in a real browser, over a real desk, meter and producer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.browser import Browser, browsing
from tests.web.news_site import SCORES
from tests.web.server import page, running_server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """After the browser: without one, no site is needed."""
    with running_server("-m", "tests.web.news_site", str(tmp_path_factory.mktemp("results"))) as line:
        yield json.loads(line)


def open_page(browser: Browser, site: dict[str, Any], path: str, topic: str = "") -> None:
    browser.open(page(site["url"], path) + (f"&topic={topic}" if topic else ""))


def sign_in(browser: Browser, site: dict[str, Any], name: str) -> None:
    """As somebody else than before."""
    open_page(browser, site, "/topics")
    browser.wait_until(lambda: browser.all("#do-sign-out") or browser.all("#do-sign-in"), "the page")
    for each in browser.all("#do-sign-out"):
        each.click()
    if name == "anna":
        write(browser, browser.one("textarea"), site["ticket"])
        browser.click("#do-sign-in")
    else:
        browser.click(f"#do-sign-in-{name}")
    browser.wait_until(lambda: f"Signed in as {name}" in browser.page_text(), f"{name} is signed in")


def write(browser: Browser, field: Any, text: str) -> None:
    browser.run("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", field, text)


def field(browser: Browser, label: str) -> Any:
    return browser.one(f"[aria-label='{label}']")


def subscribe(browser: Browser, site: dict[str, Any]) -> None:
    """Unless that was done before: then the page connects by itself."""
    open_page(browser, site, "/topics", SCORES)
    browser.one("#do-subscribe, #do-unsubscribe")
    for each in browser.all("#do-subscribe"):
        if each.is_displayed():
            each.click()
    browser.wait_until(lambda: "Connected since" in browser.text(".bl-topic-status"), "connected")


def row(browser: Browser, topic: str) -> str:
    return browser.text(f".bl-topic-tree a[href$='{topic}']")


def test_reader_signs_in_with_its_ticket_and_reads_a_topic(browser: Browser, site: dict[str, Any]) -> None:
    open_page(browser, site, "/topics")
    write(browser, browser.one("textarea"), "/etc/hostname")
    browser.click("#do-sign-in")
    browser.wait_until(lambda: "that is not a ticket" in browser.text(".bl-problem"), "a path is not read")
    sign_in(browser, site, "anna")
    browser.wait_until(lambda: "0 here" in row(browser, SCORES), "the audience")
    assert "0.45 EUR per hour or 9.90 EUR per month" in row(browser, SCORES)
    assert "free" in row(browser, "weather/berlin")
    write(browser, browser.one(".bl-directory input"), "PARIS fore")
    browser.wait_until(lambda: [each.text for each in browser.all(".bl-topic-name")] == ["weather/paris"], "search")

    subscribe(browser, site)
    assert browser.text(".bl-topic-path") == "sports / nfl / scores"
    assert "Your plan: visitor (0.45 EUR per hour)." in browser.text(".bl-topic-status")
    browser.wait_until(lambda: any("<b>" in each.text for each in browser.all(".bl-item")), "items as text")
    browser.wait_until(lambda: "Ad · spring-sale" in browser.text(".bl-item.bl-ad"), "ads are marked")
    browser.wait_until(lambda: "1 subscriber: anna" in browser.text(".bl-facts"), "who is here")
    browser.wait_until(lambda: "✓ subscribed" in row(browser, SCORES) and "1 here" in row(browser, SCORES), "the tree")
    browser.size(390, 844, is_phone=True)
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.size(1440, 900)

    open_page(browser, site, "/topics/mine")
    browser.wait_until(lambda: "12 min 34 s" in browser.text("table") and "0.10 EUR" in browser.text("table"), "cost")
    assert "c0ffeec0" in browser.page_text()
    assert "0.45 EUR" not in browser.page_text(), "the bill of ben"
    open_page(browser, site, "/topics")
    browser.wait_until(lambda: "0 here" in row(browser, SCORES), "no page shows the topic: it is disconnected")
    open_page(browser, site, "/topics", "sports/nfl/injuries")
    browser.one("#do-subscribe")
    assert "Other readers see your name while you are connected." in browser.page_text()
    browser.click("#do-subscribe")
    browser.wait_until(lambda: "qualification 'vip'" in browser.text(".bl-problem"), "a desk refuses it")


def test_operator_creates_a_topic_and_withdraws_a_subscriber(browser: Browser, site: dict[str, Any]) -> None:
    sign_in(browser, site, "anna")
    subscribe(browser, site)
    sign_in(browser, site, "editor")
    open_page(browser, site, "/topics/operator")
    write(browser, field(browser, "Path"), "markets/tea")
    write(browser, field(browser, "Producers"), "nfl")
    browser.click("#do-create-topic")
    browser.wait_until(lambda: "Created markets/tea" in browser.page_text(), "created")
    browser.one("[data-path='markets/tea']")
    entry = f"[data-path='{SCORES}']"
    browser.wait_until(lambda: "1 subscribed · 0 here now · 0.54 EUR this month" in browser.text(entry), "figures")
    assert "spring-sale" in browser.page_text()
    browser.click(f"{entry} summary")
    browser.wait_until(lambda: "anna" in browser.text(f"{entry} table"), "subscribers")
    select = browser.one(f"{entry} .q-select input")
    select.send_keys("anna\n")
    browser.click(f"{entry} #do-withdraw")
    browser.wait_until(lambda: "Withdrawn: anna" in browser.text(entry), "withdrawn")
    sign_in(browser, site, "anna")
    open_page(browser, site, "/topics", SCORES)
    browser.click("#do-subscribe")
    browser.wait_until(lambda: "was withdrawn" in browser.text(".bl-problem"), "no desk admits it")


def test_producer_publishes_to_a_reader_of_the_topic(browser: Browser, site: dict[str, Any]) -> None:
    sign_in(browser, site, "nfl")
    open_page(browser, site, "/topics", SCORES)
    browser.click("#do-subscribe")
    browser.one(".bl-item")
    write(browser, browser.one(".bl-publishing textarea"), "Extra time")
    browser.click("#do-publish")
    browser.wait_until(lambda: any("Extra time" in each.text for each in browser.all(".bl-item")), "the own item")
    assert browser.console_errors() == []
