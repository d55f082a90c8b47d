"""One Spark for the whole suite: starting it takes longer than most tests. Tests that use it run on one worker."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `pytest -n 2 --dist loadgroup` all of a group land on one worker, so there is one Java, not two."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A real one, with few partitions, that starts fast."""
    from pyspark.sql import SparkSession

    from weft.pipeline.session import session, stop

    running: SparkSession = session(name="weft tests", cores=2, memory="2g", quick=True)
    yield running
    stop()
