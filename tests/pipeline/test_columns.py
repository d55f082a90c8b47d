"""One vocabulary of columns in the tape and in all tables, batch and live, which SQL selects without quotes."""

import re

import pytest

from broadloom.pipeline.live.tables import TABLES as LIVE_TABLES
from broadloom.pipeline.table import Stage, Table, TableColumn
from broadloom.pipeline.tables import all_tables
from broadloom.record import spark_ddl
from broadloom.record.arrow_import import pa
from broadloom.record.reader import TABLE_SCHEMA

VAGUE = {
    *("all", "at", "authors", "begin", "bytes", "count", "day", "double", "end", "first", "group", "last", "left"),
    *("limit", "minute", "month", "number", "rank", "reference", "rows", "run", "size", "start", "time", "unknown"),
    *("until", "window"),
}
"""Words of SQL that the databases below accept as names, and names too vague to query by."""

PEERS = {
    *("peer", "peer_a", "peer_b", "crashed_peer", "author", "parent_author", "root_author", "receiver", "neighbor"),
    *("member", "parent_member", "subscriber", "advertiser", "sender", "handler"),
}
OTHER_TEXTS = {
    *("channel", "run_id", "reference_run_id", "group_id", "invoice_id", "corrected_invoice_id"),
    *(
        "verdict",
        "waits_for",
        "kind",
        "reason",
        "a_reason",
        "b_reason",
        "detail",
        "finding",
        "evidence",
        "status",
        "end_status",
        "notes",
    ),
    *("name", "ad_name", "plan_name", "topic", "address", "file_path", "terms"),
    *("role", "ticket_serial", "attributes", "content_type"),
    *("operation", "scope", "file_name", "rule_name", "actions", "owner", "mailbox_name"),
    *("game_name", "players", "state_hash", "participants", "lot", "seller", "winner"),
    *("billing_month", "billing_date", "period", "currency", "time_zone"),
}
"""A new word for a text is added here, if no other one means the same."""

ENDINGS = {
    "timestamp": r".*_time",
    "bool": r"(is|has|leaves)_.*",
    "int64": (
        r"(.*_)?(count|sequence|ordinal|bytes|rank|number|id)|"
        r"(hops|degree|diameter|depth)(_min|_max|_p\d\d)?"
    ),
    "double": r".*_(ms|ppm|mean|count|ratio)|copies_per_message",
    "decimal128": r".*_ms|amount|fee|fee_unrounded|price",
}
"""What a name must match, by type. Durations end in `_ms`; spans of time are `start_time` and `end_time`."""

SPANS = re.compile(r"(begin|began|since|until|from|to|stop|finish|opened|closed|ended|started)(_.*)?_time|.*_(s|us|ns)")


def tables() -> list[tuple[str, tuple[TableColumn, ...]]]:
    batch: list[tuple[str, tuple[TableColumn, ...]]] = [(each.name, each.columns) for each in all_tables()]
    return batch + [(f"live_{each.name}", each.columns) for each in LIVE_TABLES.values()]


def columns() -> list[tuple[str, str, pa.DataType]]:
    """Table, column and type, including those of structs in lists."""
    found = [("tape", each.name, each.type) for each in TABLE_SCHEMA]
    for name, described in tables():
        for each in described:
            found.append((name, each.name, each.type))
            if pa.types.is_list(each.type) and pa.types.is_struct(each.type.value_type):
                found += [(name, inner.name, inner.type) for inner in each.type.value_type]
    return found


def test_columns_of_all_tables_share_one_vocabulary() -> None:
    wrong = []
    for table, name, kind in columns():
        if pa.types.is_string(kind):
            is_right = name in PEERS or name in OTHER_TEXTS
        else:
            ending = ENDINGS.get(re.split(r"[\[(]", str(kind))[0])
            is_right = (ending is None or bool(re.fullmatch(ending, name))) and not SPANS.fullmatch(name)
        if not is_right:
            wrong.append((table, name, str(kind)))
    assert wrong == []


def test_column_has_the_same_type_in_all_tables() -> None:
    types: dict[str, set[str]] = {}
    for _, name, kind in columns():
        types.setdefault(name, set()).add(str(kind))
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def test_every_word_of_the_vocabulary_is_used() -> None:
    assert {*PEERS, *OTHER_TEXTS} - {name for _, name, _ in columns()} == set()


def test_no_column_is_a_reserved_word() -> None:
    assert {each[:2] for each in columns() if each[1] in VAGUE} == set()


def test_spark_selects_every_column_without_quotes(spark) -> None:
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.enforceReservedKeywords": "true"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        spark.createDataFrame([], spark_ddl()).createOrReplaceTempView("tape")
        assert spark.sql(f"SELECT {', '.join(TABLE_SCHEMA.names)} FROM tape").columns == TABLE_SCHEMA.names
        for name, described in tables():
            names = [each.name for each in described]
            ddl = Table(name, "", described, Stage.ALL).ddl
            spark.createDataFrame([], ddl).createOrReplaceTempView(name)
            assert spark.sql(f"SELECT {', '.join(names)} FROM {name}").columns == names
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_duckdb_selects_every_column_without_quotes() -> None:
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    database.execute(f"CREATE TABLE tape ({', '.join(f'{name} VARCHAR' for name in TABLE_SCHEMA.names)})")
    database.execute(f"SELECT {', '.join(TABLE_SCHEMA.names)} FROM tape")
    for name, described in tables():
        names = [each.name for each in described]
        database.execute(f"CREATE TABLE {name} ({', '.join(f'{each} VARCHAR' for each in names)})")
        database.execute(f"SELECT {', '.join(f'{name}.{each}' for each in names)}, {', '.join(names)} FROM {name}")
    reserved = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
    keywords = {keyword for (keyword,) in database.execute(reserved).fetchall()}
    assert {each[:2] for each in columns() if each[1] in keywords} == set()
