"""The pages in a real browser, over a local cluster, a simulated tape and tables: what a person sees and does.

Pictures of what was seen are kept: light, dark and on a phone in the folder that `BROADLOOM_SCREENSHOTS` names, else
only light ones in the folder of the test.
"""

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import broadloom
from broadloom.groups import Groups
from broadloom.switch import HandledRequest, Registration, RequestFailedError, Switch
from tests.support import eventually
from tests.web.browser import Browser, browsing
from tests.web.sample_data import make_live_tables, make_tables, make_tape
from tests.web.server import page, running_cluster

PEERS = 10
CHANNEL_PATHS = {"/": "Fabric", "/cluster": "Cluster", "/traffic": "Traffic", "/conversations": "Conversations"}
CHANNEL_PATHS |= {"/rules": "Rules", "/tables": "Audit and tables", "/replay": "Replay"}
APPLICATION_PATHS = {"/switch": "Switch", "/games": "Games", "/review": "Review", "/topics": "Topics"}
APPLICATION_PATHS |= {"/auction": "Auction"}
PATHS = CHANNEL_PATHS | APPLICATION_PATHS


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """After the browser: without one, no cluster is needed."""
    folder = tmp_path_factory.mktemp("shown")
    make_tape(folder / "tapes" / "kill", 30)
    make_live_tables(make_tables(folder / "results", missing=3), 42)
    with running_cluster(PEERS, tapes_dir=folder / "tapes", results_dir=folder / "results") as started:
        yield started


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = os.environ.get("BROADLOOM_SCREENSHOTS")
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def number(browser: Browser, name: str) -> float:
    return float(browser.fabric(name) or -1)


def test_fabric_page_draws_every_peer(browser: Browser, cluster: dict[str, Any], pictures: Path) -> None:
    browser.open(page(cluster["url"], "/"))
    browser.wait_until(lambda: number(browser, "nodes") == PEERS, "all peers are drawn")
    browser.wait_until(
        lambda: browser.fabric("free-slots") == "0" and browser.fabric("partitions") == "1", "figures of the server"
    )
    browser.wait_until(lambda: number(browser, "links") == PEERS * 4 / 2, "all links are drawn")
    assert "Every peer of the local cluster" in browser.text("main")
    browser.wait_until(
        lambda: f"{PEERS} peers" in browser.run("return document.querySelector('[role=status]').textContent")
    )
    browser.run("document.querySelector('.bl-alternative summary').click()")
    browser.wait_until(lambda: len(browser.all(".bl-alternative tbody tr")) == PEERS, "the same as a table")
    browser.run("document.querySelector('.bl-alternative tbody button').click()")
    assert browser.wait_until(lambda: len(browser.all(".bl-detail .bl-chip")) == 4, "four neighbors")
    browser.driver.save_screenshot(str(pictures / "fabric.png"))


@pytest.mark.parametrize("path", PATHS)
def test_page_loads_without_errors_or_foreign_requests(
    browser: Browser, cluster: dict[str, Any], pictures: Path, path: str
) -> None:
    browser.console_errors()
    browser.hosts()
    browser.open(page(cluster["url"], path))
    browser.wait_until(lambda: browser.text("h1") == PATHS[path], PATHS[path])
    what = {
        "/": ".bl-fabric[data-ready=true]",
        "/cluster": ".bl-guarantees li[data-state=holds]",
        "/traffic": ".bl-chart canvas",
        "/conversations": ".bl-said",
        "/review": ".bl-review-join",
        "/games": ".bl-games #do-create-game",
        "/switch": ".bl-switch .bl-empty",
        "/topics": ".bl-empty",
        "/auction": ".bl-empty",
        "/rules": ".bl-steps li",
        "/tables": ".bl-rows tbody tr",
        "/replay": ".bl-fabric[data-ready=true]",
    }[path]
    browser.one(what)
    assert not [each.text for each in browser.all(".bl-empty") if "`" in each.text]
    assert not [each for each in browser.all("main > .bl-problem") if each.is_displayed()]
    unnamed = browser.run(
        """return [...document.querySelectorAll('button, a, input, select, canvas, [role=img]')].filter(each =>
            each.offsetParent && !each.getAttribute('aria-label') && !each.textContent.trim() && !each.labels?.length &&
            !each.closest('[aria-hidden], [role=img][aria-label]')).map(each => each.outerHTML.slice(0, 200))"""
    )
    assert unnamed == []
    for name, scheme, size in (
        ("light", "light", (1440, 900)),
        ("dark", "dark", (1440, 900)),
        ("phone", "light", (390, 844)),
    ):
        browser.prefer(scheme)
        browser.size(*size, is_phone=name == "phone")
        browser.wait_until(partial(_is_scheme, browser, scheme), scheme)
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), (
            f"{path} is too wide: {name}"
        )
        if name == "light" or "BROADLOOM_SCREENSHOTS" in os.environ:
            browser.driver.save_screenshot(str(pictures / f"{path.strip('/') or 'fabric'}-{name}.png"))
    browser.prefer("light")
    browser.size(1440, 900)
    assert browser.console_errors() == []
    assert browser.hosts() <= {urlsplit(cluster["url"]).netloc}


