"""The search for a channel when portals do not answer."""

from tests.fabric.fake_world import CHANNEL, PATIENT, FakeLine, FakeWorld, contact, hello
from weft.fabric import Peer, Settings, State
from weft.wire import Address
from weft.wire.calls import SeekAnswer

DEPTH = 4
SEEKING = Settings(search_depth=DEPTH, silence_s=PATIENT.silence_s)
DEAD, ALIVE = "dead", "alive"


def started(world: FakeWorld, *hosts: str) -> Peer:
    peer = Peer(world, contact(1000), CHANNEL, tuple(Address(host, 0) for host in hosts), SEEKING)
    peer.start()
    return peer


def dialled(world: FakeWorld, host: str) -> list[FakeLine]:
    return [line for line in world.dialled if line.address is not None and line.address.host == host]


def refuse_all(world: FakeWorld, host: str) -> None:
    for line in dialled(world, host):
        line.hangs_up()


def test_a_portal_that_never_answers_does_not_hold_up_the_search() -> None:
    world = FakeWorld()
    started(world, DEAD, ALIVE)
    for depth in range(1, DEPTH + 1):
        assert len(dialled(world, ALIVE)) == depth, "one port further each time"
        refuse_all(world, ALIVE)
        world.run(SEEKING.seek_patience_s)
    assert len(dialled(world, DEAD)) == DEPTH


def test_who_is_found_late_is_found() -> None:
    world = FakeWorld()
    peer = started(world, DEAD)
    world.run(SEEKING.seek_patience_s * 1.5)
    first, second = dialled(world, DEAD)
    second.hangs_up()
    first.opens()
    first.says(hello(7), SeekAnswer(True, 0, ()))
    assert peer.state is State.SEEKING
    asked = [line for line in world.dialled if line.address == contact(7).address]
    assert asked, "it asks the one that answered late to weave it in"


def test_a_channel_is_founded_only_when_every_call_is_over() -> None:
    world = FakeWorld()
    peer = started(world, DEAD, ALIVE)
    for _ in range(DEPTH):
        for line in dialled(world, ALIVE):
            line.opens()
            line.says(hello(1000))  # that is ourselves: we are on a portal, and could found the channel
        world.run(SEEKING.seek_patience_s)
    assert peer.seeking.depth == 0, "nothing is claimed to be searched while a portal may still answer"
    assert not peer.is_member
    refuse_all(world, DEAD)
    assert peer.is_member


def test_a_depth_counts_as_searched_when_all_portals_have_answered() -> None:
    world = FakeWorld()
    peer = started(world, "one", "two")
    refuse_all(world, "one")
    world.run(SEEKING.seek_patience_s)
    assert peer.seeking.depth == 0
    for _ in range(DEPTH):
        refuse_all(world, "one")
        refuse_all(world, "two")
        world.run(0.0)
    assert peer.seeking.depth == DEPTH
