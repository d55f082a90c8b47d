"""The guarantees, checked while a local cluster runs.

Each peer checks its own deliveries (`delivery_log.py`). What needs a comparison between peers is compared every second
or two: messages that an author sent a moment ago have to be with every member. A late message is not lost: while peers
are paused or partitioned, and for a while afterwards, it is in transit. `audit.py` decides what is due, `settling.py`
what is lost.
"""

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.audit import DESCRIPTIONS_MAX, Comparison, DeliveryAudit, Replies
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.checks.guarantees import PeerView, component_sizes, find_overfull, report_adjacency
from broadloom.testing.checks.settling import SETTLE_S, FabricState, Verdict, format_seconds, verdict

if TYPE_CHECKING:
    from broadloom.testing.cluster.metrics import MetricsSampler

DUE_S = 2.0
"""Messages older than this should be with every member."""


@dataclass(frozen=True, slots=True)
class GuaranteeStatus:
    name: str
    verdict: Verdict
    summary: str
    """For display, with counts: "12,345 deliveries checked, 0 violations"."""

    @property
    def holds(self) -> bool:
        """It is not violated."""
        return self.verdict is not Verdict.BROKEN

    @property
    def is_pending(self) -> bool:
        """It holds so far, and a repair will decide."""
        return self.verdict is Verdict.UNSETTLED


class LiveGuarantees(DeliveryAudit):
    """The audit of a running cluster, and the violations found."""

    def __init__(self, settle_s: float = SETTLE_S) -> None:
        super().__init__()
        self._settle_s = settle_s
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
        history = self._expected_history
        history.append((time.monotonic(), self.expected(heads)))
        while len(history) > 1 and history[-1][0] - history[1][0] >= self._settle_s:
            history.popleft()
        return self._expected_before(DUE_S)

    def expected_if_settled(self, fabric: FabricState) -> dict[int, AuthorHead]:
        """Return what is lost if any member lacks it; nothing while messages may be delayed."""
        return self._expected_before(self._settle_s) if fabric.is_settled else {}

    def _expected_before(self, seconds: float) -> dict[int, AuthorHead]:
        before_s = time.monotonic() - seconds
        return next((heads for at_s, heads in reversed(self._expected_history) if at_s <= before_s), {})

    def on_compared(self, replies: Replies) -> None:
        """Take in the replies to `find_missing` about what should be with every member by now."""
        comparison = Comparison.from_replies(replies)
        self.compared_pairs += comparison.pairs
        self.missing_count = comparison.missing_count
        self.missing_descriptions = comparison.descriptions
        if not self.missing_count:
            self.lost_count = 0

    def on_settled(self, replies: Replies) -> None:
        """Take in the replies to `find_missing` about `expected_if_settled`."""
        self.lost_count = Comparison.from_replies(replies).missing_count


def statuses(
    checks: LiveGuarantees,
    metrics: "MetricsSampler",
    views: "Collection[PeerView]",
    fabric: FabricState,
    degree: int,
    *,
    is_partitioned: bool,
) -> list[GuaranteeStatus]:
    return [
        _order_status(checks, metrics),
        _completeness_status(checks, fabric),
        _missed_status(metrics),
        _links_status(checks, views, fabric, degree),
        _connectivity_status(views, fabric, is_partitioned=is_partitioned),
    ]


def _order_status(checks: LiveGuarantees, metrics: "MetricsSampler") -> GuaranteeStatus:
    text = f"{metrics.delivered:,} deliveries checked, {checks.violation_count:,} violations"
    if checks.violations:
        text += f": {checks.violations[0]}"
    return GuaranteeStatus("Exactly-once delivery, in order per author", verdict(checks.violation_count, 0), text)


def _completeness_status(checks: LiveGuarantees, fabric: FabricState) -> GuaranteeStatus:
    text = f"{checks.compared_pairs:,} author-receiver pairs compared, "
    if checks.lost_count:
        text += f"{checks.lost_count:,} with lost messages: {'; '.join(checks.missing_descriptions[:2])}"
    elif checks.missing_count:
        text += f"{checks.missing_count:,} with messages in transit"
        text += "" if fabric.is_settled else f", which wait for {fabric.waits_for}"
    else:
        text += "nothing missing"
    waiting = 0 if fabric.is_settled else checks.missing_count
    return GuaranteeStatus("Complete delivery to every member", verdict(checks.lost_count, waiting), text)


def _missed_status(metrics: "MetricsSampler") -> GuaranteeStatus:
    """An unreported gap is a violation of the order guarantee."""
    text = f"{metrics.missed:,} messages reported as missed" if metrics.missed else "no messages missed"
    return GuaranteeStatus("No silent loss", Verdict.HELD, text)


def _links_status(
    checks: LiveGuarantees, views: "Collection[PeerView]", fabric: FabricState, degree: int
) -> GuaranteeStatus:
    overfull = checks.overfull_count + len(find_overfull(views, degree))
    if overfull:
        text = f"{checks.overfull_count:,} times a peer had more than {degree} links"
    elif fabric.free_slots:
        text = f"{fabric.free_slots} free slots, repairing for {format_seconds(fabric.repairing_s or 0.0)}"
    else:
        fewest = min((len(view.neighbors) for view in views), default=0)
        text = f"all {len(views)} peers have {degree} links" if fewest >= degree else f"full mesh of {len(views)} peers"
    found = verdict(overfull, fabric.free_slots)
    return GuaranteeStatus(f"Regular fabric: {degree} links per peer, never more", found, text)


def _connectivity_status(
    views: "Collection[PeerView]", fabric: FabricState, *, is_partitioned: bool
) -> GuaranteeStatus:
    sizes = component_sizes(report_adjacency(views))
    if len(sizes) <= 1:
        return GuaranteeStatus("Connected fabric", Verdict.HELD, f"all {sum(sizes)} peers can reach each other")
    text = f"{len(sizes)} components, of {', '.join(map(str, sizes[:6]))} peers: "
    if is_partitioned:
        text += "partitioned by you; merges after healing"
    else:
        text += f"repairing for {format_seconds(fabric.repairing_s or 0.0)}"
    return GuaranteeStatus("Connected fabric", Verdict.UNSETTLED, text)
