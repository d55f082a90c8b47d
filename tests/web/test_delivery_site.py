"""Visitors of a delivery service, without a browser: signing in and out, and what they read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nicegui import Client, core, ui
from starlette.requests import Request

from broadloom.apps.delivery import DeniedError, Desk, Offer
from broadloom.apps.delivery.messages import METER_LAYER
from broadloom.web import delivery_site, visitor
from broadloom.web.delivery_site import DeliverySite, SignInError
from broadloom.web.pages import layout
from broadloom.web.pages.topic_panel import TopicPanel
from tests.apps.delivery.newsroom import Newsroom
from tests.channel.joined import QUICK
from tests.support import eventually

SCORES = "sports/nfl/scores"


@pytest.fixture
async def room() -> AsyncIterator[Newsroom]:
    async with Newsroom() as opened:
        yield opened


@pytest.fixture
async def desk(room: Newsroom) -> Desk:
    opened = await room.desk()
    await opened.create(Offer(path=SCORES, plans=("visitor",)))
    await opened.create(Offer(path="weather/berlin"))
    return opened


@pytest.fixture
async def site(room: Newsroom, desk: Desk) -> AsyncIterator[DeliverySite]:
    opened = DeliverySite(room.name, options={"settings": QUICK})
    yield opened
    await opened.close()


async def test_visitors_without_a_page_are_signed_out_and_others_replace_them(
    room: Newsroom, site: DeliverySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_site, "VISITORS_MAX", 1)
    monkeypatch.setattr(delivery_site, "IDLE_CHECK_S", 0.02)
    anna = await site.sign_in("session", room.ticket("anna"))
    anna.pages = 1
    with pytest.raises(SignInError, match="try again later"):
        await site.sign_in("other", room.ticket("ben"))
    monkeypatch.setattr(delivery_site, "IDLE_S", 0.0)
    assert site.visitor("session") is anna
    anna.pages = 0
    await eventually(lambda: site.visitor("session") is None)
    ben = await site.sign_in("other", room.ticket("ben"))
    assert ben.name == "ben"


@pytest.mark.parametrize("text", ["", "/etc/passwd", "-----BEGIN " + "A" * 30_000])
async def test_text_that_is_not_a_ticket_is_refused(text: str) -> None:
    with pytest.raises(SignInError, match="that is not a ticket"):
        await DeliverySite("delivery/news").sign_in_with_text("session", text)


async def test_topic_is_connected_only_while_a_page_shows_it(
    room: Newsroom, desk: Desk, site: DeliverySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitor, "LINGER_S", 0.01)
    anna = await site.sign_in("session", room.ticket("anna"))
    await anna.service.wait_for(SCORES, "weather/berlin")
    await anna.show(SCORES, "page")
    assert not anna.readings
    await anna.subscribe(SCORES, "visitor")
    await anna.subscribe("weather/berlin", "")
    assert (anna.plan_of("sports"), anna.plan_of("weather"), anna.free) == ("visitor", "", {"weather/berlin"})
    anna.hide(SCORES, "page")
    await eventually(lambda: SCORES not in anna.readings)
    await anna.show(SCORES, "page")
    reading = anna.readings[SCORES]
    await desk.withdraw("anna", SCORES)
    await eventually(lambda: reading.is_over)
    with pytest.raises(DeniedError, match="withdrawn"):
        await anna.subscribe(SCORES, "visitor")
    await anna.unsubscribe("weather/berlin")
    assert anna.plan_of("weather") is None


async def test_pages_of_a_visitor_share_the_answers_of_meters(
    room: Newsroom, desk: Desk, site: DeliverySite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(visitor, "AUDIENCE_AGE_S", 1e9)
    meter = await room.meter(tmp_path)
    anna = await site.sign_in("session", room.ticket("anna"))
    await anna.service.wait_for(SCORES, "weather/berlin")
    await meter.wait_until_metering(SCORES, "weather/berlin")
    await eventually(lambda: anna.service._present("meter", METER_LAYER))
    asked: list[str] = []
    ask = anna.service.audience

    async def counted(*paths: str) -> dict[str, int]:
        asked.extend(paths)
        return await ask(*paths)

    monkeypatch.setattr(anna.service, "audience", counted)
    answers = await asyncio.gather(
        *(anna.audience(paths) for paths in [(SCORES,), (SCORES, "weather/berlin"), ("weather/berlin", "no/topic")])
    )
    assert answers == [{SCORES: 0}, {SCORES: 0, "weather/berlin": 0}, {"weather/berlin": 0}]
    assert asked == [SCORES, "weather/berlin", "no/topic"]
    monkeypatch.setattr(visitor, "AUDIENCE_AGE_S", 0.0)
    await anna.audience((SCORES,))
    assert asked[3:] == [SCORES]


async def test_topic_follows_its_tab_from_the_start_and_not_only_when_the_page_has_loaded(
    room: Newsroom, desk: Desk, site: DeliverySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    monkeypatch.setattr(visitor, "LINGER_S", 0.01)
    anna = await site.sign_in("session", room.ticket("anna"))
    await anna.service.wait_for(SCORES)
    await anna.subscribe(SCORES, "visitor")
    anna.hide(SCORES, "")
    await eventually(lambda: not anna.readings)
    request = Request({"type": "http", "path": "/topics", "headers": [], "query_string": b""})
    client = Client(ui.page("/topics", reconnect_timeout=60.0), request=request)
    with client:  # timers do not run without a server: the page stays as it is before it has loaded
        monkeypatch.setitem(layout._banners, client.id, layout.ErrorBanner())
        TopicPanel(site, anna, SCORES)
    for socket in ("first", "second"):
        await client.handle_handshake(socket, "tab", None, "document", None)
    await eventually(lambda: SCORES in anna.readings)
    client.handle_disconnect("first")  # found dead after the tab has connected again
    assert anna.is_shown(SCORES)
    client.handle_disconnect("second")
    assert not anna.is_shown(SCORES)
    await eventually(lambda: not anna.readings)
    client.delete()
