"""Tests here run on the event loop of Broadloom's own programs, and must leave no task and no socket behind."""

from tests.transport.connections import check_leaks, pytest_asyncio_loop_factories

__all__ = ["check_leaks", "pytest_asyncio_loop_factories"]
