"""For all tests: a slow moment of the machine is no failure of a property, and there is one Spark, not one a worker."""

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

settings.register_profile("weft", deadline=None)
settings.load_profile("weft")


class OneSpark(LoadScopeScheduling):  # type: ignore[misc]
    """Tests go wherever there is room, those of the pipeline to one worker: its Spark takes long to start."""

    def _split_scope(self, nodeid: str) -> str:
        return "pipeline" if nodeid.startswith("tests/pipeline/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    return OneSpark(config, log)
