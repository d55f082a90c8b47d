"""What could not be judged is said, and is not taken for proof that a guarantee held."""

import os
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.pipeline.quarantine import FileReport, QuarantineReason, quarantine
from broadloom.pipeline.tables.audit_summary import audit_verdict
from broadloom.record.arrow_import import pa
from broadloom.testing.checks.settling import Verdict
from tests.pipeline.building import build_in_memory
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_delivery_balances import A, B, C, TapeBuilder
from tests.pipeline.without_spark import frame, write_simulation


def summary(rows: pa.Table, quarantined: pl.DataFrame | None = None) -> dict:
    return build_in_memory(rows, "audit_summary", quarantined=quarantined)["audit_summary"].row(0, named=True)


@pytest.mark.parametrize("kinds", [["delivered"], ["delivered", "received"]], ids=" and ".join)
@pytest.mark.parametrize("status", ["present", "crashed"])
def test_short_tape_without_any_delivery_of_a_peer_is_unjudged(status: str, kinds: list[str]) -> None:
    """The tape is shorter than `settle_s`, so nothing is missing for certain."""
    rows = simulated_history("kill", 9).rows
    peers = build_in_memory(rows, "recorded_peers")["recorded_peers"].filter(pl.col("end_status") == status)
    assert summary(rows)["verdict"] == "held"
    for peer in peers["peer"]:
        is_lost = (pl.col("peer") == peer) & pl.col("kind").is_in(kinds)
        found = summary(frame(rows).filter(~is_lost).to_arrow())
        assert (found["verdict"], found["unjudged_peer_count"]) == ("unjudged", 1), peer
        assert f"1 peers, as {peer}, that got none of the" in found["notes"]
        assert found["pending_at_end_count"] > 50


def test_peer_that_left_without_any_delivery_is_unjudged() -> None:
    tape = TapeBuilder(A, B, C).sent(A, 1, 10.0).delivered(B, A, 1, 10.1).add("leaving", C, 30.0).add("left", C, 30.1)
    found = summary(tape.alive(A, B).table())
    assert (found["verdict"], found["pending_at_end_count"]) == ("unjudged", 1)


def test_member_for_a_moment_does_not_change_the_verdict() -> None:
    tape = TapeBuilder(A, B).sent(A, 1, 10.0).delivered(B, A, 1, 10.1).alive(A, B).joined(C, 100.0)
    tape.add("link_up", C, 100.0, neighbor=A).add("link_up", A, 100.0, neighbor=C).sent(A, 2, 100.1)
    found = summary(tape.delivered(B, A, 2, 100.2).alive(A, B, C, second=101.0).table())
    assert (found["verdict"], found["unjudged_peer_count"]) == ("held", 0)


@pytest.mark.parametrize("reason", [QuarantineReason.UNREADABLE, QuarantineReason.DUPLICATE])
def test_file_that_cannot_be_read_leaves_the_verdict_open(reason: QuarantineReason) -> None:
    tape = TapeBuilder(A, B).sent(A, 1, 10.0).delivered(B, A, 1, 10.1)
    is_unread = reason is QuarantineReason.UNREADABLE
    excluded = quarantine([FileReport("x", 1, channel="c" * 16, run_id="another", reason=reason)])
    found = summary(tape.alive(A, B).table(), excluded)
    assert (found["verdict"], found["unread_file_count"]) == (("unjudged", 1) if is_unread else ("held", 0))
    assert ("everything on 1 files that cannot be used" in (found["notes"] or "")) == is_unread
    broken = summary(tape.sent(A, 2, 20.0).table(), excluded)
    assert (broken["verdict"], broken["missing_count"]) == ("broken", 1)


def test_verdict_over_channels_ignores_idle_ones_but_not_unread_files() -> None:
    columns = {"due_count": 1, "unread_file_count": 0, "unjudged_peer_count": 0}
    held = {"verdict": "held", **columns}
    idle = {"verdict": "unjudged", **columns, "due_count": 0}
    unjudged = {"verdict": "unjudged", **columns, "unjudged_peer_count": 1}
    unsettled, broken = {"verdict": "unsettled", **columns}, {"verdict": "broken", **columns}
    nothing = quarantine([])
    lost = quarantine([FileReport("x", 1, reason=QuarantineReason.UNREADABLE)])
    assert audit_verdict(pl.DataFrame([held, idle]), nothing) is Verdict.HELD
    assert audit_verdict(pl.DataFrame([held, unjudged]), nothing) is Verdict.UNJUDGED
    assert audit_verdict(pl.DataFrame([held]), lost) is Verdict.UNJUDGED
    assert audit_verdict(pl.DataFrame([held, unjudged, unsettled]), lost) is Verdict.UNSETTLED
    assert audit_verdict(pl.DataFrame([held, unjudged, unsettled, broken]), lost) is Verdict.BROKEN
    assert audit_verdict(pl.DataFrame([idle]), nothing) is Verdict.UNJUDGED


def test_audit_of_a_torn_file_exits_with_3(tmp_path: Path, spark) -> None:
    (path,) = write_simulation(tmp_path, "kill", 9).rglob("*.parquet")
    torn = path.with_name("20260101T000000-abc-000002.parquet")
    torn.write_bytes(path.read_bytes())
    assert CliRunner().invoke(app, ["pipeline", "audit", "--tapes", str(tmp_path)]).exit_code == 0
    os.truncate(torn, torn.stat().st_size // 2)
    done = CliRunner().invoke(app, ["pipeline", "audit", "--tapes", str(tmp_path)])
    assert done.exit_code == 3
    assert "everything on 1 files that cannot be used" in done.stdout
    assert "verdict: unjudged" in done.stdout
