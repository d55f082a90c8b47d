"""Every column of the tape and of all tables can be selected without quotes."""

import pytest

from broadloom.pipeline.live.tables import TABLES as LIVE_TABLES
from broadloom.pipeline.table import Stage, Table, TableColumn
from broadloom.pipeline.tables import all_tables
from broadloom.record import spark_ddl
from broadloom.record.reader import TABLE_SCHEMA

RESERVED = {
    *("all", "at", "authors", "begin", "bytes", "count", "day", "double", "end", "first", "group", "last", "left"),
    *("limit", "minute", "month", "number", "rank", "reference", "rows", "run", "size", "start", "time", "unknown"),
    *("until", "window"),
}
"""Words of the SQL standard, Spark (ANSI), PostgreSQL or DuckDB, and names too vague to query by."""


def tables() -> list[tuple[str, tuple[TableColumn, ...]]]:
    batch: list[tuple[str, tuple[TableColumn, ...]]] = [(each.name, each.columns) for each in all_tables()]
    return batch + [(f"live_{each.name}", each.columns) for each in LIVE_TABLES.values()]


def test_no_column_is_a_reserved_word() -> None:
    columns = {("tape", name) for name in TABLE_SCHEMA.names}
    columns |= {(name, column.name) for name, described in tables() for column in described}
    assert {each for each in columns if each[1] in RESERVED} == set()


def test_spark_selects_every_column_without_quotes(spark) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.createDataFrame([], spark_ddl()).createOrReplaceTempView("tape")
    assert spark.sql(f"SELECT {', '.join(TABLE_SCHEMA.names)} FROM tape").columns == TABLE_SCHEMA.names
    for name, columns in tables():
        names = [each.name for each in columns]
        ddl = Table(name, "", columns, Stage.ALL).ddl
        spark.createDataFrame([], ddl).createOrReplaceTempView(name)
        assert spark.sql(f"SELECT {', '.join(names)} FROM {name}").columns == names


def test_duckdb_selects_every_column_without_quotes() -> None:
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    database.execute(f"CREATE TABLE tape ({', '.join(f'{name} VARCHAR' for name in TABLE_SCHEMA.names)})")
    database.execute(f"SELECT {', '.join(TABLE_SCHEMA.names)} FROM tape")
    for name, columns in tables():
        names = [each.name for each in columns]
        database.execute(f"CREATE TABLE {name} ({', '.join(f'{each} VARCHAR' for each in names)})")
        database.execute(f"SELECT {', '.join(f'{name}.{each}' for each in names)}, {', '.join(names)} FROM {name}")