def test_navigation_has_two_groups_side_by_side(browser: Browser, cluster: dict[str, Any]) -> None:
    browser.open(page(cluster["url"], "/tables"))
    browser.size(1280, 800)
    browser.one("h1")
    groups = browser.all(".bl-head [role=group]")
    names = {group.get_attribute("aria-label"): group.text.split("\n") for group in groups}
    assert names == {"Channel": [*CHANNEL_PATHS.values()], "Applications": [*APPLICATION_PATHS.values()]}
    links = browser.all(".bl-head [role=group] a")
    assert len({link.location["y"] for link in links}) == 1, "one line"
    browser.size(1440, 900)


def test_fabric_heals_after_a_kill(browser: Browser, cluster: dict[str, Any]) -> None:
    browser.open(page(cluster["url"], "/cluster"))
    before = browser.wait_until(lambda: (count := number(browser, "nodes")) >= PEERS and count, "all peers are drawn")
    _write(browser, "Peers to kill: how many", "2")
    browser.click("#do-kill")
    browser.wait_until(lambda: number(browser, "nodes") == before - 2, "the dead are gone")
    browser.wait_until(
        lambda: browser.fabric("free-slots") == "0" and browser.fabric("partitions") == "1",
        "the fabric is connected again",
    )
    browser.wait_until(lambda: "repaired in" in browser.text(".bl-log"), "the repair is logged")
    browser.wait_until(
        lambda: len(browser.all(".bl-guarantees li[data-state=holds]")) == len(browser.all(".bl-guarantees li")),
        "all guarantees hold",
    )


def test_mistake_is_reported_on_the_page(browser: Browser, cluster: dict[str, Any]) -> None:
    browser.open(page(cluster["url"], "/cluster"))
    _write(browser, "Peers to kill: how many", "1000")
    browser.click("#do-kill")
    browser.wait_until(lambda: "has to survive" in browser.text(".bl-problem"), "what to do")


def test_reply_reaches_another_peer(browser: Browser, cluster: dict[str, Any]) -> None:
    text = "<b>Nine</b> o'clock & 'sharp'"

    async def main() -> None:
        async with (
            broadloom.connect(cluster["channel"], bootstrap=cluster["bootstrap"]) as channel,
            Groups(channel, "Tester") as here,
        ):
            group = await here.create("<i>Testers</i>", well_known_name="testers of the pages")
            question = await group.send_text("When <script>alert(1)</script> do we meet?")
            await asyncio.to_thread(answer)
            async with asyncio.timeout(30):
                async for message in group:
                    if message.parent_id == question.id:
                        assert message.text == text
                        return

    def answer() -> None:
        browser.open(page(cluster["url"], "/conversations"))
        chosen = browser.wait_until(
            lambda: next((each for each in browser.all(".bl-group") if "<i>Testers</i>" in each.text), None)
        )
        chosen.click()
        browser.wait_until(lambda: "<script>alert(1)</script>" in browser.text(".bl-tree"), "the question, as text")
        browser.click(".bl-reply")
        browser.wait_until(lambda: "Replying to Tester" in browser.text(".bl-answered"))
        _write(browser, "Message", text)
        browser.click("#do-send")
        browser.wait_until(lambda: text in browser.text(".bl-answers"), "the answer stands below the question")

    asyncio.run(main())


def test_requests_are_followed_from_sent_to_handled(browser: Browser, cluster: dict[str, Any], pictures: Path) -> None:
    async def main() -> None:
        async with (
            broadloom.connect(cluster["channel"], bootstrap=cluster["bootstrap"]) as channel,
            Switch(channel, session="testers", program="<i>editor</i>") as switch,
        ):
            is_released = asyncio.Event()

            @switch.handle("reverse", file="notes")
            async def reverse(request: HandledRequest) -> bytes:
                await is_released.wait()
                return request.data[::-1]

            await asyncio.to_thread(send)
            is_released.set()
            await asyncio.to_thread(look)
            await asyncio.to_thread(observe)
            await eventually(lambda: any(each.session == "testers" for each in observers(switch)))
            with pytest.raises(RequestFailedError):
                await switch.request("<b>unknown</b>")
            await asyncio.to_thread(browser.one, ".bl-request[data-state=failed]")

    def observers(switch: Switch) -> list[Registration]:
        others = [each for each in switch.registrations() if each.peer_id != switch.channel.peer_id]
        return [each for each in others if each.patterns]

    def send() -> None:
        browser.open(page(cluster["url"], "/switch"))
        browser.wait_until(lambda: "<i>editor</i>" in browser.text(".bl-cards"), "the program, as text")
        assert "near (this machine)" in browser.text(".bl-cards")
        _write(browser, "File to observe", "notes")
        browser.click("#do-observe-file")
        browser.wait_until(lambda: "file notes" in browser.text(".bl-observed"))
        _write(browser, "Operation", "reverse")
        _write(browser, "File that the request is about; empty: the session", "notes")
        _write(browser, "Data", "abc", "textarea")
        browser.click("#do-send-request")
        browser.wait_until(lambda: "accepted" in browser.text(".bl-request[data-state=accepted]"), "it runs")

    def look() -> None:
        request = browser.one(".bl-request[data-state=handled]")
        browser.wait_until(lambda: "reply: cba" in request.text, "the reply")
        states = request.find_elements("css selector", ".bl-states li")
        assert [each.text.split()[0] for each in states] == ["sent", "accepted", "handled"]
        browser.driver.save_screenshot(str(pictures / "switch-handled.png"))

    def observe() -> None:
        _write(browser, "Session to observe", "testers")
        browser.click("#do-observe-session")
        browser.wait_until(lambda: "Session testers" in browser.text(".bl-observed"))

    asyncio.run(main())


