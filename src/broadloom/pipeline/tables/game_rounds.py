"""Games, one row for each round of a game."""

import polars as pl

from broadloom.pipeline.analysis.app_entries import count_entries, entries_of, figure
from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column

COLUMNS = (
    CHANNEL,
    column("game_name", "The game, as in `chain` or `gems`."),
    column("round_number", "1 for the first game on the channel, then rematches."),
    column("status", "running or over."),
    column("players", "Roles and the names of their players when it was over, else when it started, as JSON."),
    column("action_count", "Actions that had an effect, by players and stand-ins."),
    column("refused_count", "Actions that the rules did not allow."),
    column("stand_in_count", "How often a stand-in took over a role."),
    column("winner", "The role that has won; null for a draw."),
    column("state_hash", "Hash of the final state that most peers recorded."),
    column("hash_count", "Different hashes that peers recorded: 1 if all had the same final state."),
    column("peer_count", "Peers that recorded the round."),
    column("start_time", "First record of its start."),
    column("end_time", "First record of its end."),
)

_KEYS = ["channel", "game_name", "round_number"]


def game_rounds(entries: pl.DataFrame) -> pl.DataFrame:
    rows = entries_of(entries, "game").with_columns(
        game_name=figure("game"),
        round_number=figure("round").cast(pl.Int64, strict=False),
        players=figure("players"),
        winner=figure("winner"),
        state_hash=figure("hash"),
    )
    status, is_effective = pl.col("status"), pl.col("reason").is_null()
    is_start, is_end, is_action = status == "started", status == "over", status == "act"
    hashes = pl.col("state_hash").filter(is_end)
    found = (
        rows.filter(pl.col("round_number") > 0)
        .group_by(_KEYS)
        .agg(
            status=pl.when(is_end.any()).then(pl.lit("over")).otherwise(pl.lit("running")),
            players=pl.coalesce(pl.col("players").filter(is_end).first(), pl.col("players").filter(is_start).first()),
            action_count=count_entries(is_action & is_effective),
            refused_count=count_entries(is_action & ~is_effective),
            stand_in_count=count_entries((status == "stand_in") & is_effective),
            winner=pl.col("winner").filter(is_end).first(),
            state_hash=hashes.mode().sort().first(),
            hash_count=hashes.n_unique().cast(pl.Int64),
            peer_count=pl.col("peer").n_unique().cast(pl.Int64),
            start_time=pl.col("event_time").filter(is_start).min(),
            end_time=pl.col("event_time").filter(is_end).min(),
        )
    )
    return conform(found.sort(_KEYS), COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    return game_rounds(inputs.scan("app_entries"))


TABLE = Table(
    "game_rounds",
    "Which games were played, who won, and did all players see the same end?",
    COLUMNS,
    Stage.CHANNEL,
    build,
)
