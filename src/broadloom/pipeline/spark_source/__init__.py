"""Spark data source `format("broadloom")`: reads tapes as batch or stream, and a live channel as stream or sink.

    from broadloom.pipeline.spark_source import register

    register(spark)
    spark.read.format("broadloom").load("tapes").where("kind = 'delivered'")
    spark.readStream.format("broadloom").load("tapes")
    spark.readStream.format("broadloom").option("channel", "chess/club-42").option("tape", "own-tape").load()
    frame.write.format("broadloom").mode("append").option("channel", "chess/club-42").save()

Data moves as Arrow batches. `options.py` documents the options.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("broadloom")` available in this session."""
    from broadloom.pipeline.spark_source.data_source import BroadloomDataSource

    spark.dataSource.register(BroadloomDataSource)
