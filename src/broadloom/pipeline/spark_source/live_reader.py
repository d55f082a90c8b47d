"""A live channel as a stream: a peer joins and records, and the stream reads the recording.

Everything Spark gets is first in a finished file of the peer's own tape, and offsets refer to that tape alone. So a
batch that is repeated after a restart is the same batch, which a network cannot guarantee. Messages sent while no query
runs are not on the tape: the peer is not a member then, as its `left` and `joined` events show.
"""

from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from broadloom.errors import NotConnectedError
from broadloom.pipeline.spark_source.options import SourceOptions
from broadloom.pipeline.spark_source.recording_process import RecordingProcess
from broadloom.pipeline.spark_source.tape_reader import TapeStreamReader


class LiveStreamReader(TapeStreamReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema, folder=options.text("tape"))
        options.text("channel")
        self._options = options
        # Not started here: Spark creates this object in several processes and asks only one of them for offsets.
        self._recording: RecordingProcess | None = None

    def _ensure_recording(self) -> RecordingProcess:
        if self._recording is None:
            self._recording = RecordingProcess(self._options)
        return self._recording

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._ensure_recording()
        return super().initialOffset()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ensure_recording()
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        is_over = self._ensure_recording().has_ended
        offset = super().latestOffset(start, limit)
        if is_over and offset == start:
            raise NotConnectedError(
                f"{self._options.text('channel')}: the channel was closed, or its recording process has crashed. "
                "Everything recorded has been read"
            )
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._ensure_recording()  # after a restart this is the first call
        return super().partitions(start, end)

    def stop(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None
