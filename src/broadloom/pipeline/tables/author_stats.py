"""One row an author of a channel: how much it said, the busiest first."""

from typing import TYPE_CHECKING

from broadloom.pipeline.table import COUNT, ID, TEXT, TIME, Table, TableColumn, TableInputs
from broadloom.pipeline.tables.rosters import names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
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
    return TABLE.conform(ranked.na.fill(0, ["bytes"])).orderBy("channel", "rank")


TABLE = Table(
    "authors",
    "Who said how much?",
    (
        TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
        TableColumn("rank", COUNT, "1 for who said most in the channel; of equals, who said more bytes."),
        TableColumn("author", ID, "Id of the peer that spoke."),
        TableColumn("name", TEXT, "Who it is to people, if it said so."),
        TableColumn("messages", COUNT, "Messages that it broadcast."),
        TableColumn("bytes", COUNT, "Their payloads together."),
        TableColumn("responses", COUNT, "How many of them respond to another message."),
        TableColumn("groups", COUNT, "Groups that it spoke in."),
        TableColumn("topics", COUNT, "Topics that it spoke of."),
        TableColumn("first", TIME, "Its first message."),
        TableColumn("last", TIME, "Its last message."),
    ),
    build,
    depends_on=("messages",),
)
