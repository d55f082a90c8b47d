"""A table of the pipeline: the question it answers, its documented columns, and its pure function.

The columns are the contract: a file of a table has exactly these, and `docs/tables.md` is generated from them.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    import polars as pl

    from broadloom.pipeline.analysis.clock_correction import ClockCorrection
    from broadloom.pipeline.billing.config import BillingConfig

ID = pa.string()
"""Peer ID: 16 hex digits."""
TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
COUNT = pa.int64()
NUMBER = pa.float64()
FLAG = pa.bool_()
MONEY = pa.decimal128(18, 4)
EXACT_MS = pa.decimal128(20, 3)
"""Milliseconds that money depends on."""

SettingValue = str | int | float

_SPARK_NAMES = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    TIME: "TIMESTAMP",
}


class TableSettingError(BroadloomError):
    """A setting is unknown or has an invalid value. The message lists the settings."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: pa.DataType
    about: str

    @property
    def spark(self) -> str:
        return spark_type(self.type)


CHANNEL = TableColumn("channel", TEXT, "Channel ID, first 16 hex digits.")


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


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    question: str
    columns: tuple[TableColumn, ...]
    stage: Stage
    build: "Callable[[ChannelInputs], pa.Table] | None" = None
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
    quarantine: pa.Table
    """The rows of the table `quarantine` about this channel."""
    billing: "BillingConfig"
    clocks: "ClockCorrection"
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Tables of this channel built before."""

    def __getitem__(self, name: str) -> pa.Table:
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


def spark_type(kind: pa.DataType) -> str:
    """An Arrow type as Spark DDL."""
    if kind in _SPARK_NAMES:
        return _SPARK_NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        parts = ", ".join(f"`{each.name}`: {spark_type(each.type)}" for each in kind)
        return f"STRUCT<{parts}>"
    raise TypeError(f"Spark has no type for {kind}")


def resolve_settings(tables: tuple[Table, ...], chosen: Mapping[str, str]) -> dict[str, SettingValue]:
    """Every setting of these tables, chosen or default. Tables may share a setting."""
    known = {each.name: each for table in tables for each in table.settings}
    for name in chosen:
        if name not in known:
            raise TableSettingError(f"unknown setting {name!r}; settings: {', '.join(sorted(known))}")
    return {name: each.parse(chosen[name]) if name in chosen else each.default for name, each in known.items()}
