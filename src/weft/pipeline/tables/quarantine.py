"""Which files and rows were set aside, and why? Written by the job itself, before anything is built."""

from typing import TYPE_CHECKING

from weft.pipeline.quarantine import QUARANTINE_COLUMNS
from weft.pipeline.table import Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    if "quarantine" not in inputs:
        return inputs.spark.createDataFrame([], TABLE.ddl)
    return TABLE.shaped(inputs["quarantine"])


TABLE = Table("quarantine", "Which files and rows were set aside, and why?", QUARANTINE_COLUMNS, build)
