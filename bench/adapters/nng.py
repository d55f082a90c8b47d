"""nng's BUS sockets (pynng) in a full mesh. Messages that do not fit into their queues are dropped, by design."""

import threading
from collections.abc import Sequence

import pynng

from bench.process_config import HOST, BaseNode

QUEUE_MESSAGES = 8192  # the most there is


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        address = f"tcp://{HOST}:{self.config.port}"
        self._bus = pynng.Bus0(recv_buffer_size=QUEUE_MESSAGES, send_buffer_size=QUEUE_MESSAGES)
        self._bus.listen(address)
        for other in earlier:
            self._bus.dial(other, block=True)
        threading.Thread(target=self._listen, daemon=True).start()
        return address

    def _listen(self) -> None:
        deliver, receive = self.delivery_check.deliver, self._bus.recv
        while True:
            deliver(receive())

    async def publish(self, payload: bytes) -> None:
        self._bus.send(payload)
