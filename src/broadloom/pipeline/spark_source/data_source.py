"""The entry point of `format("broadloom")`: checks the options and creates a reader or writer."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from broadloom.pipeline.spark_source.options import (
    LIVE_READ_OPTIONS,
    TAPE_READ_OPTIONS,
    WRITE_OPTIONS,
    SourceOptionError,
    SourceOptions,
)
from broadloom.record import spark_ddl


class BroadloomDataSource(DataSource):
    """Spark creates this object several times in several processes, so it must not have side effects."""

    @classmethod
    def name(cls) -> str:
        return "broadloom"

    def schema(self) -> str:
        """The columns of a tape. With a narrower user schema, only those columns are read."""
        return spark_ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        from broadloom.pipeline.spark_source.tape_reader import TapeReader

        options = SourceOptions(self.options)
        if options.is_live:
            raise SourceOptionError("a live channel has no end; use readStream, or read a tape by its path")
        options.check(TAPE_READ_OPTIONS, "reading tapes")
        return TapeReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        options = SourceOptions(self.options)
        if options.is_live:
            from broadloom.pipeline.spark_source.live_reader import LiveStreamReader

            options.check(LIVE_READ_OPTIONS, "following a live channel")
            return LiveStreamReader(options, schema)
        from broadloom.pipeline.spark_source.tape_reader import TapeStreamReader

        options.check(TAPE_READ_OPTIONS, "following tapes")
        return TapeStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from broadloom.pipeline.spark_source.sink import ChannelWriter

        if overwrite:
            raise SourceOptionError('messages on a channel cannot be overwritten; use mode("append")')
        return ChannelWriter(self._writer_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from broadloom.pipeline.spark_source.sink import ChannelStreamWriter

        return ChannelStreamWriter(self._writer_options(), schema)

    def _writer_options(self) -> SourceOptions:
        # Spark adds these to the options of a streaming sink.
        options = SourceOptions(
            {name: self.options[name] for name in self.options if name.lower() not in _SPARK_OPTIONS}
        )
        options.check(WRITE_OPTIONS, "broadcasting")
        return options


_SPARK_OPTIONS = ("checkpointlocation", "queryname", "path")
