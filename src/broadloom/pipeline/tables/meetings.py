"""Meetings, one row per channel."""

import polars as pl

from broadloom.pipeline.analysis.app_entries import count_entries, entries_of, figure
from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

COLUMNS = (
    CHANNEL,
    column("participant_count", "Participants that arrived. One that connects again counts again."),
    column("participants", "Their names, sorted."),
    column("action_count", "Actions of participants that were permitted."),
    column("refused_count", "Actions that were not permitted, such as those of a leader that had lost the floor."),
    column("floor_change_count", "How often the floor was given to a participant."),
    column("gone_leader_count", "Leaders that were reported gone."),
    column("part_count", "Parts that were loaded."),
    column("measurement_count", "Measurements."),
    column("note_count", "Annotations and replies."),
    column("poll_count", "Polls that were opened."),
    column("vote_count", "Votes, also those that replace an earlier one."),
    column("peer_count", "Peers that recorded the meeting."),
    column("start_time", "First action that a peer recorded."),
    column("end_time", "Last action that a peer recorded."),
)


def meetings(entries: pl.DataFrame) -> pl.DataFrame:
    """After a partition some actions are ordered again; each counts once."""
    rows = entries_of(entries, "meeting").with_columns(term=figure("term").cast(pl.Int64, strict=False))
    is_permitted = pl.col("reason").is_null()

    def count(*actions: str) -> pl.Expr:
        return count_entries(pl.col("status").is_in(actions) & is_permitted)

    found = rows.group_by("channel").agg(
        participant_count=pl.col("author").filter(pl.col("status") == "arrive").n_unique().cast(pl.Int64),
        participants=pl.col("owner").drop_nulls().unique().sort().str.join(", "),
        action_count=count_entries(is_permitted),
        refused_count=count_entries(~is_permitted),
        floor_change_count=pl.col("term").max().fill_null(0),
        gone_leader_count=count("gone"),
        part_count=count("load"),
        measurement_count=count("measure"),
        note_count=count("annotate"),
        poll_count=count("poll"),
        vote_count=count("vote"),
        peer_count=pl.col("peer").n_unique().cast(pl.Int64),
        start_time=pl.col("event_time").min(),
        end_time=pl.col("event_time").max(),
    )
    return conform(found.sort("channel"), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return meetings(inputs.scan("app_entries"))


TABLE = Table("meetings", "Who met, who led, and what did they leave behind?", COLUMNS, Stage.CHANNEL, build)
