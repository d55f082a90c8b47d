"""Data contracts: the schema of the tape and of every table as JSON, from the code that writes them.

`broadloom pipeline contracts > docs/contracts.json` writes the published ones, and a test compares them.
"""

import json
from typing import Any

from broadloom.pipeline.live.tables import TABLES as LIVE_TABLES
from broadloom.pipeline.table import Table
from broadloom.pipeline.tables import all_tables
from broadloom.record.reader import TABLE_SCHEMA
from broadloom.record.schema import COLUMNS, EVENT_KINDS, SCHEMA_VERSION, spark_type

PARTITIONS = {"channel": "Channel ID, first 16 hex digits.", "event_date": "Date in UTC."}
"""Columns of a tape that are in the names of its folders."""


def contracts() -> dict[str, Any]:
    return {
        "tape": _tape(),
        "tables": {each.name: _table(each) for each in all_tables()},
        "live_tables": {each.name: _table(each) for each in LIVE_TABLES.values()},
    }


def _tape() -> dict[str, Any]:
    required = {each.name for each in COLUMNS if each.is_required} | set(PARTITIONS)
    about = {each.name: each.description for each in COLUMNS} | PARTITIONS
    return {
        "version": SCHEMA_VERSION,
        "format": "parquet",
        "partitioned_by": list(PARTITIONS),
        "kinds": {kind.value: text for kind, text in EVENT_KINDS.items()},
        "columns": [
            {
                "name": each.name,
                "type": str(each.type),
                "spark_type": spark_type(each.type),
                "is_required": each.name in required,
                "about": about[each.name],
            }
            for each in TABLE_SCHEMA
        ],
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "question": table.question,
        "format": "parquet",
        "built_from": list(table.depends_on) or ["tape"],
        "columns": [
            {"name": each.name, "type": str(each.type), "spark_type": each.spark, "about": each.about}
            for each in table.columns
        ],
    }


def contracts_json() -> str:
    return json.dumps(contracts(), indent=1, ensure_ascii=False) + "\n"
