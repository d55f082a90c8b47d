"""The worker pool with real processes: replies, signals, unexpected exits, and errors of workers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broadloom.testing.errors import ClusterError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.pool import WorkerHandle, WorkerPool
from tests.support import eventually
from tests.testing.chaos.real_runs import is_running, process_state

WORKER = "broadloom.testing.chaos.worker:ChaosWorker"


class RecordingPool(WorkerPool):
    def __init__(self, worker: str = WORKER) -> None:
        self.reports: list[dict[str, Any]] = []
        self.deaths: list[WorkerHandle] = []
        config = WorkerConfig("test", tls=False)
        super().__init__(worker, config, lambda _worker, report: self.reports.append(report), self.deaths.append)


@pytest.fixture
async def pool() -> AsyncIterator[RecordingPool]:
    async with RecordingPool() as pool:
        for _ in range(2):
            await pool.start_worker()
        await eventually(lambda: all(worker.pid for worker in pool.workers))
        yield pool


async def test_all_workers_reply(pool: RecordingPool) -> None:
    replies = await pool.request("usage")
    assert set(replies) == set(pool.workers)
    assert all(reply["memory_mb"] > 0 for reply in replies.values())


async def test_paused_worker_replies_only_after_resume(pool: RecordingPool) -> None:
    paused, other = pool.workers
    pool.pause(paused)
    await eventually(lambda: process_state(paused.pid) == "T")
    assert set(await pool.request("usage", workers=pool.workers)) == {other}
    pool.resume(paused)
    assert set(await pool.request("usage")) == {paused, other}


async def test_killed_worker_is_no_unexpected_death(pool: RecordingPool) -> None:
    killed, other = pool.workers
    pool.kill(killed)
    await asyncio.wait_for(killed.exited.wait(), 20)
    assert (killed.exit_status, pool.deaths, pool.responsive) == ("killed by SIGKILL", [], [other])
    assert killed.cpu_s > 0


async def test_unexpected_exit_is_reported_with_its_status(pool: RecordingPool) -> None:
    os.kill(pool.workers[1].pid, signal.SIGTERM)
    await eventually(lambda: pool.deaths == [pool.workers[1]])
    assert pool.workers[1].exit_status == "killed by SIGTERM"


async def test_exception_in_a_worker_is_reported(pool: RecordingPool) -> None:
    pool.workers[0].send("no_such_command")
    await eventually(lambda: pool.deaths == [pool.workers[0]])
    assert any("do_no_such_command" in report["text"] for report in pool.reports)
    assert pool.workers[0].exit_status == "exit status 1"


async def test_exit_of_the_forkserver_is_the_death_of_all_workers(pool: RecordingPool) -> None:
    assert pool._forkserver is not None
    pids = [worker.pid for worker in pool.workers]
    pool._forkserver._process.kill()
    await eventually(lambda: len(pool.deaths) == 2)
    await eventually(lambda: not any(is_running(pid) for pid in pids))
    with pytest.raises(ClusterError, match="exited"):
        await pool.start_worker()


async def test_closed_pool_leaves_no_process() -> None:
    async with RecordingPool() as pool:
        worker = await pool.start_worker()
        await eventually(lambda: worker.pid)
        pool.pause(worker)
    assert (worker.exit_status, pool.deaths) == ("exit status 0", [])
    assert not is_running(worker.pid)


async def test_unknown_worker_class_raises_cluster_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClusterError, match="forkserver exited"):
        await RecordingPool("broadloom.testing.chaos.worker:NoSuchWorker").start()
    assert "NoSuchWorker" in capfd.readouterr().err


async def test_command_sent_before_the_worker_is_connected_is_kept(pool: RecordingPool) -> None:
    """Peers that share a process are assigned to it while it starts."""
    starting = asyncio.create_task(pool.start_worker())
    await asyncio.sleep(0)
    pool.workers[2].send("no such command")
    await starting
    await eventually(lambda: any("no such command" in str(report) for report in pool.reports))
