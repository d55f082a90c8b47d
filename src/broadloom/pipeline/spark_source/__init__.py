"""A Spark data source, `format("broadloom")`: tapes as batches and streams, a live channel as a stream, and as a sink.

    from broadloom.pipeline.spark_source import register

    register(spark)
    spark.read.format("broadloom").load("tapes").where("kind = 'delivered'")
    spark.readStream.format("broadloom").load("tapes")
    spark.readStream.format("broadloom").option("channel", "chess/club-42").option("tape", "own-tape").load()
    frame.write.format("broadloom").mode("append").option("channel", "chess/club-42").save()

Everything moves as Arrow batches. What each option means is told in `options.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """From now on this session knows `format("broadloom")`."""
    from broadloom.pipeline.spark_source.data_source import BroadloomDataSource

    spark.dataSource.register(BroadloomDataSource)
