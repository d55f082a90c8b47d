"""What `broadloom demo --headless` says at its end."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from broadloom.testing.cluster.words import format_seconds

REASONS_MAX = 5
_VIOLATION_COLUMNS = (
    "missing_count",
    "duplicate_count",
    "out_of_order_count",
    "reply_before_parent_count",
    "receiver_not_member_count",
    "delivered_to_author_count",
    "never_sent_count",
    "reported_missed_count",
)


@dataclass(slots=True)
class DemoSummary:
    peers: int
    processes: int = 0
    grown_s: float = 0.0
    """Until all were there, in one regular fabric."""
    messages: int = 0
    deliveries: int = 0
    killed: int = 0
    joined: int = 0
    """Newcomers after the beginning."""
    left: int = 0
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    hops_max: int = 0
    missed: int = 0
    problems: list[str] = field(default_factory=list)
    """Why it did not go well, in words."""
    audited_by: str = "the lab itself"
    audit: dict[str, Any] = field(default_factory=dict)
    """The pipeline's verdict."""
    audit_s: float = 0.0
    spark_start_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems and self.deliveries > 0

    def apply_audit(self, audit: Mapping[str, Any], violations: list[Mapping[str, Any]]) -> None:
        """By the pipeline: every delivery that was owed has to be on the tapes, once and in order."""
        self.audited_by = "Spark, over the tapes"
        self.audit = dict(audit)
        for name in _VIOLATION_COLUMNS:
            if audit[name]:
                self.problems.append(
                    f"the audit found {audit[name]:,} deliveries {name.removesuffix('_count').replace('_', ' ')}"
                )
        self.problems += [f"{row['finding']}: {row['detail']}" for row in violations[:REASONS_MAX]]
        if not audit["has_passed"] and not self.problems:
            self.problems.append("the audit is not clean")
        if not audit["due_count"]:
            self.problems.append("the audit found nothing that was owed, so nothing is proved")
        for name, what in (
            ("dropped_row_count", "rows were dropped by recorders"),
            ("quarantined_file_count", "files are quarantined"),
        ):
            if audit[name]:
                self.problems.append(f"{audit[name]:,} {what}")

    def as_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, **asdict(self)}

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        rows = [
            ("peers", f"{self.peers} in {self.processes} processes, one fabric after {format_seconds(self.grown_s)}"),
            ("messages", f"{self.messages:,}, delivered {self.deliveries:,} times"),
            ("came and went", f"{self.killed} killed, {self.joined} came, {self.left} left in good order"),
            *(("repair", f"{format_seconds(each['duration_s'])} after: {each['cause']}") for each in self.recoveries),
            ("delay", f"median {self.latency_p50_ms:.1f} ms, 99 % within {self.latency_p99_ms:.0f} ms"),
            ("links travelled", f"{self.hops_max} at most"),
        ]
        if self.audit:
            audit = self.audit
            rows.append(
                ("audit by Spark", f"{audit['due_count']:,} deliveries due, {audit['missing_count']:,} missing")
            )
            if audit["notes"]:
                rows.append(("not judged", str(audit["notes"])))
            rows.append(
                ("", f"in {format_seconds(self.audit_s)}; Spark took {format_seconds(self.spark_start_s)} to start")
            )
        elif not self.problems:
            rows.append(("audit by the lab", "every peer has every message it was owed, once and in order"))
        return rows
