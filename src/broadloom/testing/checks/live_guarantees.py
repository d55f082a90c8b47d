"""The promises of Broadloom, checked while a lab runs.

Each peer checks by itself what it is given, at each delivery: once, in order, no gap (`ledger.py`). What must be
compared between peers is compared every second or two: what each author had sent a moment ago has to be with everyone
who was there. What is late is not lost: while a part is frozen or apart, and for a while after, it is on its way.

Judged as in a trial (`trial.audit.owed`): a living author's messages are owed to everyone who was a member when they
were sent; those of one that left in peace as well; a dead one's as far as any survivor has them.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.audit import DepartedPeer, expected_deliveries
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.checks.guarantees import component_sizes, find_overfull, report_adjacency
from broadloom.topology import free_slots

if TYPE_CHECKING:
    from broadloom.testing.checks.recovery import RecoveryTracker
    from broadloom.testing.cluster.cluster_state import ClusterState
    from broadloom.testing.cluster.metrics import MetricsSampler

DUE_S = 2.0
"""What was sent so long ago should be with everyone, if nothing is wrong."""
LOST_S = 60.0
"""What is still lacking so long after the fabric was whole is not late any more."""
REPAIR_TIMEOUT_S = 120.0
"""A fabric that is not whole so long after it was disturbed has broken its promise."""
DESCRIPTIONS_MAX = 20
DEPARTED_MAX = 5000
KILLS_MAX = 1000


@dataclass(frozen=True, slots=True)
class GuaranteeStatus:
    name: str
    holds: bool
    summary: str
    """For people, with the counts: "12,345 deliveries checked, 0 wrong"."""
    is_pending: bool = False
    """It holds so far, and something is under way that it will be judged by: a repair, messages on their way."""


class LiveGuarantees:
    """What is known of who said what, and what was found wrong."""

    def __init__(self) -> None:
        self.violation_count = 0
        self.violations: deque[str] = deque(maxlen=DESCRIPTIONS_MAX)
        """In words."""
        self.errors: deque[str] = deque(maxlen=DESCRIPTIONS_MAX)
        """Exceptions inside peers that nobody caught, processes that ended by themselves."""
        self.error_count = 0
        self.lost_count = 0
        self.missing_count = 0
        """Messages, or rather authors and receivers, that are behind at present."""
        self.missing_descriptions: list[str] = []
        self.compared_pairs = 0
        """Pairs of author and receiver that were compared, since the beginning."""
        self.overfull_count = 0
        self._violations_by_worker: dict[int, int] = {}
        self._heads: dict[int, AuthorHead] = {}
        self._departed: dict[int, DepartedPeer] = {}
        self._kills_ns: deque[int] = deque(maxlen=KILLS_MAX)
        self._expected_history: deque[tuple[float, dict[int, AuthorHead]]] = deque()
        self._due: dict[int, AuthorHead] = {}
        self._missing_since_s: float | None = None

    # -- told by processes

    def on_counts(self, worker: int, counts: dict[str, Any]) -> None:
        for peer, sent, sent_ns in counts["marks"]:
            self._heads[peer] = AuthorHead(sent, sent_ns)
        count = counts["broken_count"]
        self.violation_count += count - self._violations_by_worker.get(worker, 0)
        self._violations_by_worker[worker] = count

    def record_error(self, text: str) -> None:
        self.error_count += 1
        self.errors.append(text)

    def on_departed(self, peer_id: int, *, left_gracefully: bool, sent_count: int = 0, last_sent_ns: int = 0) -> None:
        at_ns = time.monotonic_ns()
        if not left_gracefully:
            self._kills_ns.append(at_ns)
        elif sent_count:
            self._heads[peer_id] = AuthorHead(sent_count, last_sent_ns)
        self._departed[peer_id] = DepartedPeer(left_gracefully, at_ns, sent_count, last_sent_ns)
        if len(self._departed) > DEPARTED_MAX:
            forgotten = next(iter(self._departed))
            del self._departed[forgotten]
            self._heads.pop(forgotten, None)

    @property
    def departed(self) -> list[int]:
        return list(self._departed)

    # -- comparing

    def expected_by_now(self, heads: list[dict[str, Any]]) -> list[list[int]]:
        """What should be with everyone by now: author, last message, when that was sent. `heads` is what everyone has
        said and heard (`trial.testimony.heads`)."""
        now_s = time.monotonic()
        self._expected_history.append((now_s, self._expected(heads)))
        while self._expected_history and now_s - self._expected_history[0][0] >= DUE_S:
            self._due = self._expected_history.popleft()[1]
        return _to_rows(self._due)

    def expected_exactly(self, heads: list[dict[str, Any]]) -> list[list[int]]:
        """The same with all that was said up to now."""
        return _to_rows(self._expected(heads))

    def _expected(self, heads: list[dict[str, Any]]) -> dict[int, AuthorHead]:
        for answer in heads:
            for peer, sent, sent_ns in answer["living"]:
                self._heads[peer] = AuthorHead(sent, sent_ns)
        living = {peer: head for peer, head in self._heads.items() if peer not in self._departed}
        held = {}
        for peer, last, _ in (each for answer in heads for each in answer["gone"]):
            last_head = self._heads.get(peer)
            # Further than it could tell before it died, it is not known when it was sent, and so to whom it is owed.
            if last_head is not None and last >= last_head.last_sequence:
                held[peer] = last_head
        return expected_deliveries(living, self._departed, held, self._kills_ns)

    def on_compared(self, replies: list[dict[str, Any]], *, is_stable: bool) -> None:
        """What everyone lacks of the roll. `is_calm`: nobody is frozen, nothing apart, the fabric whole."""
        self.compared_pairs += sum(answer["pairs"] for answer in replies)
        self.missing_count = sum(answer["lacking_count"] for answer in replies)
        self.missing_descriptions = [text for answer in replies for text in answer["lacking"]][:DESCRIPTIONS_MAX]
        now_s = time.monotonic()
        if not self.missing_count or not is_stable:
            self._missing_since_s = None
            if not self.missing_count:
                self.lost_count = 0
        elif self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > LOST_S:
            self.lost_count = self.missing_count


def _to_rows(expected: dict[int, AuthorHead]) -> list[list[int]]:
    return [[author, head.last_sequence, head.last_sent_ns] for author, head in expected.items()]


def statuses(
    checks: LiveGuarantees,
    metrics: "MetricsSampler",
    state: "ClusterState",
    recoveries: "RecoveryTracker",
    degree: int,
    *,
    is_partitioned: bool,
) -> list[GuaranteeStatus]:
    """Each promise, whether it holds, and a sentence with the counts."""
    return [
        _order_status(checks, metrics),
        _completeness_status(checks),
        _missed_status(metrics),
        _links_status(checks, state, recoveries, degree),
        _connectivity_status(state, recoveries, is_partitioned=is_partitioned),
    ]


def _order_status(checks: LiveGuarantees, metrics: "MetricsSampler") -> GuaranteeStatus:
    text = f"{metrics.delivered:,} deliveries checked, {checks.violation_count:,} wrong"
    if checks.violations:
        text += f": {checks.violations[0]}"
    return GuaranteeStatus("Every message once, each author's in order", not checks.violation_count, text)


def _completeness_status(checks: LiveGuarantees) -> GuaranteeStatus:
    text = f"{checks.compared_pairs:,} times an author and a receiver were compared"
    if checks.lost_count:
        text += f"; {checks.lost_count:,} lack something: {'; '.join(checks.missing_descriptions[:2])}"
    elif checks.missing_count:
        text += f"; {checks.missing_count:,} wait for messages that are on their way"
    else:
        text += ", nothing is lacking"
    return GuaranteeStatus(
        "Everyone who was there gets everything", not checks.lost_count, text, bool(checks.missing_count)
    )


def _missed_status(metrics: "MetricsSampler") -> GuaranteeStatus:
    """A gap that was not told is one of those that are wrong above."""
    text = (
        f"{metrics.missed:,} messages could not be had in time, and each was told"
        if metrics.missed
        else ("no message had to be given up")
    )
    return GuaranteeStatus("Nothing is lost silently", True, text)


def _links_status(
    checks: LiveGuarantees, state: "ClusterState", recoveries: "RecoveryTracker", degree: int
) -> GuaranteeStatus:
    members = state.members
    overfull = find_overfull(members, degree)
    missing = sum(free_slots(report_adjacency(members), degree).values())
    late = missing > 0 and recoveries.unconverged_s > REPAIR_TIMEOUT_S
    if checks.overfull_count or overfull:
        text = f"{checks.overfull_count:,} times somebody had more than {degree}"
    elif missing:
        text = f"{missing} links are lacking; repair is under way since {recoveries.unconverged_s:.1f} s"
    else:
        fewest = min((len(view.neighbors) for view in members.values()), default=0)
        text = f"all {len(members)} peers have {degree if fewest >= degree else 'as many as there are others'}"
    return GuaranteeStatus(
        f"Everyone keeps {degree} links, never more",
        not (late or checks.overfull_count or overfull),
        text,
        missing > 0,
    )


def _connectivity_status(
    state: "ClusterState", recoveries: "RecoveryTracker", *, is_partitioned: bool
) -> GuaranteeStatus:
    sizes = component_sizes(report_adjacency(state.members))
    if len(sizes) <= 1:
        return GuaranteeStatus("One fabric", True, f"all {sum(sizes)} peers can be reached from each other")
    text = f"{len(sizes)} parts, of {', '.join(map(str, sizes[:6]))} peers"
    if is_partitioned:
        return GuaranteeStatus("One fabric", True, f"{text}: split on purpose; they merge when that is healed", True)
    late = recoveries.unconverged_s > REPAIR_TIMEOUT_S
    return GuaranteeStatus("One fabric", not late, f"{text}: they look for each other", True)
