"""The plan of a run: cases, repetitions and time limits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

WORKLOADS = ("throughput", "latency", "all-to-all", "join", "scale", "frozen", "request", "switch", "mailbox", "topics")

SMALL_BYTES = 100
LARGE_BYTES = 10_240

ALL_TO_ALL_PROCESSES = 8
JOIN_MEMBERS = 8
JOIN_NEWCOMERS = 8
JOIN_RATE_PER_S = 500
LATENCY_RECEIVERS = 16
LATENCY_RATE_PER_S = 200
FROZEN_RECEIVERS = 16
TOPICS = 1_000
TOPICS_RECEIVERS = 16
REQUEST_CLIENTS = 15
REQUEST_RATE_PER_S = 20
"""Of each client, while the latency is measured."""
ONLY_MAILBOX = ("broadloom:fresh",)
"""Another way to read a value; elsewhere the same as Broadloom."""
REQUEST_CONCURRENCY = 8
"""Requests of each client that are open at a time, while the rate is measured."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the plan, the same for every system."""

    workload: str
    receivers: int
    """Processes that must get everything. In all-to-all, these are also the ones that send."""
    size_bytes: int
    messages: int
    """Sent by each author. In the frozen case: to measure the undisturbed rate."""
    rate_per_s: int = 0
    """0: as fast as the system takes them."""
    topics: int = 0
    """Topics over which the messages are spread; every receiver has a subscription for each."""

    @property
    def key(self) -> tuple[str, int, int]:
        return self.workload, self.receivers, self.size_bytes

    def __str__(self) -> str:
        return f"{self.workload}, {self.receivers} receivers, {self.size_bytes:,} B"


