"""Builds tables from the tapes of meters, without Spark."""

from pathlib import Path
from typing import cast

import polars as pl

from broadloom.record import read
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_in_memory

BILLING = """
currency = "EUR"
[plans.visitor]
kind = "hour"
hour = 0.45
unit_s = 3600
[[subscribers]]
name = "anna"
plan = "visitor"
[[advertisers]]
name = "acme"
ads = ["spring-*"]
broadcast_fee = 1.00
subscriber_fee = 0.0125
"""


def built(folder: Path, *names: str, billing: str = BILLING) -> dict[str, pl.DataFrame]:
    """These tables, from the tapes in `folder`/tapes."""
    (folder / "billing.toml").write_text(billing)
    rows = cast("pa.Table", read(folder / "tapes"))
    return build_in_memory(rows, *names, billing_file=str(folder / "billing.toml"))
