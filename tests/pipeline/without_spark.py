"""The audit without Spark, in milliseconds."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import polars as pl

from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_in_memory
from tests.pipeline.simulated import simulated_history
from tools.synthetic.fault_injection import InjectedFault, write


@dataclass
class AuditResult:
    messages: pl.DataFrame
    deliveries: pl.DataFrame
    recorded_peers: pl.DataFrame
    delivery_balances: pl.DataFrame
    audit_findings: pl.DataFrame

    @property
    def findings(self) -> set[tuple[str, str, int, str]]:
        """Finding, author, sequence, receiver."""
        return set(self.audit_findings.select("finding", "author", "sequence", "receiver").iter_rows())

    @property
    def violations(self) -> set[tuple[str, str, int, str]]:
        return {each for each in self.findings if each[0] != "reported_missed"}


def frame(table: pa.Table) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(table))


def run_audit(tape: pa.Table, quarantined: pl.DataFrame | None = None) -> AuditResult:
    """`tape` as returned by `broadloom.record.read`."""
    found = build_in_memory(tape, "audit_findings", quarantined=quarantined)
    names = ("messages", "deliveries", "recorded_peers", "delivery_balances", "audit_findings")
    return AuditResult(*(found[name] for name in names))


def named(injected: list[InjectedFault]) -> set[tuple[str, str, int, str]]:
    """Injected faults, as `AuditResult.findings` has them."""
    return {(each.finding, each.author, each.sequence, each.receiver) for each in injected}


def write_simulation(folder: Path, scenario: str, peers: int) -> Path:
    """Write the tape of a simulation into this folder, and return it."""
    rows = simulated_history(scenario, peers).rows
    channel = rows["channel"][0].as_py()
    write(frame(rows), folder, {channel: channel.ljust(64, "0")})
    return folder
