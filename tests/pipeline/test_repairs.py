"""A repair takes from the loss to the first moment at which the fabric is regular and whole again."""

import polars as pl
import pytest

from broadloom.pipeline.arrow.fabric_timeline import FabricTimeline
from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.repairs import repairs
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_links import intervals_and_links, rows_from_script, seconds_of


def ring(peers: str, at: float) -> list[str]:
    pairs = list(zip(peers, peers[1:] + peers[0], strict=True))
    return [f"{at} {x} up {y}" for pair in pairs for x, y in (pair, pair[::-1])]


def test_a_ring_that_closes_again():
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
    living, found = intervals_and_links(rows)
    done = repairs(found, living)
    columns = "how", "lost_at", "links", "peers_after", "components_after", "lost_meanwhile", "repaired_at", "repair_s"
    assert seconds_of(done, *columns) == [("died", 5.0, 2, 4, 1, 0, 8.25, 3.25)]


def test_regular_but_torn_is_not_repaired():
    """A ring of six falls into two triangles: everyone has two links, and it is no fabric."""
    cut = ["6 c down d rewired", "6 d down c rewired", "6 f down a rewired", "6 a down f rewired"]
    triangles = ["6 a up c", "6 c up a", "6 d up f", "6 f up d"]
    living, found = intervals_and_links(
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
    (only,) = to_polars(repairs(found, living, degree=2)).rows(named=True)
    # At the moment of leaving the ring itself is regular and whole.
    assert only["repair_s"] == 0.0
    line = FabricTimeline(found, living, 2)
    assert line.is_regular[-1]
    assert line.component_count(int(line.times[-1])) == 2


def test_what_is_never_repaired_says_so():
    rows = rows_from_script(
        *(f"0 {peer} joined" for peer in "abcde"), *ring("abcde", 1), "5 c leaving", "6 b down c peer_left", "9 a says"
    )
    living, found = intervals_and_links(rows)
    assert seconds_of(repairs(found, living), "how", "repaired_at", "repair_s") == [("left", None, None)]


@pytest.mark.parametrize("scenario", ["kill", "churn"])
def test_every_loss_of_a_simulation_is_repaired(scenario):
    history = simulated_history(scenario, 30)
    living, found = intervals_and_links(history.rows)
    done = to_polars(repairs(found, living))
    gone = to_polars(living).filter(pl.col("how") != "there")
    assert sorted(done["peer"]) == sorted(gone["peer"])
    assert done["repair_s"].null_count() == 0
    assert 0 <= done["repair_s"].min() <= done["repair_s"].max() < 60  # type: ignore[operator]
    if scenario == "kill":
        assert done.height == 6
        assert done["how"].unique().to_list() == ["died"]


def test_the_moment_of_repair_by_brute_force():
    living, found = intervals_and_links(simulated_history("churn", 30).rows)
    line = FabricTimeline(found, living)
    for row in to_polars(repairs(found, living)).head(25).iter_rows(named=True):
        later = [int(time) for time in line.times if time >= row["lost_at"]]
        good = (time for time in later if _is_whole_and_regular(line, time))
        assert next(good, None) == row["repaired_at"]


def _is_whole_and_regular(line: FabricTimeline, time: int) -> bool:
    shape = line.topology(time)
    wanted = min(line.degree, shape.peers - 1)
    return shape.degrees == {wanted: shape.peers} and shape.components == 1


def test_spark_gives_the_same(spark):
    living, found = intervals_and_links(simulated_history("kill", 30).rows)
    here = pl.DataFrame(pl.from_arrow(repairs(found, living))).sort("lost_at", "peer")
    assert rows_of_kill(build_all(spark)["repairs"], "lost_at", "peer") == here.rows()
