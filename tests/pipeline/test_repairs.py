"""A repair lasts from the loss until the fabric is regular and connected again."""

import polars as pl
import pytest

from broadloom.pipeline.analysis.fabric_timeline import FabricTimeline
from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.tables.fabric_snapshots import fabric_snapshots
from broadloom.pipeline.tables.repairs import repairs
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_links import intervals_and_links, rows_from_script, seconds_of


def ring(peers: str, at: float) -> list[str]:
    pairs = list(zip(peers, peers[1:] + peers[0], strict=True))
    return [f"{at} {x} up {y}" for pair in pairs for x, y in (pair, pair[::-1])]


def test_repair_ends_when_ring_closes():
    rows = rows_from_script(
        *(f"0 {peer} joined" for peer in "abcde"),
        *ring("abcde", 1),
        "5 c says",
        "6 b down c connection_lost",
        "6.5 d down c connection_lost",
        "8 b up d",
        "8.25 d up b",
        "20 a says",
    )
    intervals, found = intervals_and_links(rows)
    done = repairs(found, intervals)
    columns = (
        "reason",
        "start_time",
        "link_count",
        "remaining_peer_count",
        "component_count",
        "concurrent_loss_count",
        "end_time",
        "duration_ms",
    )
    assert seconds_of(done, *columns) == [("crashed", 5.0, 2, 4, 1, 0, 8.25, 3250.0)]


def test_regular_but_disconnected_fabric_is_not_repaired():
    """A ring of six becomes two triangles: all peers have two links, but they are not connected."""
    cut = ["6 c down d rewired", "6 d down c rewired", "6 f down a rewired", "6 a down f rewired"]
    triangles = ["6 a up c", "6 c up a", "6 d up f", "6 f up d"]
    intervals, found = intervals_and_links(
        rows_from_script(
            *(f"0 {peer} joined" for peer in "abcdef9"),
            *ring("abcdef", 1),
            "2 9 up a",
            "2 a up 9",
            "5 9 leaving",
            "5 a down 9 peer_left",
            *cut,
            *triangles,
            "30 a says",
        )
    )
    (only,) = in_us(repairs(found, intervals, degree=2)).rows(named=True)
    # When the peer leaves, the ring itself is regular and connected.
    assert only["duration_ms"] == 0.0
    timeline = FabricTimeline(found, intervals, 2)
    assert timeline.is_regular[-1]
    assert timeline.component_count(int(timeline.times[-1])) == 2


def test_unfinished_repair_has_no_end():
    rows = rows_from_script(
        *(f"0 {peer} joined" for peer in "abcde"), *ring("abcde", 1), "5 c leaving", "6 b down c peer_left", "9 a says"
    )
    intervals, found = intervals_and_links(rows)
    assert seconds_of(repairs(found, intervals), "reason", "end_time", "duration_ms") == [("left", None, None)]


@pytest.mark.parametrize("scenario", ["kill", "churn"])
def test_every_loss_of_a_simulation_is_repaired(scenario):
    history = simulated_history(scenario, 30)
    intervals, found = intervals_and_links(history.rows)
    done = in_us(repairs(found, intervals))
    gone = in_us(intervals).filter(pl.col("end_status") != "present")
    assert sorted(done["peer"]) == sorted(gone["peer"])
    assert done["duration_ms"].null_count() == 0
    assert 0 <= done["duration_ms"].min() <= done["duration_ms"].max() < 60_000  # type: ignore[operator]
    if scenario == "kill":
        assert done.height == 6
        assert done["reason"].unique().to_list() == ["crashed"]


@pytest.mark.parametrize("scenario", ["kill", "churn"])
def test_killed_peers_without_tape_do_not_change_the_degree(scenario):
    """A killed process may leave no file. What its neighbors recorded about its links overlaps by moments."""
    rows = pl.DataFrame(pl.from_arrow(simulated_history(scenario, 30).rows))
    whole, _ = intervals_and_links(rows.to_arrow())
    killed = in_us(whole).filter(pl.col("end_status") == "crashed")["peer"].to_list()
    intervals, found = intervals_and_links(rows.filter(~pl.col("peer").is_in(killed)).to_arrow())
    assert FabricTimeline(found, intervals).degree == 4
    done = in_us(repairs(found, intervals))
    assert set(killed) <= set(done["peer"])
    assert done["duration_ms"].null_count() == 0
    snapshots = in_us(fabric_snapshots(found, intervals))
    assert snapshots["is_regular"][-1] is True


def test_repair_time_matches_brute_force():
    intervals, found = intervals_and_links(simulated_history("churn", 30).rows)
    timeline = FabricTimeline(found, intervals)
    for row in in_us(repairs(found, intervals)).head(25).iter_rows(named=True):
        later = [int(time) for time in timeline.times if time >= row["start_time"]]
        good = (time for time in later if _is_whole_and_regular(timeline, time))
        assert next(good, None) == row["end_time"]


def _is_whole_and_regular(timeline: FabricTimeline, time: int) -> bool:
    shape = timeline.topology(time)
    wanted = min(timeline.degree, shape.peers - 1)
    return shape.degrees == {wanted: shape.peers} and shape.components == 1


def test_engine_matches_pure_functions():
    intervals, found = intervals_and_links(simulated_history("kill", 30).rows)
    here = repairs(found, intervals).sort("start_time", "peer")
    assert rows_of_kill(build_all()["repairs"], "start_time", "peer") == here.rows()