@dataclass(frozen=True, slots=True)
class Plan:
    """The numbers of a whole run; `FULL` and `QUICK` are below, the command line may change any of them."""

    systems: tuple[str, ...]
    workloads: tuple[str, ...] = WORKLOADS
    rounds: int = 3
    """All cases of all systems are gone through so often, each time in another order: what disturbs the machine for a
    while then disturbs all systems alike."""
    repeats: int = 3
    """Measurements with the same processes, one after the other: starting them takes longer than measuring."""
    receivers: tuple[int, ...] = (8, 16)
    sizes_bytes: tuple[int, ...] = (SMALL_BYTES, LARGE_BYTES)
    small_messages: int = 50_000
    large_messages: int = 5_000
    latency_s: float = 5.0
    all_to_all_messages: int = 2_000
    newcomers: int = JOIN_NEWCOMERS
    scale_receivers: tuple[int, ...] = (8, 16, 32, 64)
    scale_messages: int = 20_000
    scale_systems: tuple[str, ...] = ("broadloom",)
    frozen_systems: tuple[str, ...] = (
        "floor",
        "broadloom",
        "nats",
        "redis",
        "mosquitto",
        "zenoh:tcp",
        "zeromq",
        "broadloom:tls",
    )
    """One or two of each kind: the effect of a paused receiver on the others."""
    frozen_s: float = 12.0
    frozen_rounds: int = 1
    """One is enough: it takes long, and the differences are large."""
    request_systems: tuple[str, ...] = (
        "broadloom",
        "nats",
        "nats:uvloop",
        "zeromq",
        "broadloom:tls",
        "nats:tls",
    )
    """Those with requests and replies of their own."""
    switch_systems: tuple[str, ...] = ("broadloom", "nats", "nats:uvloop", "broadloom:tls", "nats:tls")
    """Those in which a request names an operation: the switch, and the services of NATS."""
    mailbox_systems: tuple[str, ...] = (
        "broadloom",
        "broadloom:fresh",
        "nats",
        "nats:uvloop",
        "broadloom:tls",
        "nats:tls",
    )
    """Those with values that stay: mailboxes, and the key-value store of NATS."""
    topics_systems: tuple[str, ...] = (
        "broadloom",
        "nats",
        "nats:uvloop",
        "redis",
        "zeromq",
        "broadloom:tls",
        "nats:tls",
    )
    """Some with topics of their own."""
    topics_messages: int = 20_000
    requests: int = 2_000
    """Of each client, to measure the rate."""
    progress_timeout_s: float = 3.0
    """Messages that have not arrived after this time without progress count as lost."""
    deadline_s: float = 60.0
    calm_s: float = 10.0
    """Maximum time to wait for an idle machine before a measurement."""
    settle_s: float = 0.5
    before: Path | None = None
    """Checkout of another version of Broadloom, for the systems `broadloom:before` and `broadloom:before+tls`."""

    def cases(self) -> Iterator[Case]:
        for workload in self.workloads:
            yield from self._cases_of(workload)

    def _cases_of(self, workload: str) -> Iterator[Case]:
        if workload == "throughput":
            for size_bytes in self.sizes_bytes:
                for receivers in self.receivers:
                    yield Case(workload, receivers, size_bytes, self.messages_of(size_bytes))
        elif workload == "latency":
            messages = int(LATENCY_RATE_PER_S * self.latency_s)
            yield Case(workload, LATENCY_RECEIVERS, SMALL_BYTES, messages, LATENCY_RATE_PER_S)
        elif workload == "all-to-all":
            yield Case(workload, ALL_TO_ALL_PROCESSES, SMALL_BYTES, self.all_to_all_messages)
        elif workload == "join":
            messages = JOIN_RATE_PER_S * int(self.deadline_s)
            yield Case(workload, JOIN_MEMBERS - 1 + self.newcomers, SMALL_BYTES, messages, JOIN_RATE_PER_S)
        elif workload == "scale":
            for receivers in self.scale_receivers:
                yield Case(workload, receivers, SMALL_BYTES, self.scale_messages)
        elif workload == "frozen":
            yield Case(workload, FROZEN_RECEIVERS, SMALL_BYTES, self.messages_of(SMALL_BYTES))
        elif workload in ("request", "switch", "mailbox"):
            yield Case(workload, REQUEST_CLIENTS, SMALL_BYTES, self.requests, REQUEST_RATE_PER_S)
        elif workload == "topics":
            yield Case(workload, TOPICS_RECEIVERS, SMALL_BYTES, self.topics_messages, topics=TOPICS)
        else:
            raise ValueError(f"no workload {workload!r}; there are {', '.join(WORKLOADS)}")

    def systems_of(self, case: Case) -> tuple[str, ...]:
        """Those for which the case is meant."""
        limited = {
            "scale": self.scale_systems,
            "frozen": self.frozen_systems,
            "request": self.request_systems,
            "switch": self.switch_systems,
            "mailbox": self.mailbox_systems,
            "topics": self.topics_systems,
        }
        allowed = limited.get(case.workload, [system for system in self.systems if system not in ONLY_MAILBOX])
        return tuple(system for system in self.systems if _present(system) in allowed)

    def messages_of(self, size_bytes: int) -> int:
        """Large messages take longer, and so fewer are enough."""
        return self.large_messages if size_bytes > 1024 else self.small_messages

    def rounds_of(self, case: Case) -> int:
        return min(self.rounds, self.frozen_rounds) if case.workload == "frozen" else self.rounds


FULL = Plan(
    systems=(
        "floor",
        "floor:uvloop",
        "broadloom",
        "broadloom:fresh",
        "nats",
        "nats:uvloop",
        "redis",
        "mosquitto",
        "zenoh",
        "zenoh:tcp",
        "zeromq",
        "nng",
        "cyclonedds",
        "jgroups",
        "broadloom:tls",
        "broadloom:signed",
        "nats:tls",
        "iroh",
        "libp2p",
    )
)

QUICK = replace(
    FULL,
    systems=("floor", "broadloom", "broadloom:fresh", "nats", "redis", "zenoh", "zeromq", "broadloom:tls", "nats:tls"),
    workloads=("throughput", "latency", "join", "scale", "frozen", "request", "switch", "mailbox", "topics"),
    rounds=1,
    repeats=2,
    receivers=(8,),
    small_messages=20_000,
    large_messages=2_000,
    topics_messages=5_000,
    requests=1_000,
    latency_s=2.0,
    newcomers=4,
    scale_receivers=(8, 16),
    frozen_systems=("broadloom", "nats", "zeromq"),
    frozen_s=4.0,
    progress_timeout_s=2.0,
    deadline_s=30.0,
    calm_s=1.0,
)


def _present(system: str) -> str:
    """The same system in the present version."""
    return system.replace(":before+", ":").removesuffix(":before")


def chosen(given: Sequence[str], known: Sequence[str], what: str) -> tuple[str, ...]:
    """The given ones, if all are known."""
    for each in given:
        if each not in known:
            raise ValueError(f"no {what} {each!r}; there are {', '.join(known)}")
    return tuple(given)
