"""A table of the pipeline: one question, its columns each with its meaning, and how it is built.

The rule: the columns are the contract. `Table.shaped` is the last step of each build, and makes exactly them; the
documentation is tested against them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.record.arrow_import import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID = pa.string()
"""A peer: 16 hexadecimal digits."""
TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
DAY = pa.date32()
COUNT = pa.int64()
NUMBER = pa.float64()
FLAG = pa.bool_()
MONEY = pa.decimal128(18, 4)

SettingValue = str | int | float
"""Of a setting."""

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
    """A setting that there is not, or with a value that does not fit; the text says which there are."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: pa.DataType
    about: str
    """What it means, in one sentence."""

    @property
    def spark(self) -> str:
        """Its type in Spark's language."""
        return spark_type(self.type)


@dataclass(frozen=True, slots=True)
class TableSetting:
    """A number or word that a person may choose."""

    name: str
    default: SettingValue
    about: str

    def parse(self, text: str) -> SettingValue:
        try:
            return type(self.default)(text)
        except ValueError:
            kind = {int: "a whole number", float: "a number"}.get(type(self.default), "text")
            raise TableSettingError(f"the setting {self.name} has to be {kind}, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    question: str
    """What it answers, in one plain sentence."""
    columns: tuple[TableColumn, ...]
    build: Callable[["TableInputs"], "DataFrame"]
    depends_on: tuple[str, ...] = ()
    """Tables that it is built from; they stand before it in the registry."""
    settings: tuple[TableSetting, ...] = ()
    is_cumulative: bool = False
    """Its former rows are an input of its next build: what was issued once stays."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type, metadata={"about": each.about}) for each in self.columns])

    @property
    def ddl(self) -> str:
        """The columns in Spark's language, as `applyInArrow` and `mapInArrow` want them."""
        return ddl(self.columns)

    def conform(self, frame: "DataFrame") -> "DataFrame":
        """Exactly the columns of this table, in their order and of their types."""
        return conform(frame, self.columns)


@dataclass(slots=True)
class TableInputs:
    """What a table is built from."""

    spark: "SparkSession"
    events: "DataFrame"
    """All good rows of the tapes, with the columns of `broadloom.record.spark_ddl()`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every setting of every table by its name, with its default unless the person chose."""
    tables: dict[str, "DataFrame"] = field(default_factory=dict)
    """Those built before, read back from Parquet."""
    rows: int = 0
    """How many events there are, about: by it the work is cut into parts."""

    def __getitem__(self, name: str) -> "DataFrame":
        return self.tables[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tables

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)


def ddl(columns: tuple[TableColumn, ...]) -> str:
    return ", ".join(f"`{each.name}` {each.spark}" for each in columns)


def conform(frame: "DataFrame", columns: tuple[TableColumn, ...]) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return frame.select(*(F.col(f"`{each.name}`").cast(each.spark).alias(each.name) for each in columns))


def spark_type(kind: pa.DataType) -> str:
    """An Arrow type in Spark's language."""
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
    """Every setting of these tables, with what the person chose. Two tables may share one: then it is the same."""
    known = {each.name: each for table in tables for each in table.settings}
    for name in chosen:
        if name not in known:
            raise TableSettingError(f"there is no setting {name!r}; there are: {', '.join(sorted(known))}")
    return {name: each.parse(chosen[name]) if name in chosen else each.default for name, each in known.items()}
