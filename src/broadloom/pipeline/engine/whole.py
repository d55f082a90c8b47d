"""All stages in memory, for tapes that fit a task."""

from collections.abc import Mapping

import polars as pl

from broadloom.pipeline.analysis.link_crossings import crossings, fastest, sampled
from broadloom.pipeline.engine.events import load
from broadloom.pipeline.engine.scans import crossing_rows
from broadloom.pipeline.engine.stages import (
    INVOICED,
    RUN_SPANS,
    Frames,
    Job,
    TableWriter,
    WrittenFile,
    audit_inputs,
    build_all_channels,
    build_stage,
    clock_offsets,
    pair,
    scan,
)
from broadloom.pipeline.table import ChannelInputs, Stage
from broadloom.pipeline.tables.link_latency import latency_histogram

WHOLE_ROWS = 2_000_000
"""Events of all channels together that one task takes."""


def columns(job: Job) -> list[str]:
    paired = job.pair_columns() if job.has_pairs else []
    return list(dict.fromkeys([*job.scan_columns(), *paired]))


def run_whole(job: Job, files: Mapping[str, tuple[str, ...]], attempt: int = 0) -> list[WrittenFile]:
    """Build all wanted tables of some channels from their files."""
    events = {channel: load(paths, columns(job), job.flawed) for channel, paths in files.items()}
    return [file for writer in build_channels(job, events, attempt) for file in writer.files]


def build_channels(job: Job, events: Mapping[str, pl.DataFrame], attempt: int = 0) -> list[TableWriter]:
    """Build all wanted tables; returns the writers of their files."""
    inputs: dict[str, ChannelInputs] = {}
    writers = {channel: TableWriter(job, f"{index:05}", attempt) for index, channel in enumerate(events)}
    crossed: Frames = {}
    fast = []
    spans = []
    for channel, rows in events.items():
        inputs[channel] = job.inputs(channel, scan(job, rows))
        build_stage(job, Stage.MERGE, inputs[channel], writers[channel])
        if job.has_crossings:
            crossed[channel] = crossings(crossing_rows(rows))
        if job.has_clocks:
            spans.append(inputs[channel].scans["peer_spans"].select(RUN_SPANS))
            if rows["run_id"].n_unique() > 1:
                fast.append(fastest(crossings(sampled(rows, rows.height))))
    clocks = clock_offsets(fast, pl.concat(spans)) if spans else None
    for channel, each in inputs.items():
        each.clocks = job.inputs(channel, {}, clocks).clocks
        build_stage(job, Stage.CHANNEL, each, writers[channel])
        if job.has_crossings:
            links_up = each.scan("membership").filter(pl.col("kind") == "link_up")
            each.scans["link_histogram"] = latency_histogram(crossed.pop(channel), each.clocks, links_up)
        if job.has_pairs:
            audit = audit_inputs(job, each) if "delivery_balances" in job.wanted else None
            each.scans |= pair(job, channel, events[channel], each["messages"], audit, clocks, writers[channel])
        build_stage(job, Stage.FINISH, each, writers[channel])
    last = TableWriter(job, "all", attempt)
    shared = {name: _together(inputs, name) for name in INVOICED if "invoices" in job.wanted}
    build_all_channels(job, clocks, shared, last)
    return [*writers.values(), last]


def _together(inputs: Mapping[str, ChannelInputs], name: str) -> pl.DataFrame:
    return pl.concat([each[name] for each in inputs.values()])
