"""Looking for a channel where somebody is who does not let us in."""

import pytest

from tests.fabric.fake_world import CHANNEL, FakeLine, FakeWorld, contact, hello
from weft.fabric import Peer, Settings, State
from weft.fabric.events import Barred, StateChanged
from weft.wire import Address
from weft.wire.calls import JoinRequest, Refusal, Refuse, Seek, SeekAnswer

DEPTH = 3
ME = 1000
SETTINGS = Settings(search_depth=DEPTH, silence_s=1e9)
AT_A_PORT = Address("alpha", 4000)

ANYWHERE = [Refusal.WRONG_KEY, Refusal.EXPIRED, Refusal.REVOKED, Refusal.WRONG_SIGNING]
"""Who says so is of this channel for certain."""
AT_A_GIVEN_PORT = [*ANYWHERE, Refusal.WRONG_MODE, Refusal.WRONG_VERSION, Refusal.WRONG_CHANNEL, Refusal.NOT_WEFT]


def started(world: FakeWorld, *portals: Address) -> Peer:
    peer = Peer(world, contact(ME), CHANNEL, portals, SETTINGS)
    peer.start()
    return peer


def unanswered(world: FakeWorld) -> list[FakeLine]:
    return [line for line in world.dialled if not line.closed]


def tells(line: FakeLine, refusal: Refusal) -> None:
    """In the handshake below, or in words."""
    if refusal in (Refusal.WRONG_KEY, Refusal.WRONG_MODE, Refusal.NOT_WEFT):
        line.closed = True
        line.owner.on_lost(refusal)
    else:
        line.opens()
        line.says(Refuse(refusal, "no"))


def barred(world: FakeWorld) -> list[Barred]:
    return [event for event in world.events if isinstance(event, Barred)]


def finds_itself(line: FakeLine) -> None:
    line.opens()
    line.says(hello(ME))


@pytest.mark.parametrize("refusal", AT_A_GIVEN_PORT)
def test_at_an_address_with_a_port_every_misfit_bars(refusal: Refusal) -> None:
    world = FakeWorld()
    peer = started(world, AT_A_PORT)
    tells(unanswered(world)[0], refusal)
    (told,) = barred(world)
    assert told.refusal is refusal
    assert told.text.startswith("alpha:4000: ")
    assert peer.state is State.SEEKING


@pytest.mark.parametrize("refusal", [Refusal.LEAVING, Refusal.BUSY, Refusal.NOT_READY, Refusal.BAD_MESSAGE, None])
def test_what_may_be_better_next_time_does_not_bar(refusal: Refusal | None) -> None:
    world = FakeWorld()
    started(world, AT_A_PORT)
    line = unanswered(world)[0]
    if refusal is None:
        line.hangs_up()
    else:
        tells(line, refusal)
    assert not barred(world)


@pytest.mark.parametrize("refusal", ANYWHERE)
def test_along_the_port_order_who_is_of_the_channel_bars_and_no_second_channel_is_founded(refusal: Refusal) -> None:
    world = FakeWorld()
    peer = started(world, Address("alpha", 0))
    tells(unanswered(world)[0], refusal)
    finds_itself(unanswered(world)[0])
    assert not barred(world), "there may still be somebody who lets us in"
    unanswered(world)[0].hangs_up()
    assert [event.refusal for event in barred(world)] == [refusal]
    world.run(0.4)
    assert peer.state is State.SEEKING
    assert StateChanged(State.CONNECTED) not in world.events


@pytest.mark.parametrize("refusal", [each for each in AT_A_GIVEN_PORT if each not in ANYWHERE])
def test_along_the_port_order_strangers_are_to_be_expected(refusal: Refusal) -> None:
    world = FakeWorld()
    peer = started(world, Address("alpha", 0))
    tells(unanswered(world)[0], refusal)
    finds_itself(unanswered(world)[0])
    tells(unanswered(world)[0], refusal)
    assert not barred(world)
    assert peer.state is State.CONNECTED, "nobody of the channel is there, so it is founded"


@pytest.mark.parametrize("good_first", [False, True])
def test_who_finds_somebody_good_as_well_joins(good_first: bool) -> None:
    world = FakeWorld()
    started(world, AT_A_PORT, Address("beta", 4000))
    bad, good = unanswered(world)
    if not good_first:
        tells(bad, Refusal.WRONG_KEY)
    good.opens()
    assert good.heard(Seek)
    good.says(hello(5), SeekAnswer(True, 0, ()))
    if good_first:
        tells(bad, Refusal.WRONG_KEY)
    joining = world.dialled[-1]
    assert joining.address == contact(5).address
    joining.opens()
    assert joining.heard(JoinRequest)
    world.run(0.5)
    assert not barred(world)


def test_who_is_barred_looks_again_and_gets_in_when_that_is_mended() -> None:
    world = FakeWorld()
    peer = started(world, AT_A_PORT)
    tells(unanswered(world)[0], Refusal.REVOKED)
    assert len(barred(world)) == 1
    world.run(1.6)
    tells(unanswered(world)[0], Refusal.REVOKED)
    assert len(barred(world)) == 2
    world.run(1.6)
    finds_itself(unanswered(world)[0])
    assert peer.state is State.CONNECTED
    assert len(barred(world)) == 2
