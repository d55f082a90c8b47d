"""Eclipse Cyclone DDS: UDP unicast on loopback, reliable, keeping everything, found without multicast."""

import threading
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Any

from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, uint8
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from bench.delivery_check import HEADER
from bench.process_config import BaseNode

BLOCKING_S = 60
DOMAINS = 200
TAKE_MESSAGES = 200


class Node(BaseNode):
    async def connect(self, earlier: Sequence[str]) -> str:
        size_bytes = max(self.config.size_bytes, HEADER.size)
        self._blob: Any = make_dataclass("Blob", [("data", array[uint8, size_bytes])], bases=(IdlStruct,))
        reliable = Policy.Reliability.Reliable(duration(seconds=BLOCKING_S))
        qos = Qos(reliable, Policy.History.KeepAll, Policy.Durability.Volatile)
        self._participant = DomainParticipant(self.config.seed % DOMAINS)
        topic = Topic(self._participant, "bench", self._blob, qos=qos)
        if self.config.receives:
            self._reader = DataReader(self._participant, topic, qos=qos)
            threading.Thread(target=self._listen, daemon=True).start()
        if self.config.sends:
            self._writer = DataWriter(self._participant, topic, qos=qos)
        return "-"

    def _listen(self) -> None:
        deliver, take = self.delivery_check.deliver, self._reader.take
        waiting = WaitSet(self._participant)
        waiting.attach(ReadCondition(self._reader, ViewState.Any | InstanceState.Any | SampleState.NotRead))
        while True:
            waiting.wait(duration(seconds=BLOCKING_S))
            for sample in take(N=TAKE_MESSAGES):
                deliver(bytes(sample.data))

    async def publish(self, payload: bytes) -> None:
        self._writer.write(self._blob(payload))
