"""The recorder: the events of peers as Parquet files, for Spark, pandas and pyarrow. See docs/tape.md.

Needs the extra `record`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broadloom.record.reader import ChannelSummary, TapeReadError, read, summarize
    from broadloom.record.recorder import PayloadMetadata, Recorder
    from broadloom.record.schema import COLUMNS, EVENT_KINDS, SCHEMA, SCHEMA_VERSION, EventKind, spark_ddl
    from broadloom.record.settings import TapeSettings
    from broadloom.record.tape import Tape, TapeWriteError
    from broadloom.record.tape_writer import TapeCounters
    from broadloom.record.unfinished_file import StaleFile

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

_MODULES = {
    "COLUMNS": "schema",
    "ChannelSummary": "reader",
    "EVENT_KINDS": "schema",
    "EventKind": "schema",
    "PayloadMetadata": "recorder",
    "Recorder": "recorder",
    "SCHEMA": "schema",
    "SCHEMA_VERSION": "schema",
    "StaleFile": "unfinished_file",
    "Tape": "tape",
    "TapeCounters": "tape_writer",
    "TapeReadError": "reader",
    "TapeSettings": "settings",
    "TapeWriteError": "tape",
    "read": "reader",
    "spark_ddl": "schema",
    "summarize": "reader",
}


def __getattr__(name: str) -> Any:
    """Import on first use: a Spark worker that reads the schema does not need the recorder."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
