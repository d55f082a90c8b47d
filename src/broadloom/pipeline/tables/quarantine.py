"""Files and rows that were excluded. The build fills the table when it examines the tapes."""

from typing import TYPE_CHECKING

from broadloom.pipeline.quarantine import QUARANTINE_COLUMNS
from broadloom.pipeline.table import Table, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    if "quarantine" not in inputs:
        return inputs.spark.createDataFrame([], TABLE.ddl)
    return TABLE.conform(inputs["quarantine"])


TABLE = Table("quarantine", "Which files and rows were excluded, and why?", QUARANTINE_COLUMNS, build)
