"""Tests here run on the event loops of `each_loop`, and must leave no task and no socket behind."""

from tests.transport.connections import check_leaks, pytest_asyncio_loop_factories

__all__ = ["check_leaks", "pytest_asyncio_loop_factories"]
