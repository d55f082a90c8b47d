"""Summarizes the figures of many jobs into rows, with pure functions."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean, median
from typing import Any, TypeVar, cast

from broadloom.pipeline.overlay_study.jobs import FailureJob, Figures, SpreadJob
from broadloom.pipeline.overlay_study.parameters import strategy_name
from broadloom.pipeline.overlay_study.theory import PAPER_OBSERVED, expected_distances, surviving_stats
from broadloom.topology import diameter_bounds

Row = dict[str, Any]
Job = TypeVar("Job")


def _by(
    key: Callable[[Job], Hashable], jobs: Sequence[Job], figures: Sequence[Figures]
) -> list[tuple[Job, list[tuple[Job, Figures]]]]:
    """Groups in order of appearance, each with its first job."""
    groups: dict[Hashable, list[tuple[Job, Figures]]] = defaultdict(list)
    for job, each in zip(jobs, figures, strict=True):
        groups[key(job)].append((job, each))
    return [(members[0][0], members) for members in groups.values()]


def _values(members: Iterable[tuple[Any, Figures]], name: str) -> list[float]:
    return [cast("float", each[name]) for _, each in members if each[name] is not None]


def merge_jobs(jobs: Sequence[SpreadJob], figures: Sequence[Figures]) -> tuple[list[SpreadJob], list[Figures]]:
    """Merge the jobs that searched parts of one fabric."""
    whole: list[tuple[SpreadJob, Figures]] = []
    for job, parts in _by(lambda job: (job.peers, job.degree, job.seed, job.strategy, job.choices), jobs, figures):
        merged = dict(parts[0][1])
        for name in ("diameter", "memory_mb"):
            merged[name] = max(_values(parts, name))
        for name in ("distance_sum", "pairs", "unreached", "search_s"):
            merged[name] = sum(_values(parts, name))
        merged["sources"] = sum(part.last - part.first for part, _ in parts)
        whole.append((job, merged))
    return [job for job, _ in whole], [each for _, each in whole]


def diameters(jobs: Sequence[SpreadJob], figures: Sequence[Figures]) -> list[Row]:
    """One row per size, with the bounds of the paper."""
    rows = []
    for job, members in _by(lambda job: job.peers, *merge_jobs(jobs, figures)):
        found = sorted(int(each) for each in _values(members, "diameter"))
        low, high = diameter_bounds(job.peers, job.degree)
        expected_diameter, expected_mean = expected_distances(job.peers, job.degree)
        pairs = sum(_values(members, "pairs"))
        rows.append(
            {
                "peers": job.peers,
                "fabrics": len(members),
                "bound_low": low,
                "bound_high": high,
                "paper_observed": PAPER_OBSERVED.get(job.peers) if job.degree == 4 else None,
                "expected": expected_diameter,
                "diameter_min": found[0],
                "diameter_median": median(found),
                "diameter_max": found[-1],
                "is_exact": all(each["sources"] == job.peers for _, each in members),
                "is_within_bounds": low <= found[0] and found[-1] <= high,
                "distance_mean": sum(_values(members, "distance_sum")) / pairs if pairs else 0.0,
                "expected_distance_mean": expected_mean,
                "is_connected": not any(_values(members, "unreached")),
                "is_regular": _regular(job, members),
                "grow_s": fmean(_values(members, "grow_s")),
                "search_s": fmean(_values(members, "search_s")),
                "memory_mb": max(_values(members, "memory_mb")),
            }
        )
    return rows


def _regular(job: SpreadJob, members: Sequence[tuple[SpreadJob, Figures]]) -> bool | None:
    """Whether there are no avoidable free slots; None if not measured."""
    free_slots = _values(members, "free_slots")
    wanted = min(job.degree, job.peers - 1)
    unavoidable = job.peers * (job.degree - wanted) + (wanted * job.peers) % 2
    return all(each == unavoidable for each in free_slots) if free_slots else None


def failures(jobs: Sequence[FailureJob], figures: Sequence[Figures]) -> list[Row]:
    """One row per size and fraction, with the theory for an infinite fabric."""
    rows = []
    for job, members in _by(lambda job: (job.peers, job.fraction_index), jobs, figures):
        fraction = job.fractions[job.fraction_index]
        theory = surviving_stats(fraction, job.degree)
        survivors = _values(members, "survivors")
        largest = [part / max(all_, 1) for part, all_ in zip(_values(members, "largest"), survivors, strict=True)]
        rows.append(
            {
                "peers": job.peers,
                "fraction": fraction,
                "fabrics": len(members),
                "survivors": survivors[0],
                "connected_ratio": fmean(each == 1 for each in _values(members, "components")),
                "components": fmean(_values(members, "components")),
                "components_theory": theory.components * survivors[0] + (theory.largest > 1e-6),
                "largest": fmean(largest),
                "largest_min": min(largest),
                "largest_theory": theory.largest if theory.largest > 1e-6 else 0.0,
                "isolated": fmean(_values(members, "isolated")),
                "isolated_theory": theory.isolated * survivors[0],
                "memory_mb": max(_values(members, "memory_mb")),
            }
        )
    return rows


def join_strategies(jobs: Sequence[SpreadJob], figures: Sequence[Figures]) -> list[Row]:
    """One row per size and strategy."""
    rows = []
    for job, members in _by(lambda job: (job.peers, job.strategy, job.choices), jobs, figures):
        connectivity = [int(each) for each in _values(members, "connectivity")]
        pairs = sum(_values(members, "pairs"))
        rows.append(
            {
                "peers": job.peers,
                "strategy": strategy_name(job.strategy, job.choices),
                "fabrics": len(members),
                "diameter": fmean(_values(members, "diameter")),
                "diameter_max": int(max(_values(members, "diameter"))),
                "distance_mean": sum(_values(members, "distance_sum")) / pairs if pairs else 0.0,
                "clustered_links": fmean(_values(members, "clustered_links")),
                "connected_ratio": fmean(each == 0 for each in _values(members, "unreached")),
                "connectivity_min": min(connectivity) if connectivity else None,
                "fully_connected": fmean(each >= job.degree for each in connectivity) if connectivity else None,
                "grow_s": fmean(_values(members, "grow_s")),
            }
        )
    return rows
