"""For all tests: a slow moment of the machine is no failure of a property, and there is one Spark, not one a worker."""

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

settings.register_profile("broadloom", deadline=None)
settings.load_profile("broadloom")


SHARED_SCOPES = "tests/pipeline/", "tests/web/test_pages.py"
"""What these share takes long to start: Spark, and a browser with a lab."""


class SharedScopeScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Tests go wherever there is room, those that share what is slow to start to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in SHARED_SCOPES if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedScopeScheduling:
    return SharedScopeScheduling(config, log)
