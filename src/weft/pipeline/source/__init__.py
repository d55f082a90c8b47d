"""A Spark data source, `format("weft")`: tapes as batches and streams, a live channel as a stream, a channel as a sink.

    from weft.pipeline.source import register

    register(spark)
    spark.read.format("weft").load("tapes").where("kind = 'delivered'")
    spark.readStream.format("weft").load("tapes")
    spark.readStream.format("weft").option("channel", "chess/club-42").option("tape", "own-tape").load()
    frame.write.format("weft").mode("append").option("channel", "chess/club-42").save()

Everything moves as Arrow batches. What each option means is told in `options.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """From now on this session knows `format("weft")`."""
    from weft.pipeline.source.format import Weft

    spark.dataSource.register(Weft)
