"""Deadlines and pauses that adapt to measured delays."""

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.exchange import OutgoingExchange
from broadloom.protocol.membership.pacing import NORMAL_DELAY_S, STRETCH_MAX, Pacing
from broadloom.wire import Address
from broadloom.wire.exchange_messages import RejectReason, SeekerJoined
from tests.protocol.fake_runtime import CHANNEL, FakeRuntime, hello, peer_info

TIMEOUT_S = 4.0


def slow_pacing(delay_s: float) -> Pacing:
    pacing = Pacing()
    for _ in range(20):
        pacing.on_exchange(delay_s)
    return pacing


def test_nothing_changes_within_the_normal_delay() -> None:
    pacing = slow_pacing(NORMAL_DELAY_S)
    assert not pacing.is_slow
    assert pacing.stretched(TIMEOUT_S) == TIMEOUT_S


def test_deadlines_grow_in_proportion_up_to_a_limit() -> None:
    assert round(slow_pacing(3 * NORMAL_DELAY_S).stretched(TIMEOUT_S)) == 3 * TIMEOUT_S
    assert slow_pacing(15.0).stretched(TIMEOUT_S) == STRETCH_MAX * TIMEOUT_S


def test_short_pauses_outlast_an_exchange() -> None:
    assert slow_pacing(3.0).stretched(0.1) > 5.0


def test_late_timers_show_the_delay_without_any_exchange() -> None:
    pacing = Pacing()
    pacing.on_tick(3.0)
    assert pacing.is_slow
    for _ in range(30):
        pacing.on_tick(0.0)
    assert not pacing.is_slow


@pytest.mark.parametrize("stopped_s", [8.0, 3600.0])
def test_process_that_was_stopped_is_not_taken_for_a_slow_one(stopped_s: float) -> None:
    pacing = Pacing()
    pacing.on_tick(stopped_s)
    assert not pacing.is_slow


@pytest.mark.parametrize("every_ticks", [1, 2, 5])
def test_timers_that_are_very_late_again_and_again_show_load(every_ticks: int) -> None:
    pacing = Pacing()
    for tick in range(10 * every_ticks):
        pacing.on_tick(0.0 if tick % every_ticks else 30.0)
    assert pacing.stretched(TIMEOUT_S) >= STRETCH_MAX * TIMEOUT_S


def dial(peer: Peer) -> list[RejectReason | None]:
    failures: list[RejectReason | None] = []
    OutgoingExchange(peer, Address("far", 4000), SeekerJoined(), lambda _exchange, _response: None, failures.append)
    return failures


def test_deadline_of_an_exchange_is_extended_when_others_turn_out_to_be_slow() -> None:
    runtime = FakeRuntime()
    peer = Peer(runtime, peer_info(1000), CHANNEL, (), Tuning(exchange_timeout_s=TIMEOUT_S))
    failures = dial(peer)
    for _ in range(20):
        peer.pacing.on_exchange(3.0)
    runtime.advance(2 * TIMEOUT_S)
    assert not failures
    runtime.advance(2 * TIMEOUT_S)
    assert failures == [None]


def test_time_from_request_to_response_is_measured() -> None:
    runtime = FakeRuntime()
    peer = Peer(runtime, peer_info(1000), CHANNEL, (), Tuning(exchange_timeout_s=TIMEOUT_S))
    dial(peer)
    connection = runtime.dialed[-1]
    runtime.advance(0.9)
    connection.remote_accepts()
    runtime.advance(3.0)
    connection.remote_sends(hello(7), SeekerJoined())
    assert peer.pacing.delay_s == 1.5
