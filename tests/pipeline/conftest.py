"""One Spark for the whole suite: starting it takes longer than most tests. (Of several workers, one runs all of this
folder: `tests/conftest.py`.)"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A real one, with few partitions, that starts fast."""
    from pyspark.sql import SparkSession

    from broadloom.pipeline.spark_session import session, stop

    running: SparkSession = session(name="broadloom tests", cores=2, memory="2g", quick=True)
    yield running
    stop()
