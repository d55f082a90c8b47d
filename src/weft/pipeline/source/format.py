"""What Spark knows as `format("weft")`: it looks at the options and hands the work to a reader or writer."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from weft.pipeline.source.options import READS_LIVE, READS_TAPES, WRITES, Options, WrongOption
from weft.record import spark_ddl


class Weft(DataSource):
    """Made by Spark, in several processes, again and again: nothing happens before a reader or writer is at work."""

    @classmethod
    def name(cls) -> str:
        return "weft"

    def schema(self) -> str:
        """The columns of a tape. Whoever gives a schema with fewer gets those, and the others are not read."""
        return spark_ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        from weft.pipeline.source.tapes import TapesReader

        options = Options(self.options)
        if options.is_live:
            raise WrongOption("a live channel has no end: use readStream, or read a tape of it by its path")
        options.check(READS_TAPES, "reading tapes")
        return TapesReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        options = Options(self.options)
        if options.is_live:
            from weft.pipeline.source.live import LiveStream

            options.check(READS_LIVE, "following a live channel")
            return LiveStream(options, schema)
        from weft.pipeline.source.tapes import TapesStream

        options.check(READS_TAPES, "following tapes")
        return TapesStream(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from weft.pipeline.source.sink import Sink

        if overwrite:
            raise WrongOption('what was said on a channel cannot be overwritten: use mode("append")')
        return Sink(self._sink_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from weft.pipeline.source.sink import StreamSink

        return StreamSink(self._sink_options(), schema)

    def _sink_options(self) -> Options:
        # Spark adds these to the options of a streaming sink by itself.
        options = Options({name: self.options[name] for name in self.options if name.lower() not in _OF_SPARK})
        options.check(WRITES, "broadcasting")
        return options


_OF_SPARK = ("checkpointlocation", "queryname", "path")
