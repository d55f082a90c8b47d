"""Tests of rules must leave no task and no socket behind, either."""

from tests.transport.connections import check_leaks, pytest_asyncio_loop_factories

__all__ = ["check_leaks", "pytest_asyncio_loop_factories"]
