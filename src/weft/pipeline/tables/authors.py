"""One row an author of a channel: how much it said, the busiest first."""

from typing import TYPE_CHECKING

from weft.pipeline.table import COUNT, ID, TEXT, TIME, Column, Inputs, Table
from weft.pipeline.tables.rosters import names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    said = (
        inputs["messages"]
        .groupBy("channel", "author")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.count(F.coalesce("parent_author", "parent_member")).alias("responses"),
            F.countDistinct("group").alias("groups"),
            F.countDistinct("topic").alias("topics"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
        )
    )
    called = names(inputs.events).withColumnRenamed("peer", "author")
    order = Window.partitionBy("channel").orderBy(F.desc("messages"), F.desc("bytes"), "author")
    ranked = said.join(called, ["channel", "author"], "left").withColumn("rank", F.row_number().over(order))
    return TABLE.shaped(ranked.na.fill(0, ["bytes"])).orderBy("channel", "rank")


TABLE = Table(
    "authors",
    "Who said how much?",
    (
        Column("channel", TEXT, "First 16 digits of the channel's id."),
        Column("rank", COUNT, "1 for who said most in the channel; of equals, who said more bytes."),
        Column("author", ID, "Id of the peer that spoke."),
        Column("name", TEXT, "Who it is to people, if it said so."),
        Column("messages", COUNT, "Messages that it broadcast."),
        Column("bytes", COUNT, "Their payloads together."),
        Column("responses", COUNT, "How many of them respond to another message."),
        Column("groups", COUNT, "Groups that it spoke in."),
        Column("topics", COUNT, "Topics that it spoke of."),
        Column("first", TIME, "Its first message."),
        Column("last", TIME, "Its last message."),
    ),
    build,
    needs=("messages",),
)
