"""For all tests: Hypothesis has no deadline per example, and tests that share something slow share one worker."""

import signal
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Under nohup the signal is ignored, and programs that tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("broadloom", deadline=None)
settings.load_profile("broadloom")


SHARED_SCOPES = "tests/pipeline/", "tests/web/test_pages.py", "tests/web/test_topics.py"
"""Tests that share something slow to start: Spark, and a browser with a local cluster or a delivery service."""


class SharedScopeScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Tests run wherever there is room, those of a shared scope on one worker.

    `--dist loadgroup` with `xdist_group` marks would do, but pytest-xdist 3.8 does not group with pytest 9.2: a marked
    test keeps its plain node id, so a group is spread over all workers. `--dist loadscope` would keep modules together.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in SHARED_SCOPES if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedScopeScheduling:
    return SharedScopeScheduling(config, log)
