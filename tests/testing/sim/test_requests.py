"""Direct requests in the simulator under all faults, and mutants that the checks must detect."""

from typing import Any

import pytest

from broadloom.protocol.requests.direct_connection import DirectConnection
from broadloom.protocol.requests.direct_requests import DirectRequests
from broadloom.protocol.requests.incoming import IncomingRequest, RequestHandler
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest
from broadloom.testing.sim.scenario import load, parse
from broadloom.testing.sim.step_checker import GuaranteeViolation

PEERS = 12
SEEDS = range(1, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_has_one_outcome_under_all_faults(seed: int) -> None:
    metrics = load("requests").run(seed, PEERS).metrics
    assert metrics["replied"] > 200
    assert metrics["gone"] > 0
    assert metrics["no_answer"] > 0
    assert metrics["refused"] > 0


def test_requests_of_a_calm_fabric_are_all_answered_over_few_connections() -> None:
    steps = [
        {"do": "grow"},
        {"do": "request_traffic", "per_s": 50},
        {"do": "wait", "duration_s": 20},
        {"do": "finish_requests"},
    ]
    run = parse("calm", {"peers": 6, "step": steps}).run(1)
    assert run.metrics.get("gone", 0) == run.metrics.get("busy", 0) == 0
    run.simulation.run_for(60)
    assert all(not node.peer.requests._connections for node in run.simulation.nodes)  # idle ones are closed
    assert all(node.peer.requests.held_bytes == 0 for node in run.simulation.nodes)


# -- mutants


def _sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a lost connection are sent again."""
    on_closed = DirectRequests.on_closed

    def end(self: OutgoingRequest, outcome: Outcome) -> None:
        if outcome.kind is OutcomeKind.GONE and outcome.sent and not self.was_lost and not self.is_tell:
            self.was_lost = True
            lost.append(self)
        else:
            original_end(self, outcome)

    def resend(self: DirectRequests, connection: DirectConnection) -> None:
        on_closed(self, connection)
        while lost:
            request = lost.pop()
            self.request(request.peer_id, request.data, 20.0, request.on_outcome)

    lost: list[OutgoingRequest] = []
    original_end = OutgoingRequest.end
    monkeypatch.setattr(OutgoingRequest, "end", end)
    monkeypatch.setattr(DirectRequests, "on_closed", resend)


def _claims_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    original_end = OutgoingRequest.end

    def end(self: OutgoingRequest, outcome: Outcome) -> None:
        original_end(self, outcome._replace(sent=outcome.kind is OutcomeKind.REPLIED))

    monkeypatch.setattr(OutgoingRequest, "end", end)


def _two_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    original_end = OutgoingRequest.end

    def end(self: OutgoingRequest, outcome: Outcome) -> None:
        on_outcome = self.on_outcome
        original_end(self, outcome)
        if outcome.kind is OutcomeKind.NO_ANSWER:
            on_outcome(outcome)

    monkeypatch.setattr(OutgoingRequest, "end", end)


def _no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    original_end = OutgoingRequest.end

    def end(self: OutgoingRequest, outcome: Outcome) -> None:
        if outcome.kind is OutcomeKind.GONE:
            self.on_outcome = lambda _outcome: None
        original_end(self, outcome)

    monkeypatch.setattr(OutgoingRequest, "end", end)


def _replies_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    original = IncomingRequest.reply
    last: list[bytes] = [b"\xff" * 8]

    def reply(self: IncomingRequest, data: bytes) -> None:
        previous, last[0] = last[0], data
        original(self, previous)

    monkeypatch.setattr(IncomingRequest, "reply", reply)


def _too_many_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestHandler, "has_room", property(lambda _self: True))
    monkeypatch.setattr("broadloom.testing.sim.request_traffic.CONCURRENCY", 1000)
    original = DirectRequests.__init__

    def patched(self: DirectRequests, peer: Any) -> None:
        original(self, peer)
        self.handlers.dispatch = lambda request: _start(self, request)  # type: ignore[method-assign]

    def _start(requests: DirectRequests, request: IncomingRequest) -> None:
        handler = requests.handlers._by_layer[request.layer]
        request.handler = handler
        handler.start(request)

    monkeypatch.setattr(DirectRequests, "__init__", patched)


def _too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectRequests, "_may_dial", lambda _self: True)


@pytest.mark.parametrize(
    ("mutate", "text"),
    [
        (_sent_twice, "a second time|whose handler was started|reported as not sent"),
        (_claims_not_sent, "whose handler was started"),
        (_two_outcomes, "has two outcomes"),
        (_no_outcome, "requests have no outcome"),
        (_replies_mixed_up, "reply to another request"),
        (_too_many_handlers, "beyond handlers_max"),
        (_too_many_connections, "beyond direct_out_max"),
    ],
)
def test_mutant_is_detected(mutate: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises(GuaranteeViolation, match=f"direct requests, at .*: peer .*({text})"):
        _run_seeds()


def _run_seeds() -> None:
    for seed in range(1, 6):
        load("requests").run(seed, PEERS)
