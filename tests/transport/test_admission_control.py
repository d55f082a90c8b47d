"""Admission control, with a fake clock."""

from typing import Any, cast

import pytest

from broadloom.transport.admission_control import ADDRESSES_MAX, AdmissionControl
from broadloom.transport.limits import Limits

LIMITS = Limits(connections_per_s=10, connections_burst=20, pending_handshakes_max=3)


class FakeConnection:
    def __init__(self, remote_host: str = "alpha") -> None:
        self.remote_host = remote_host
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class AdmissionHarness:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.time = 100.0
        self.admission_control = AdmissionControl(limits, lambda: self.time)

    def connect(self, caller: FakeConnection) -> bool:
        return self.admission_control.admit(cast("Any", caller))

    def remove_pending(self, caller: FakeConnection) -> None:
        self.admission_control.remove_pending(cast("Any", caller))

    def connect_many(self, count: int, host: str = "alpha", *, every_s: float = 0.0) -> int:
        """Open and close this many connections; returns how many were admitted."""
        admitted = 0
        for _ in range(count):
            self.time += every_s
            caller = FakeConnection(host)
            admitted += self.connect(caller)
            self.remove_pending(caller)
        return admitted


def test_burst_is_admitted_up_to_its_limit() -> None:
    door = AdmissionHarness()
    assert door.connect_many(25) == 20
    assert door.admission_control.connections_denied == 5
    assert door.connect_many(25, "beta") == 20, "others are not made to pay for it"


def test_tokens_refill_with_time_up_to_burst() -> None:
    door = AdmissionHarness()
    door.connect_many(20)
    door.time += 0.5
    assert door.connect_many(10) == 5
    door.time += 3600
    assert door.connect_many(100) == 20


@pytest.mark.parametrize("times_too_often", [1.01, 1.5, 5, 100])
def test_excessive_caller_is_admitted_at_allowed_rate(times_too_often: float) -> None:
    door = AdmissionHarness()
    door.connect_many(20)
    seconds, rate = 10, LIMITS.connections_per_s
    admitted = door.connect_many(int(seconds * rate * times_too_often), every_s=1 / (rate * times_too_often))
    assert admitted == pytest.approx(seconds * rate, abs=2)


def test_caller_within_rate_is_never_denied() -> None:
    door = AdmissionHarness()
    assert door.connect_many(1000, every_s=1.001 / LIMITS.connections_per_s) == 1000
    assert door.admission_control.connections_denied == 0


def test_oldest_pending_handshake_is_evicted_when_limit_is_reached() -> None:
    door = AdmissionHarness()
    callers = [FakeConnection() for _ in range(5)]
    assert all(door.connect(caller) for caller in callers[:3])
    door.remove_pending(callers[0])
    assert door.connect(callers[3])
    assert door.admission_control.handshakes_evicted == 0
    assert door.connect(callers[4])
    assert [caller.aborted for caller in callers] == [False, True, False, False, False]
    assert door.admission_control.handshakes_evicted == 1
    assert door.admission_control.pending_count == 3
    door.remove_pending(callers[1])
    assert door.admission_control.pending_count == 3


def test_denied_connection_evicts_no_handshake() -> None:
    door = AdmissionHarness(Limits(connections_per_s=1, connections_burst=3, pending_handshakes_max=3))
    callers = [FakeConnection() for _ in range(4)]
    assert [door.connect(caller) for caller in callers] == [True, True, True, False]
    assert not any(caller.aborted for caller in callers)
    assert door.admission_control.pending_count == 3


def test_number_of_remembered_addresses_is_bounded() -> None:
    door = AdmissionHarness()
    door.connect_many(20, "first")
    for number in range(ADDRESSES_MAX):
        door.connect_many(1, str(number))
    assert len(door.admission_control._tokens) == ADDRESSES_MAX
    assert door.connect_many(1, "first") == 1
    assert len(door.admission_control._tokens) == ADDRESSES_MAX


def test_abort_pending_aborts_every_pending_handshake() -> None:
    door = AdmissionHarness()
    callers = [FakeConnection() for _ in range(3)]
    for caller in callers:
        door.connect(caller)
    door.admission_control.abort_pending()
    assert all(caller.aborted for caller in callers)
    assert door.admission_control.pending_count == 0
