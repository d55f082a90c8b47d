"""Visitors of a delivery service, without a browser: signing in and out, and what they read."""

from collections.abc import AsyncIterator

import pytest

from broadloom.apps.delivery import DeniedError, Desk, Offer
from broadloom.web import delivery_site, visitor
from broadloom.web.delivery_site import DeliverySite, SignInError
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
