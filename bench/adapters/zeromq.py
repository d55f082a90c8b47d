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

    async def connect(self, earlier: Sequence[str]) -> str:
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.sndhwm = 0
        self._publisher.bind(f"tcp://{HOST}:{self.config.port}")
        self._subscriber = self._context.socket(zmq.SUB)
        self._subscriber.rcvhwm = 0
        self._subscriber.subscribe(b"")
        for author in self.config.authors:
            if author != self.config.index:
                self._subscriber.connect(f"tcp://{HOST}:{self.config.ports[author]}")
        threading.Thread(target=self._listen, daemon=True).start()
        return "-"

    def _listen(self) -> None:
        deliver, receive = self.delivery_check.deliver, self._subscriber.recv
        while True:
            deliver(receive())

    async def publish(self, payload: bytes) -> None:
        self._publisher.send(payload)
