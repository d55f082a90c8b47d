"""Reads a folder of tapes as a batch, or as a stream of added files. `read_plan` says which rows, and in what order."""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broadloom.pipeline.spark_source import pushdown as pushed
from broadloom.pipeline.spark_source.offsets import TapeOffset
from broadloom.pipeline.spark_source.options import SourceOptions
from broadloom.pipeline.spark_source.parquet_files import channel_and_day, list_files
from broadloom.pipeline.spark_source.read_plan import ReadPlanner, plan_tasks
from broadloom.pipeline.spark_source.row_groups import RowGroupPartition, RowGroupRange, arrow_schema, read
from broadloom.record.arrow_import import pa


class TapeReader(DataSourceReader):
    """Reads everything available now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._folder = options.text("path")
        self._quarantine = options.get("quarantine")
        self._schema = arrow_schema(schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._filters = [each for each in filters if pushed.expression(each) is not None]
        return [each for each in filters if each not in self._filters]

    def partitions(self) -> list[InputPartition]:
        footers = ReadPlanner(self._folder, self._quarantine).footers()
        chosen = {
            path: each for path, each in footers.items() if pushed.may_match(self._filters, *channel_and_day(path))
        }
        return [
            *plan_tasks((RowGroupRange(path, 0, len(footer.row_groups)), footer) for path, footer in chosen.items())
        ] or [RowGroupPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowGroupPartition)
        passing = pushed.all_of(self._filters)
        return read(self._folder, partition.ranges, self._schema, passing, self._quarantine)


class TapeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is added. Runs in one driver process during the query; only `read` runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, folder: str | None = None) -> None:
        self._folder = folder or options.text("path")
        self._quarantine = options.get("quarantine")
        self._rows_max = options.rows_max
        self._schema = arrow_schema(schema)
        self._planner = ReadPlanner(self._folder, self._quarantine)
        self._horizon: set[str] | None = None
        """With available-now: the files present at the start."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return TapeOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._horizon = set(list_files(self._folder))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        rows_max = None if isinstance(limit, ReadAllAvailable) else self._rows_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        return self._planner.next_offset(TapeOffset.from_json(start), rows_max, self._horizon).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [*self._planner.tasks(TapeOffset.from_json(start), TapeOffset.from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowGroupPartition)
        return read(self._folder, partition.ranges, self._schema, None, self._quarantine)
