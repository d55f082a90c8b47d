"""One Spark session for the whole folder: starting it takes longer than most tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A real session with few partitions, which starts fast."""
    from pyspark.sql import SparkSession

    from broadloom.pipeline.spark_session import session, stop

    running: SparkSession = session(name="broadloom tests", cores=2, memory="2g", quick=True)
    yield running
    stop()
