"""docs/tape.md documents the whole schema."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from broadloom.protocol.events import LinkDownReason
from broadloom.record import COLUMNS, EVENT_KINDS, SCHEMA, SCHEMA_VERSION, EventKind, TapeSettings, spark_ddl
from broadloom.record import settings as settings_module
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import CHANNEL_KEY, OLDEST_VERSION, RUN_KEY, VERSION_KEY, columns_in_version, spark_type
from tests.record.tape_kit import CHANNEL, ME, ManualClock, finished_files, make_tape, send

PAGE = (Path(__file__).parent.parent.parent / "docs" / "tape.md").read_text(encoding="utf-8")


def is_documented(name: str) -> bool:
    """Whether a table of the page has a row for it."""
    return re.search(rf"^\| `{re.escape(name)}` \|[^|]*\w", PAGE, re.M) is not None


@pytest.mark.parametrize("name", [*SCHEMA.names, "channel", "event_date"])
def test_every_field_is_documented(name: str) -> None:
    assert is_documented(name)


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_kind_is_documented(kind: EventKind) -> None:
    assert is_documented(kind.value)
    assert kind in EVENT_KINDS


@pytest.mark.parametrize("setting", [each.name for each in fields(TapeSettings)])
def test_every_setting_is_documented(setting: str) -> None:
    assert is_documented(setting)
    source = Path(settings_module.__file__).read_text(encoding="utf-8")
    assert re.search(rf'^    {setting}: \w+ = [^\n]+\n    """', source, re.M)


def test_every_link_down_reason_is_documented() -> None:
    (listed,) = re.findall(r"`reason` is one of: ([^.]*)\.", PAGE)
    assert listed == ", ".join(why.value for why in LinkDownReason)


def test_documentation_names_only_existing_columns() -> None:
    there = {
        *SCHEMA.names,
        "channel",
        "event_date",
        *(kind.value for kind in EventKind),
        *(each.name for each in fields(TapeSettings)),
    }
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == there


def test_file_carries_its_schema(tmp_path: Path) -> None:
    with make_tape(tmp_path, ManualClock()) as tape:
        send(tape.observer(CHANNEL, ME), 1)
    schema = pq.read_schema(finished_files(tmp_path)[0])
    assert schema.equals(SCHEMA)
    for column in COLUMNS:
        assert schema.field(column.name).metadata[b"about"].decode() == column.description
    metadata = schema.metadata
    assert metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    assert metadata[CHANNEL_KEY].decode() == CHANNEL.id.hex()
    assert metadata[RUN_KEY].decode() == tape.run_id


def test_spark_reads_every_type() -> None:
    spark = {
        pa.int64(): "BIGINT",
        pa.string(): "STRING",
        pa.binary(): "BINARY",
        pa.bool_(): "BOOLEAN",
        pa.float64(): "DOUBLE",
        pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    }
    assert [spark[column.type] for column in COLUMNS] == [spark_type(column.type) for column in COLUMNS]
    assert spark_ddl().startswith("`ordinal` BIGINT, `run_id` STRING")
    assert spark_ddl().endswith("`channel` STRING, `event_date` DATE")


def test_schemas_of_all_versions_do_not_change() -> None:
    """New columns are added at the end, with a new version; these stay. Versions before 3 are not read."""
    third = (
        "ordinal, run_id, kind, event_time, end_time, peer, author, sequence, last_sequence, hops, neighbor, address, "
        "reason, event_count, size_bytes, name, group_id, parent_author, parent_sequence, topic, payload, member, "
        "member_sequence, parent_member, parent_member_sequence"
    )
    fourth = f"{third}, role, ticket_serial, is_proven, attributes, content_type"
    fifth = f"{fourth}, status, handler, scope, file_name, is_notice, is_repeatable, rule_number, actions, duration_ms"
    assert (SCHEMA_VERSION, OLDEST_VERSION) == (8, 3)
    assert ", ".join(each.name for each in columns_in_version(3)) == third
    assert ", ".join(each.name for each in columns_in_version(4)) == fourth
    assert ", ".join(each.name for each in columns_in_version(5)) == fifth
    assert ", ".join(SCHEMA.names) == f"{fifth}, owner"
    assert not any(each.is_required for each in COLUMNS if each.since_version > OLDEST_VERSION)
