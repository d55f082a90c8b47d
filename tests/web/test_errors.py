"""Sources that are gone are reported in plain words."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broadloom.apps.auction.lot import parse_amount
from broadloom.web.error_messages import describe_error
from broadloom.web.sources import LIVE, SourceNotFoundError, Sources
from broadloom.web.table_catalog import Filter, TableCatalog
from tests.web.sample_data import make_tables, make_tape


def test_corrupt_table_is_named_without_internals(tmp_path: Path) -> None:
    catalog = TableCatalog(make_tables(tmp_path))
    entry = catalog.entry("audit_summary")
    [file] = tmp_path.rglob("audit_summary/**/*.parquet")
    file.write_bytes(b"garbage")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        catalog.page(entry, Filter(), 0, 10)
    assert describe_error(caught.value).startswith(f"{file} cannot be read; it may be corrupt.")


def test_value_that_was_typed_is_not_reported_as_a_failure_of_the_page(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="'25,50' is not an amount") as caught:
        parse_amount("25,50")
    assert describe_error(caught.value) == str(caught.value)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "this page failed (KeyError" in describe_error(KeyError("x"))


def test_deleted_tape_is_reported(tmp_path: Path) -> None:
    make_tape(tmp_path / "kill", 8)

    async def main() -> None:
        sources = Sources(tapes_dir=tmp_path)
        await sources.history("kill")
        sources.forget_replay("kill")
        shutil.rmtree(tmp_path / "kill")
        with pytest.raises(SourceNotFoundError, match="'kill': it was deleted or renamed"):
            await sources.history("kill")
        await sources.close()

    asyncio.run(main())


def test_left_channel_is_reported() -> None:
    async def main() -> None:
        sources = Sources()
        with pytest.raises(SourceNotFoundError, match="no live source"):
            await sources.history(LIVE)
        sources.channel = cast(Any, SimpleNamespace(name="chess", status=lambda: SimpleNamespace(state="left")))
        with pytest.raises(SourceNotFoundError, match="left the channel chess"):
            sources.check_live()

    asyncio.run(main())
