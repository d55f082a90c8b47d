"""The recorder: the events of peers as Parquet files, for Spark, pandas and pyarrow. See docs/tape.md.

Needs the extra `record`.
"""

from broadloom.record.file_locks import StaleFile
from broadloom.record.reader import ChannelSummary, TapeReadError, read, summarize
from broadloom.record.recorder import PayloadMetadata, Recorder
from broadloom.record.schema import COLUMNS, EVENT_KINDS, SCHEMA, SCHEMA_VERSION, EventKind, spark_ddl
from broadloom.record.settings import TapeSettings
from broadloom.record.tape import Tape, TapeWriteError
from broadloom.record.tape_writer import TapeCounters

__all__ = [
    "COLUMNS",
    "EVENT_KINDS",
    "SCHEMA",
    "SCHEMA_VERSION",
    "ChannelSummary",
    "EventKind",
    "PayloadMetadata",
    "Recorder",
    "StaleFile",
    "Tape",
    "TapeCounters",
    "TapeReadError",
    "TapeSettings",
    "TapeWriteError",
    "read",
    "spark_ddl",
    "summarize",
]