def test_rules_are_tried_and_mistakes_are_marked(browser: Browser, cluster: dict[str, Any], tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    def open_file(text: str) -> None:
        (tmp_path / "out.rules").write_text(text)
        browser.run("return document.querySelector('#do-open')").send_keys(str(tmp_path / "out.rules"))
        source = "return document.querySelector('.bl-editor textarea').value"
        browser.wait_until(lambda: browser.run(source) == text, "the file is in the editor")

    rules = 'IF { subject("x") } THEN { stop }\n\nIF { to("com") } THEN { refuse "<b>no</b>" }\n'
    browser.open(page(cluster["url"], "/rules"))
    browser.wait_until(lambda: "would be sent" in browser.text(".bl-outcome"), "the example was tried")
    open_file(rules.replace('") } THEN { refuse', '") } DO { refuse'))
    browser.click("#do-try")
    browser.wait_until(lambda: "Line 3, column 18" in browser.text(".bl-mistake"), "the place of the mistake")
    assert "✗ 3" in browser.text(".bl-gutter")
    browser.click(".bl-mistake")
    place = "const field = document.querySelector('.bl-editor textarea'); return [document.activeElement === field, "
    browser.wait_until(lambda: browser.run(place + "field.selectionStart]") == [True, 52], "the cursor is there")
    open_file(rules)
    browser.one('input[aria-label="Subject"]').send_keys(Keys.CONTROL, Keys.ENTER)
    browser.wait_until(lambda: "would not be sent" in browser.text(".bl-outcome"), "with the keyboard")
    assert "<b>no</b>" in browser.text(".bl-audit")
    steps = [each.get_attribute("data-step") for each in browser.all(".bl-steps li")]
    assert steps == ["false", "true", "action"]


def test_table_is_filtered_and_downloaded(browser: Browser, cluster: dict[str, Any]) -> None:
    browser.open(page(cluster["url"], "/tables"))
    browser.wait_until(lambda: "3 missing" in browser.text(".bl-audit"), "the audit summary")
    browser.click("[data-table=audit_findings]")
    browser.wait_until(lambda: "Which deliveries break a guarantee" in browser.text(".bl-question"))
    browser.wait_until(lambda: len(browser.all(".bl-rows tbody tr")) == 3)
    taken = browser.run("return document.querySelector('.bl-download').href")
    assert taken.endswith("/data-tables/audit_findings.csv?")
    text = browser.driver.execute_async_script("fetch(arguments[0]).then(a => a.text()).then(arguments[1])", taken)
    assert len(text.strip().splitlines()) == 4
    browser.click("[data-table=live-traffic]")
    browser.wait_until(lambda: "How much was sent" in browser.text(".bl-question"))


def test_tape_is_played_and_scrubbed(browser: Browser, cluster: dict[str, Any]) -> None:
    browser.open(page(cluster["url"], "/replay"))
    browser.wait_until(lambda: browser.fabric("ready") == "true" and number(browser, "head") > 0.5, "it plays")
    end = number(browser, "end")
    _scrub(browser, end * 0.5)
    browser.wait_until(lambda: number(browser, "nodes") == 30, "before the kill")
    browser.click(".bl-play")
    browser.wait_until(lambda: browser.fabric("plays") == "false")
    _scrub(browser, end)
    browser.wait_until(lambda: number(browser, "nodes") == 24 and number(browser, "links") == 48, "after it")
    _scrub(browser, end * 0.5)
    browser.wait_until(lambda: number(browser, "nodes") == 30, "and back again")


def _is_scheme(browser: Browser, scheme: str) -> bool:
    return bool(browser.run("return Quasar.Dark.isActive")) == (scheme == "dark")


def _write(browser: Browser, label: str, text: str, element: str = "input") -> None:
    field = browser.one(f'{element}[aria-label="{label}"]')
    browser.run("arguments[0].focus(); arguments[0].select()", field)
    field.send_keys(text)
    browser.wait_until(lambda: field.get_attribute("value") == text, f"{label}: {text}")


def _scrub(browser: Browser, at: float) -> None:
    browser.run(
        """const slider = document.querySelector('.bl-track input'); slider.value = arguments[0];
        slider.dispatchEvent(new Event('input'))""",
        at,
    )
