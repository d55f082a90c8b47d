"""The guarantees, checked while a local cluster runs.

Each peer checks its own deliveries (`delivery_log.py`). What needs a comparison between peers is compared every second
or two: messages that an author sent a moment ago have to be with every member. A late message is not lost: while peers
are paused or partitioned, and for a while afterwards, it is in transit. `audit.py` decides what is due.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.audit import DESCRIPTIONS_MAX, Comparison, DeliveryAudit, Replies
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.checks.guarantees import component_sizes, find_overfull, report_adjacency
from broadloom.topology import free_slots

if TYPE_CHECKING:
    from broadloom.testing.checks.recovery import RecoveryTracker
    from broadloom.testing.cluster.metrics import MetricsSampler
    from broadloom.testing.processes.coordinator import Coordinator

DUE_S = 2.0
"""Messages older than this should be with every member."""
LOST_S = 60.0
"""Messages still missing after the fabric was regular for this long are lost."""
REPAIR_TIMEOUT_S = 120.0
"""A fabric that is not regular this long after a disturbance violates its guarantee."""


@dataclass(frozen=True, slots=True)
class GuaranteeStatus:
    name: str
    holds: bool
    summary: str
    """For display, with counts: "12,345 deliveries checked, 0 violations"."""
    is_pending: bool = False
    """It holds so far, and a repair or messages in transit will decide."""


class LiveGuarantees(DeliveryAudit):
    """The audit of a running cluster, and the violations found."""

    def __init__(self) -> None:
        super().__init__()
        self.violation_count = 0
        self.violations: deque[str] = deque(maxlen=DESCRIPTIONS_MAX)
        self.errors: deque[str] = deque(maxlen=DESCRIPTIONS_MAX)
        """Uncaught exceptions in workers, and workers that exited unexpectedly."""
        self.error_count = 0
        self.lost_count = 0
        self.missing_count = 0
        """Author-receiver pairs with messages missing at present."""
        self.missing_descriptions: list[str] = []
        self.compared_pairs = 0
        """Author-receiver pairs compared since the start."""
        self.overfull_count = 0
        self._violations_by_worker: dict[int, int] = {}
        self._expected_history: deque[tuple[float, dict[int, AuthorHead]]] = deque()
        self._due: dict[int, AuthorHead] = {}
        self._missing_since_s: float | None = None

    # -- reports of workers

    def on_counts(self, worker: int, counts: dict[str, Any]) -> None:
        self.on_heads(counts["heads"])
        count = counts["violation_count"]
        self.violation_count += count - self._violations_by_worker.get(worker, 0)
        self._violations_by_worker[worker] = count

    def record_error(self, text: str) -> None:
        self.error_count += 1
        self.errors.append(text)

    # -- comparisons

    def expected_by_now(self, heads: Replies) -> dict[int, AuthorHead]:
        """Return what should be with every member by now. `heads` are the replies to `author_heads`."""
        now_s = time.monotonic()
        self._expected_history.append((now_s, self.expected(heads)))
        while self._expected_history and now_s - self._expected_history[0][0] >= DUE_S:
            self._due = self._expected_history.popleft()[1]
        return self._due

    def on_compared(self, replies: Replies, *, is_stable: bool) -> None:
        """Take in the replies to `find_missing`. `is_stable`: no peer is paused and the fabric is one regular graph."""
        comparison = Comparison.from_replies(replies)
        self.compared_pairs += comparison.pairs
        self.missing_count = comparison.missing_count
        self.missing_descriptions = comparison.descriptions
        now_s = time.monotonic()
        if not self.missing_count or not is_stable:
            self._missing_since_s = None
            if not self.missing_count:
                self.lost_count = 0
        elif self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > LOST_S:
            self.lost_count = self.missing_count


def statuses(
    checks: LiveGuarantees,
    metrics: "MetricsSampler",
    state: "Coordinator",
    recoveries: "RecoveryTracker",
    degree: int,
    *,
    is_partitioned: bool,
) -> list[GuaranteeStatus]:
    return [
        _order_status(checks, metrics),
        _completeness_status(checks),
        _missed_status(metrics),
        _links_status(checks, state, recoveries, degree),
        _connectivity_status(state, recoveries, is_partitioned=is_partitioned),
    ]


def _order_status(checks: LiveGuarantees, metrics: "MetricsSampler") -> GuaranteeStatus:
    text = f"{metrics.delivered:,} deliveries checked, {checks.violation_count:,} violations"
    if checks.violations:
        text += f": {checks.violations[0]}"
    return GuaranteeStatus("Exactly-once delivery, in order per author", not checks.violation_count, text)


def _completeness_status(checks: LiveGuarantees) -> GuaranteeStatus:
    text = f"{checks.compared_pairs:,} author-receiver pairs compared, "
    if checks.lost_count:
        text += f"{checks.lost_count:,} with lost messages: {'; '.join(checks.missing_descriptions[:2])}"
    elif checks.missing_count:
        text += f"{checks.missing_count:,} with messages in transit"
    else:
        text += "nothing missing"
    is_pending = bool(checks.missing_count)
    return GuaranteeStatus("Complete delivery to every member", not checks.lost_count, text, is_pending)


def _missed_status(metrics: "MetricsSampler") -> GuaranteeStatus:
    """An unreported gap is a violation of the order guarantee."""
    text = f"{metrics.missed:,} messages reported as missed" if metrics.missed else "no messages missed"
    return GuaranteeStatus("No silent loss", True, text)


def _links_status(
    checks: LiveGuarantees, state: "Coordinator", recoveries: "RecoveryTracker", degree: int
) -> GuaranteeStatus:
    views = state.members.values()
    overfull, missing = find_overfull(views, degree), sum(free_slots(report_adjacency(views), degree).values())
    is_late = missing > 0 and recoveries.unconverged_s > REPAIR_TIMEOUT_S
    if checks.overfull_count or overfull:
        text = f"{checks.overfull_count:,} times a peer had more than {degree} links"
    elif missing:
        text = f"{missing} free slots, repairing for {recoveries.unconverged_s:.1f} s"
    else:
        fewest = min((len(view.neighbors) for view in views), default=0)
        text = f"all {len(views)} peers have {degree} links" if fewest >= degree else f"full mesh of {len(views)} peers"
    holds = not (is_late or checks.overfull_count or overfull)
    return GuaranteeStatus(f"Regular fabric: {degree} links per peer, never more", holds, text, missing > 0)


def _connectivity_status(
    state: "Coordinator", recoveries: "RecoveryTracker", *, is_partitioned: bool
) -> GuaranteeStatus:
    sizes = component_sizes(report_adjacency(state.members.values()))
    if len(sizes) <= 1:
        return GuaranteeStatus("Connected fabric", True, f"all {sum(sizes)} peers can reach each other")
    text = f"{len(sizes)} components, of {', '.join(map(str, sizes[:6]))} peers"
    if is_partitioned:
        return GuaranteeStatus("Connected fabric", True, f"{text}: partitioned by you; merges after healing", True)
    is_late = recoveries.unconverged_s > REPAIR_TIMEOUT_S
    return GuaranteeStatus("Connected fabric", not is_late, f"{text}: merging", True)
