"""The recorder: what peers saw, as Parquet files that Spark, pandas and pyarrow read.

Needs the extra `record`. Only this package (and the pipeline) knows pyarrow. `docs/tape.md` describes the tape.
"""

from weft.record.files import Counters
from weft.record.locks import Leftover
from weft.record.read import ChannelSummary, Unreadable, read, summarize
from weft.record.recorder import About, Recorder
from weft.record.schema import COLUMNS, KINDS, SCHEMA, SCHEMA_VERSION, Kind, spark_ddl
from weft.record.settings import TapeSettings
from weft.record.tape import Tape, Unwritable

__all__ = [
    "COLUMNS",
    "KINDS",
    "SCHEMA",
    "SCHEMA_VERSION",
    "About",
    "ChannelSummary",
    "Counters",
    "Kind",
    "Leftover",
    "Recorder",
    "Tape",
    "TapeSettings",
    "Unreadable",
    "Unwritable",
    "read",
    "spark_ddl",
    "summarize",
]
