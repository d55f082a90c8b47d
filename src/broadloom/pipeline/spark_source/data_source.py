"""What Spark knows as `format("broadloom")`: it looks at the options and hands the work to a reader or writer."""

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
    """Made by Spark, in several processes, again and again: nothing happens before a reader or writer is at work."""

    @classmethod
    def name(cls) -> str:
        return "broadloom"

    def schema(self) -> str:
        """The columns of a tape. Whoever gives a schema with fewer gets those, and the others are not read."""
        return spark_ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        from broadloom.pipeline.spark_source.tape_reader import TapeReader

        options = SourceOptions(self.options)
        if options.is_live:
            raise SourceOptionError("a live channel has no end: use readStream, or read a tape of it by its path")
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
            raise SourceOptionError('what was said on a channel cannot be overwritten: use mode("append")')
        return ChannelWriter(self._writer_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from broadloom.pipeline.spark_source.sink import ChannelStreamWriter

        return ChannelStreamWriter(self._writer_options(), schema)

    def _writer_options(self) -> SourceOptions:
        # Spark adds these to the options of a streaming sink by itself.
        options = SourceOptions(
            {name: self.options[name] for name in self.options if name.lower() not in _SPARK_OPTIONS}
        )
        options.check(WRITE_OPTIONS, "broadcasting")
        return options


_SPARK_OPTIONS = ("checkpointlocation", "queryname", "path")
