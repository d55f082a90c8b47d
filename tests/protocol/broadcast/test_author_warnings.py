"""Signed channels: an author that equivocates, or whose clock is wrong, is reported."""

import pytest

from broadloom.protocol import Tuning
from broadloom.protocol.broadcast.author_warnings import CLOCK_SKEW_S
from broadloom.protocol.events import AuthorWarning, AuthorWarningReason
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import encode_broadcast, signed_part
from tests.protocol.fake_runtime import CHANNEL, FakeRuntime
from tests.protocol.signed_runtime import AUTHOR, FakeSigner, credential, link, member, signed

SETTINGS = Tuning(retention_s=60)
START_S = FakeRuntime.START_TIME_S


def bundle(sequence: int, *messages: bytes) -> Broadcast:
    message = Broadcast(AUTHOR, sequence, 1, messages)
    time = int(1000 * START_S).to_bytes(8, "big")
    data = CHANNEL + time + signed_part(encode_broadcast(message))
    return message._replace(signature=time + FakeSigner(AUTHOR).sign(data))


def warnings(runtime: FakeRuntime) -> list[tuple[int, AuthorWarningReason]]:
    return [(each.author, each.reason) for each in runtime.events if isinstance(each, AuthorWarning)]


@pytest.mark.parametrize(
    "second",
    [bundle(2, b"other"), bundle(1, b"one", b"other"), bundle(2, b"two", b"three"), bundle(4, b"other")],
    ids=["same number", "another bundle", "known and new messages", "waiting for an earlier one"],
)
def test_second_message_with_same_number_is_reported_once(second: Broadcast) -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(credential(), bundle(1, b"one"), bundle(2, b"two"), bundle(4, b"four"))
    other.remote_sends(credential(), second, second)
    assert warnings(runtime) == [(AUTHOR, AuthorWarningReason.EQUIVOCATION)]
    assert peer.counters.equivocations >= 1
    assert not other.closed  # it relayed what it got first
    assert [message.data for message in runtime.delivered][:2] == [b"one", b"two"]


def test_identical_copies_are_no_equivocation() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    one, other = link(peer, 2), link(peer, 3)
    frames = [bundle(1, b"one"), bundle(3, b"three", b"four"), bundle(2, b"two")]
    one.remote_sends(credential(), *frames)
    other.remote_sends(credential(), *(frame._replace(hops=9, age_ms=5) for frame in frames))
    assert warnings(runtime) == []
    assert peer.counters.equivocations == 0
    assert peer.counters.duplicates == 4


def test_forged_second_message_discredits_the_neighbor_and_not_the_author() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    one, forger = link(peer, 2), link(peer, 3)
    one.remote_sends(credential(), bundle(1, b"one"))
    forged = bundle(1, b"other")
    forger.remote_sends(credential(), forged._replace(signature=forged.signature[:-1] + b"x"))
    assert forger.closed
    assert warnings(runtime) == []


@pytest.mark.parametrize("behind_s", [SETTINGS.retention_s + CLOCK_SKEW_S + 1, -CLOCK_SKEW_S - 1])
def test_clock_that_differs_is_reported_with_the_remedy(behind_s: float) -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    link(peer, 2).remote_sends(
        credential(), *(signed(AUTHOR, sequence, sent_at=START_S - behind_s) for sequence in (1, 2))
    )
    assert warnings(runtime) == [(AUTHOR, AuthorWarningReason.CLOCK)]
    text = next(each.text for each in runtime.events if isinstance(each, AuthorWarning))
    assert "peer 7" in text  # the name on its ticket
    assert "orrect the clock" in text
    assert len(runtime.delivered_ids()) == (0 if behind_s > 0 else 2)
