"""A table of the pipeline: the question it answers, its documented columns, and its pure function.

The columns are the contract: a file of a table has exactly these, and `docs/tables.md` is generated from them.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.record.arrow_import import pa
from broadloom.record.schema import TIME, spark_type

if TYPE_CHECKING:
    import polars as pl

    from broadloom.pipeline.analysis.clock_correction import ClockCorrection
    from broadloom.pipeline.billing.config import BillingConfig

TEXT = pa.string()
COUNT = pa.int64()
NUMBER = pa.float64()
FLAG = pa.bool_()
MONEY = pa.decimal128(18, 4)
EXACT_MS = pa.decimal128(20, 3)
"""Milliseconds that money depends on."""

SettingValue = str | int | float

_TYPES = (
    (r".*_time", TIME),
    (r"(is|has|leaves)_.*", FLAG),
    (r".*_(ms|ppm|mean|ratio)", NUMBER),
    (r"(.*_)?(count|sequence|ordinal|bytes|rank|number)|(hops|degree|diameter|depth)(_(min|max|p\d\d))?", COUNT),
)
"""What the name of a column says about its type. All others are texts; peers are texts of 16 hex digits."""


class TableSettingError(BroadloomError):
    """A setting is unknown or has an invalid value. The message lists the settings."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    about: str
    type: pa.DataType

    @property
    def spark(self) -> str:
        return spark_type(self.type)


def column(name: str, about: str, type: pa.DataType | None = None) -> TableColumn:
    """A column of the type that its name says, unless one is given."""
    found = next((kind for pattern, kind in _TYPES if re.fullmatch(pattern, name)), TEXT)
    return TableColumn(name, about, type or found)


CHANNEL = column("channel", "Channel ID, first 16 hex digits.")


@dataclass(frozen=True, slots=True)
class TableSetting:
    """A value that `broadloom pipeline run --set NAME=VALUE` can change."""

    name: str
    default: SettingValue
    about: str
    minimum: float = 0.0
    """Of a number."""

    def parse(self, text: str) -> SettingValue:
        kind = {int: "a whole number", float: "a number"}.get(type(self.default), "text")
        try:
            value = type(self.default)(text)
        except ValueError:
            raise TableSettingError(f"setting {self.name} must be {kind}, not {text!r}") from None
        if not isinstance(value, str) and not self.minimum <= value < math.inf:
            raise TableSettingError(f"setting {self.name} must be {kind}, at least {self.minimum:g}, not {text!r}")
        return value


class Stage(Enum):
    """The stage of the engine (`broadloom.pipeline.engine`) that builds a table."""

    MERGE = "merge"
    PAIR = "pair"
    CHANNEL = "channel"
    FINISH = "finish"
    ALL = "all"
    """Over all channels, in the driver."""
    LIVE = "live"
    """By no build: `pipeline/live/` keeps it up to date."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    question: str
    columns: tuple[TableColumn, ...]
    stage: Stage
    build: "Callable[[ChannelInputs], pl.DataFrame] | None" = None
    """The rows of one channel; None if the engine builds it for each part, or over all channels."""
    depends_on: tuple[str, ...] = ()
    """Tables it is built from; they come before it in the registry."""
    settings: tuple[TableSetting, ...] = ()
    is_cumulative: bool = False
    """Its previous rows are an input of its next build."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type, metadata={"about": each.about}) for each in self.columns])

    @property
    def ddl(self) -> str:
        """The columns as Spark DDL."""
        return ", ".join(f"`{each.name}` {each.spark}" for each in self.columns)


@dataclass(slots=True)
class ChannelInputs:
    """Everything that the function of a table gets: the data of one channel."""

    channel: str
    scans: "dict[str, pl.DataFrame]"
    """What the scans of all parts found, by the name of the scan."""
    settings: Mapping[str, Any]
    """Every setting of every table by name."""
    quarantine: "pl.DataFrame"
    """The rows of the table `quarantine` about this channel."""
    billing: "BillingConfig"
    clocks: "ClockCorrection"
    tables: "dict[str, pl.DataFrame]" = field(default_factory=dict)
    """Tables of this channel built before."""

    def __getitem__(self, name: str) -> "pl.DataFrame":
        """A table of this channel. One that another task builds is built here too."""
        if name not in self.tables:
            from broadloom.pipeline.tables import table

            build = table(name).build
            assert build is not None
            self.tables[name] = build(self)
        return self.tables[name]

    def scan(self, name: str) -> "pl.DataFrame":
        """With texts instead of codes, and the channel."""
        import polars as pl

        from broadloom.pipeline.engine.events import plain

        return plain(self.scans[name]).with_columns(channel=pl.lit(self.channel, pl.String))


def schema_of(columns: Iterable[TableColumn]) -> pa.Schema:
    return pa.schema([pa.field(each.name, each.type) for each in columns])


def resolve_settings(tables: tuple[Table, ...], chosen: Mapping[str, str]) -> dict[str, SettingValue]:
    """Every setting of these tables, chosen or default. Tables may share a setting."""
    known = {each.name: each for table in tables for each in table.settings}
    for name in chosen:
        if name not in known:
            raise TableSettingError(f"unknown setting {name!r}; settings: {', '.join(sorted(known))}")
    return {name: each.parse(chosen[name]) if name in chosen else each.default for name, each in known.items()}
