"""The systems that are measured, each with its kind, requirements and limits.

A limit is set where a system fails or takes minutes; the tables list limits and systems that are not installed. To add
a system: a file in `adapters/`, a line here, and its broker, if any, in `brokers.py`.
"""

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import brokers
from bench.brokers import Broker
from bench.plan import Case

JGROUPS_JAR = Path("/usr/share/java/jgroups.jar")

CYCLONE_SETTINGS = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces>'
    "<AllowMulticast>false</AllowMulticast><MaxMessageSize>65500B</MaxMessageSize></General>"
    "<Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>99</MaxAutoParticipantIndex>"
    '<Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
)


@dataclass(frozen=True, slots=True)
class System:
    name: str
    """`adapter`, or `adapter:option+option`."""
    kind: str
    about: str
    encrypted: bool = False
    modules: tuple[str, ...] = ()
    """Python packages without which it cannot run."""
    programs: tuple[str, ...] = ()
    debian: str = ""
    """The Debian packages that bring them."""
    broker: Broker | None = None
    java: bool = False
    messages_max: Mapping[str, int] = field(default_factory=dict)
    """By workload."""
    rate_per_s_max: int = 1 << 30
    size_bytes_max: int = 1 << 30
    receivers_max: int = 1 << 30
    limits: str = ""
    """Why there are any."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def adapter(self) -> str:
        return self.name.partition(":")[0]

    @property
    def options(self) -> tuple[str, ...]:
        options = self.name.partition(":")[2]
        return tuple(options.split("+")) if options else ()

    def missing(self) -> str:
        """What is not installed, and how to get it; empty if all is there."""
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                return f"not installed: the Python package {module} (bench/requirements.txt)"
        for program in self.programs:
            if shutil.which(program) is None:
                return f"not installed: {program} (Debian: {self.debian})"
        if self.java and not JGROUPS_JAR.exists():
            return f"not installed: {JGROUPS_JAR.name} (Debian: {self.debian})"
        return ""

    def unable(self, case: Case) -> str:
        """Why it cannot be measured in this case; empty if it can."""
        if case.size_bytes > self.size_bytes_max or case.receivers > self.receivers_max:
            return self.limits
        return ""

    def fitted(self, case: Case) -> Case:
        """The case with no more than this system can bear."""
        rate_per_s = min(case.rate_per_s, self.rate_per_s_max)
        messages = min(case.messages, self.messages_max.get(case.workload, case.messages))
        if case.rate_per_s:
            messages = case.messages * rate_per_s // case.rate_per_s
        return replace(case, messages=messages, rate_per_s=rate_per_s)


_ALL = (
    System("floor", "floor", "raw asyncio TCP, sender to each receiver; no usable system"),
    System("floor:uvloop", "floor", "the same with uvloop", modules=("uvloop",)),
    System("broadloom", "peers, fabric", "plain TCP", modules=("broadloom",)),
    System("broadloom:fresh", "peers, fabric", "mailbox: read from its writer, not locally", modules=("broadloom",)),
    System("broadloom:tls", "peers, fabric", "TLS, key from the name", encrypted=True, modules=("broadloom",)),
    System("broadloom:signed", "peers, fabric", "TLS, and signed messages", encrypted=True, modules=("broadloom",)),
    System("broadloom:before", "peers, fabric", "plain TCP, the version given with --before"),
    System("broadloom:before+tls", "peers, fabric", "TLS, the version given with --before", encrypted=True),
    System(
        "nats",
        "broker",
        "nats-server, nats-py, no limits on pending messages",
        modules=("nats",),
        programs=("nats-server",),
        debian="nats-server",
        broker=brokers.nats,
    ),
    System(
        "nats:uvloop",
        "broker",
        "the same with uvloop",
        modules=("nats", "uvloop"),
        programs=("nats-server",),
        debian="nats-server",
        broker=brokers.nats,
    ),
    System(
        "nats:tls",
        "broker",
        "the same with TLS",
        encrypted=True,
        modules=("nats", "cryptography"),
        programs=("nats-server",),
        debian="nats-server",
        broker=brokers.nats_tls,
    ),
    System(
        "redis",
        "broker",
        "pub/sub, redis-py with hiredis, no limit on slow subscribers, pipelines of 100",
        modules=("redis",),
        programs=("redis-server",),
        debian="redis-server",
        broker=brokers.redis,
    ),
    System(
        "mosquitto",
        "broker",
        "MQTT QoS 0, paho-mqtt, unlimited queues",
        modules=("paho",),
        programs=("mosquitto",),
        debian="mosquitto",
        broker=brokers.mosquitto,
        messages_max={"throughput": 20_000, "frozen": 10_000},
        limits="it moves only some thousand messages a second",
    ),
    System("zenoh", "peers, full mesh", "blocking publisher, shared memory from some KiB on", modules=("zenoh",)),
    System("zenoh:tcp", "peers, full mesh", "the same without shared memory", modules=("zenoh",)),
    System("zeromq", "peers, full mesh", "PUB/SUB without high-water marks", modules=("zmq",)),
    System("nng", "peers, full mesh", "BUS sockets, which drop what overflows", modules=("pynng",)),
    System(
        "cyclonedds",
        "peers, DDS",
        "reliable, keep all, unicast",
        modules=("cyclonedds",),
        messages_max={"throughput": 10_000},
        limits="it moves only some thousand messages a second",
        environment={"CYCLONEDDS_URI": CYCLONE_SETTINGS},
    ),
    System(
        "jgroups",
        "peers, full mesh",
        "2.12, TCP, each node a Java process",
        programs=("java", "javac"),
        debian="libjgroups-java default-jdk-headless",
        java=True,
        receivers_max=8,
        limits="from ten members on some do not join",
    ),
    System(
        "iroh",
        "peers, gossip",
        "iroh-gossip 0.35, QUIC, direct addresses",
        encrypted=True,
        modules=("iroh",),
        messages_max={"throughput": 500, "all-to-all": 50},
        rate_per_s_max=50,
        size_bytes_max=3_500,
        limits="messages of at most 4,096 bytes; drops most of longer bursts",
    ),
    System(
        "libp2p",
        "peers, gossip",
        "py-libp2p, GossipSub 1.1, Noise, signed",
        encrypted=True,
        modules=("libp2p", "trio"),
        messages_max={"throughput": 100, "all-to-all": 20},
        rate_per_s_max=20,
        receivers_max=8,
        limits="17 processes do not come up in time; loses most above 20 messages a second",
    ),
)

SYSTEMS = {system.name: system for system in _ALL}
