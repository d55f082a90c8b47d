"""From the figures of many jobs to one row for each question: pure functions, whichever way the jobs ran."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean, median
from typing import Any, TypeVar, cast

from broadloom.pipeline.overlay_study.bounds import PAPER_OBSERVED, expected_distances
from broadloom.pipeline.overlay_study.jobs import FailureJob, Figures, SpreadJob
from broadloom.pipeline.overlay_study.parameters import strategy_name
from broadloom.pipeline.overlay_study.theory import surviving_stats
from broadloom.topology import diameter_bounds

Row = dict[str, Any]
Job = TypeVar("Job")


def _by(
    key: Callable[[Job], Hashable], jobs: Sequence[Job], figures: Sequence[Figures]
) -> list[tuple[Job, list[tuple[Job, Figures]]]]:
    """Groups in the order in which they first come, each with its first job."""
    groups: dict[Hashable, list[tuple[Job, Figures]]] = defaultdict(list)
    for job, each in zip(jobs, figures, strict=True):
        groups[key(job)].append((job, each))
    return [(members[0][0], members) for members in groups.values()]


def _values(members: Iterable[tuple[Any, Figures]], name: str) -> list[float]:
    return [cast("float", each[name]) for _, each in members if each[name] is not None]


def merge_jobs(jobs: Sequence[SpreadJob], figures: Sequence[Figures]) -> tuple[list[SpreadJob], list[Figures]]:
    """Jobs that did parts of one fabric, put together."""
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
    """One row a size, beside the paper's bounds."""
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
                "paper_saw": PAPER_OBSERVED.get(job.peers) if job.degree == 4 else None,
                "expected": expected_diameter,
                "diameter_min": found[0],
                "diameter_median": median(found),
                "diameter_max": found[-1],
                "exact": all(each["sources"] == job.peers for _, each in members),
                "within_bounds": low <= found[0] and found[-1] <= high,
                "mean_distance": sum(_values(members, "distance_sum")) / pairs if pairs else 0.0,
                "expected_mean_distance": expected_mean,
                "whole": not any(_values(members, "unreached")),
                "regular": _regular(job, members),
                "grow_s": fmean(_values(members, "grow_s")),
                "search_s": fmean(_values(members, "search_s")),
                "memory_mb": max(_values(members, "memory_mb")),
            }
        )
    return rows


def _regular(job: SpreadJob, members: Sequence[tuple[SpreadJob, Figures]]) -> bool | None:
    """Whether nobody lacks a link that it could have; None if nobody looked."""
    holes = _values(members, "holes")
    wanted = min(job.degree, job.peers - 1)
    must_lack = job.peers * (job.degree - wanted) + (wanted * job.peers) % 2
    return all(each == must_lack for each in holes) if holes else None


def failures(jobs: Sequence[FailureJob], figures: Sequence[Figures]) -> list[Row]:
    """One row a size and share, beside what theory says of an endless fabric."""
    rows = []
    for job, members in _by(lambda job: (job.peers, job.fraction_index), jobs, figures):
        share = job.fractions[job.fraction_index]
        theory = surviving_stats(share, job.degree)
        survivors = _values(members, "survivors")
        largest = [part / max(all_, 1) for part, all_ in zip(_values(members, "largest"), survivors, strict=True)]
        rows.append(
            {
                "peers": job.peers,
                "share": share,
                "fabrics": len(members),
                "survivors": survivors[0],
                "whole": fmean(each == 1 for each in _values(members, "components")),
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
    """One row a size and way."""
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
                "mean_distance": sum(_values(members, "distance_sum")) / pairs if pairs else 0.0,
                "dense_links": fmean(_values(members, "dense_links")),
                "whole": fmean(each == 0 for each in _values(members, "unreached")),
                "connectivity_min": min(connectivity) if connectivity else None,
                "fully_connected": fmean(each >= job.degree for each in connectivity) if connectivity else None,
                "grow_s": fmean(_values(members, "grow_s")),
            }
        )
    return rows
