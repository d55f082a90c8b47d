"""ZeroMQ PUB/SUB in a full mesh, without high-water marks, which would drop.

A PUB socket does not dial, so the first members must know where later ones will listen: all ports are fixed in advance.
A newcomer only subscribes to the members; they do not learn of it.
"""

import threading
from collections.abc import Sequence

import zmq

from bench.process_config import HOST, BaseNode


class Node(BaseNode):
    async def prepare(self) -> None:
        self._context = zmq.Context()
        self._prefixes = [topic.encode() + b" " for topic in self.topics] or [b""]  # prefixes: `a/1` matches `a/11`
        self._requester: zmq.Socket[bytes] | None = None

    async def connect(self, earlier: Sequence[str]) -> str:
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.sndhwm = 0
        self._publisher.bind(f"tcp://{HOST}:{self.config.port}")
        self._subscriber = self._context.socket(zmq.SUB)
        self._subscriber.rcvhwm = 0
        for prefix in self._prefixes:
            self._subscriber.subscribe(prefix)
        for author in self.config.authors:
            if author != self.config.index:
                self._subscriber.connect(f"tcp://{HOST}:{self.config.ports[author]}")
        threading.Thread(target=self._listen, daemon=True).start()
        return "-"

    def _listen(self) -> None:
        deliver, receive = self.delivery_check.deliver, self._subscriber.recv_multipart
        while True:
            deliver(receive()[-1])

    async def serve(self, _service: str) -> str:
        server = self._context.socket(zmq.REP)
        server.bind(f"tcp://{HOST}:0")
        threading.Thread(target=self._answer, args=(server,), daemon=True).start()
        address: str = server.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        return address

    @staticmethod
    def _answer(server: "zmq.Socket[bytes]") -> None:
        while True:
            server.send(server.recv())

    async def ask(self, server: str, payload: bytes) -> bytes:
        """Blocks, as REQ sockets do: one request at a time."""
        if self._requester is None:
            self._requester = self._context.socket(zmq.REQ)
            self._requester.connect(server)
        self._requester.send(payload)
        reply: bytes = self._requester.recv()
        return reply

    async def publish(self, payload: bytes) -> None:
        if self.topics:
            self._publisher.send_multipart([self.next_topic().encode() + b" ", payload])
        else:
            self._publisher.send(payload)
