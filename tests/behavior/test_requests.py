"""Direct requests, the same on the simulator and on real sockets."""

from itertools import permutations

from broadloom.protocol import Tuning
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.wire.direct_messages import RequestStatus
from tests.behavior.harness import Harness, HarnessPeer, OpenHarness

LARGE_BYTES = 1 << 20


class Requests:
    """What the peers of a harness ask each other, and what became of it."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.outcomes: dict[bytes, Outcome] = {}
        self.held: list[IncomingRequest] = []
        """Requests that begin with `hold` wait here."""
        for peer in harness.peers:
            peer.peer.requests.handlers.set(0, self._on_request, 64)

    def _on_request(self, request: IncomingRequest) -> None:
        if request.data.startswith(b"hold"):
            self.held.append(request)
            return
        request.reply(request.data[::-1])
        request.done()

    def ask(self, caller: HarnessPeer, callee: HarnessPeer, data: bytes, timeout_s: float = 10.0) -> None:
        def on_outcome(outcome: Outcome) -> None:
            assert data not in self.outcomes, "a request has one outcome"
            self.outcomes[data] = outcome

        caller.peer.requests.request(callee.id, data, timeout_s, on_outcome)

    async def until_ended(self, count: int) -> None:
        await self._harness.until(lambda: len(self.outcomes) == count)


async def open_requests(open_harness: OpenHarness, count: int, settings: Tuning | None = None) -> Requests:
    harness = open_harness(settings)
    await harness.add(count)
    peers = list(harness.peers)

    def all_know_all() -> bool:
        return all(one.peer.requests.address_of(other.id) is not None for one, other in permutations(peers, 2))

    await harness.until(all_know_all)
    return Requests(harness)


async def test_every_member_answers_every_other(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 8)
    pairs = list(permutations(requests._harness.peers, 2))
    for caller, callee in pairs:
        requests.ask(caller, callee, b"%d asks %d" % (caller.id, callee.id))
    await requests.until_ended(len(pairs))
    assert all(outcome.data == data[::-1] for data, outcome in requests.outcomes.items())


async def test_large_requests_and_replies_arrive_whole(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 2)
    caller, callee = requests._harness.peers
    for number in range(4):
        requests.ask(caller, callee, bytes([number]) * LARGE_BYTES + b"end", timeout_s=20.0)
        requests.ask(callee, caller, b"small %d" % number)
    await requests.until_ended(8)
    assert [outcome.kind for outcome in requests.outcomes.values()] == [OutcomeKind.REPLIED] * 8, [
        each._replace(data=b"") for each in requests.outcomes.values()
    ]
    assert all(outcome.data == data[::-1] for data, outcome in requests.outcomes.items())


async def test_requests_to_a_killed_member_end_at_once(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 3)
    caller, callee, other = requests._harness.peers
    requests.ask(caller, callee, b"hold", timeout_s=1000.0)
    await requests._harness.until(lambda: requests.held)
    requests._harness.kill([callee])
    await requests.until_ended(1)
    outcome = requests.outcomes[b"hold"]
    assert (outcome.kind, outcome.sent) == (OutcomeKind.GONE, True)
    requests.ask(caller, callee, b"after the kill")
    requests.ask(caller, other, b"to another")
    await requests.until_ended(3)
    assert not requests.outcomes[b"after the kill"].sent
    assert requests.outcomes[b"to another"].kind is OutcomeKind.REPLIED


async def test_request_without_reply_times_out_and_is_cancelled(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 2)
    caller, callee = requests._harness.peers
    cancelled: list[bool] = []
    requests.ask(caller, callee, b"hold", timeout_s=1.0)
    await requests._harness.until(lambda: requests.held)
    requests.held[0].on_cancel = lambda: cancelled.append(True)
    await requests.until_ended(1)
    assert requests.outcomes[b"hold"].kind is OutcomeKind.NO_ANSWER
    await requests._harness.until(lambda: cancelled)


async def test_leaving_member_refuses(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 3)
    caller, callee, _ = requests._harness.peers
    requests.ask(caller, callee, b"before")
    await requests.until_ended(1)
    callee.peer.requests.begin_leave()
    requests.ask(caller, callee, b"now")
    await requests.until_ended(2)
    assert requests.outcomes[b"now"].status is RequestStatus.LEAVING


async def test_member_can_be_asked_again_after_a_partition(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 4)
    harness = requests._harness
    caller, callee, *_ = harness.peers
    requests.ask(caller, callee, b"before")
    await requests.until_ended(1)
    harness.partition([callee])
    requests.ask(caller, callee, b"hold", timeout_s=2.0)
    await requests.until_ended(2)
    assert requests.outcomes[b"hold"].kind in (OutcomeKind.NO_ANSWER, OutcomeKind.GONE)
    harness.heal()
    attempts = 0

    def is_answered() -> bool:
        nonlocal attempts
        if len(requests.outcomes) == attempts + 2:  # the last attempt has ended
            attempts += 1
            requests.ask(caller, callee, b"attempt %d" % attempts, timeout_s=1.0)
        return any(outcome.data.endswith(b"tpmetta") for outcome in requests.outcomes.values())

    await harness.until(is_answered, within_s=60.0)


async def test_idle_connections_are_closed(open_harness: OpenHarness) -> None:
    requests = await open_requests(open_harness, 3, Tuning(direct_keep_s=0.5))
    caller, callee, other = requests._harness.peers
    requests.ask(caller, callee, b"one")
    requests.ask(other, caller, b"two")
    await requests.until_ended(2)
    await requests._harness.until(lambda: not any(p.peer.requests._connections for p in requests._harness.peers))
    requests.ask(caller, callee, b"again")
    await requests.until_ended(3)
    assert all(outcome.kind is OutcomeKind.REPLIED for outcome in requests.outcomes.values())
