"""What `weft demo --once` says at its end."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from weft.lab.words import seconds

REASONS_MAX = 5
_GUILTY = ("missing", "double", "out_of_order", "before_parent", "not_present", "own", "never_sent", "missed_reported")


@dataclass(slots=True)
class Summary:
    peers: int
    processes: int = 0
    grown_s: float = 0.0
    """Until all were there, in one regular fabric."""
    messages: int = 0
    deliveries: int = 0
    kills: int = 0
    came: int = 0
    """Newcomers after the beginning."""
    left: int = 0
    repairs: list[dict[str, Any]] = field(default_factory=list)
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
    def held(self) -> bool:
        return not self.problems and self.deliveries > 0

    def judge(self, verdict: Mapping[str, Any], guilty: list[Mapping[str, Any]]) -> None:
        """By the pipeline: every delivery that was owed has to be on the tapes, once and in order."""
        self.audited_by = "Spark, over the tapes"
        self.audit = dict(verdict)
        for name in _GUILTY:
            if verdict[name]:
                self.problems.append(f"the audit found {verdict[name]:,} deliveries {name.replace('_', ' ')}")
        self.problems += [f"{row['finding']}: {row['detail']}" for row in guilty[:REASONS_MAX]]
        if not verdict["clean"] and not self.problems:
            self.problems.append("the audit is not clean")
        if not verdict["owed"]:
            self.problems.append("the audit found nothing that was owed, so nothing is proved")
        for name, what in (("lost_rows", "rows were lost by recorders"), ("set_aside", "files had to be set aside")):
            if verdict[name]:
                self.problems.append(f"{verdict[name]:,} {what}")

    def as_dict(self) -> dict[str, Any]:
        return {"held": self.held, **asdict(self)}

    def lines(self) -> list[tuple[str, str]]:
        """For people."""
        told = [
            ("peers", f"{self.peers} in {self.processes} processes, one fabric after {seconds(self.grown_s)}"),
            ("messages", f"{self.messages:,}, delivered {self.deliveries:,} times"),
            ("came and went", f"{self.kills} killed, {self.came} came, {self.left} left in good order"),
            *(("repair", f"{seconds(each['took_s'])} after: {each['what']}") for each in self.repairs),
            ("delay", f"median {self.latency_p50_ms:.1f} ms, 99 % within {self.latency_p99_ms:.0f} ms"),
            ("links travelled", f"{self.hops_max} at most"),
        ]
        if self.audit:
            verdict = self.audit
            told.append(("audit by Spark", f"{verdict['owed']:,} deliveries owed, {verdict['missing']:,} missing"))
            if verdict["remarks"]:
                told.append(("not judged", str(verdict["remarks"])))
            told.append(("", f"in {seconds(self.audit_s)}; Spark took {seconds(self.spark_start_s)} to start"))
        elif not self.problems:
            told.append(("audit by the lab", "every peer has every message it was owed, once and in order"))
        return told
