"""Two peers with direct connections between them, on one manual clock. Frames travel when the test says so."""

from typing import Any

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutgoingRequest
from broadloom.wire import PeerId
from tests.protocol.fake_runtime import Cable, FakeConnection, FakeRuntime, creator, peer_info

CALLER, CALLEE = 10, 20


class DirectPair:
    def __init__(self, **settings: Any) -> None:
        self.runtime = FakeRuntime()
        tuning = Tuning(**settings)
        self.caller = creator(self.runtime, tuning, CALLER)
        self.callee = creator(self.runtime, tuning, CALLEE)
        self.cables: list[Cable] = []
        self.outcomes: list[Outcome] = []
        self.started: list[IncomingRequest] = []
        """Requests whose handler runs, at either peer."""
        for peer in (self.caller, self.callee):
            peer.requests.address_of = lambda peer_id: peer_info(peer_id).address
            peer.requests.handlers.set(0, self.started.append, 1000)
        self._dialed = 0

    def request(
        self, data: bytes = b"?", timeout_s: float = 5.0, *, peer: Peer | None = None, is_tell: bool = False
    ) -> OutgoingRequest:
        peer = peer or self.caller
        to: PeerId = CALLEE if peer is self.caller else CALLER
        return peer.requests.request(to, data, timeout_s, self.outcomes.append, is_tell=is_tell)

    def connect(self) -> Cable:
        """Let the next dial succeed."""
        near = self.dial()
        responder = self.callee if near.address == peer_info(CALLEE).address else self.caller
        cable = Cable(near, responder)
        self.cables.append(cable)
        return cable

    def dial(self) -> FakeConnection:
        direct = [each for each in self.runtime.dialed if each.address in (peer_info(CALLER)[1], peer_info(CALLEE)[1])]
        self._dialed += 1
        return direct[self._dialed - 1]

    @property
    def dials(self) -> int:
        return sum(each.address in (peer_info(CALLER)[1], peer_info(CALLEE)[1]) for each in self.runtime.dialed)

    def carry(self) -> None:
        """Deliver all frames under way."""
        while any(cable.carry(end) for cable in self.cables for end in (0, 1)):
            pass

    def warm(self) -> Cable:
        """A connection over which one request was answered."""
        self.request()
        cable = self.connect()
        self.carry()
        self.answer(b"warm")
        assert [outcome.data for outcome in self.outcomes] == [b"warm"]
        self.outcomes.clear()
        return cable

    def answer(self, data: bytes) -> None:
        """Let the oldest running handler reply and end."""
        request = self.started.pop(0)
        request.reply(data)
        request.done()
        self.carry()
