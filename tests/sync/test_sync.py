"""`broadloom.sync`: the names, results and exceptions of the asynchronous channel."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import broadloom.sync
from broadloom import Message
from broadloom.protocol import Tuning
from broadloom.sync import Channel
from tests.support import wait_until

QUICK: dict[str, Any] = {"tls": False, "settings": Tuning(discovery_retry_s=0.1, leave_linger_s=0.05)}


def unique_name() -> str:
    return f"test/{uuid4().hex}"


@contextmanager
def connected_pair(**options: Any) -> Iterator[tuple[Channel, Channel]]:
    name = unique_name()
    with (
        broadloom.sync.connect(name, **{**QUICK, **options}) as one,
        broadloom.sync.connect(name, **{**QUICK, **options}) as other,
    ):
        yield one, other


def test_sync_channel_sends_receives_and_leaves() -> None:
    with connected_pair() as (author, reader):
        assert author.is_connected
        assert author.name == reader.name
        assert author.peer_id != reader.peer_id
        assert [author.broadcast(b"one"), author.broadcast_text("two"), author.broadcast_json([3])] == [1, 2, 3]
        assert [reader.receive(5).data for _ in range(3)] == [b"one", b"two", b"[3]"]
        assert author.broadcast_nowait(b"four") == 4
        wait_until(lambda: reader.status().unread_count == 1)
        message = reader.receive_nowait()
        assert message is not None
        assert message.text == "four"
        assert reader.receive_nowait() is None
        for timeout_s in (0.01, 0):
            with pytest.raises(TimeoutError, match=f"{reader.name}: no message within {timeout_s:g} s"):
                reader.receive(timeout_s)
        assert reader.status().state == "connected"
        assert reader.missed_count == 0
        assert reader.status().is_full_mesh
        assert reader.identity(author.peer_id) is None
        assert reader.display_name(author.peer_id) == f"{author.peer_id:016x}"
    assert not reader.is_connected
    author.leave()
    with pytest.raises(broadloom.NotConnectedError):
        author.broadcast(b"late")
    with pytest.raises(broadloom.NotConnectedError):
        reader.receive(1)


def test_connect_and_broadcast_raise_errors_in_the_calling_thread() -> None:
    with pytest.raises(ValueError, match="TYPE/INSTANCE"):
        broadloom.sync.connect("chess")
    with pytest.raises(broadloom.ConnectError, match="no peer of this channel answered"):
        broadloom.sync.connect(unique_name(), bootstrap=["127.0.0.1:9"], timeout_s=0.2, **QUICK)
    with connected_pair() as (author, _), pytest.raises(TypeError, match="broadcast_text"):
        author.broadcast("text")  # type: ignore[call-overload]


def test_broadcast_nowait_raises_errors_of_the_asynchronous_channel(caplog: pytest.LogCaptureFixture) -> None:
    options = {"settings": Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, message_bytes_max=1 << 20)}
    with connected_pair(**options) as (author, reader):
        with pytest.raises(TypeError, match="a message is bytes, not str; use broadcast_text or broadcast_json"):
            author.broadcast_nowait("text")  # type: ignore[arg-type]
        with pytest.raises(broadloom.MessageTooLargeError):
            author.broadcast_nowait(bytes(2 << 20))
        with pytest.raises(ValueError, match="must be greater than 0"):
            author.broadcast_nowait(b"never", ttl_s=-1)
        with pytest.raises(ValueError, match="from 0 to 255"):
            author.broadcast_nowait(b"above all", priority=256)
        author.broadcast_nowait(b"good")
        assert reader.receive(5).sequence == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_events_iterates_until_channel_is_left() -> None:
    with connected_pair() as (one, other):
        events: list[object] = []
        thread = threading.Thread(target=lambda: events.extend(one.events()))
        thread.start()
        wait_until(lambda: one._wrapped._listeners)
        other.leave()
        one.leave()
        thread.join(5)
        assert not thread.is_alive()
        assert any(isinstance(event, broadloom.LinkDown) for event in events)
        assert events[-1] == broadloom.StateChanged(broadloom.PeerState.LEFT)
        assert list(one.events()) == []


def test_events_unsubscribes_when_iteration_is_abandoned() -> None:
    with connected_pair() as (one, other):

        def read_one() -> None:
            for _ in one.events():
                break

        thread = threading.Thread(target=read_one)
        thread.start()
        wait_until(lambda: one._wrapped._listeners)
        other.abort()
        thread.join(5)
        wait_until(lambda: not one._wrapped._listeners)


def test_threads_send_and_receive_concurrently() -> None:
    threads, count = 8, 60
    with connected_pair() as (author, reader), ThreadPoolExecutor(2 * threads) as pool:

        def send(number: int) -> list[int]:
            return [author.broadcast_text(f"{number} {each}") for each in range(count)]

        def read() -> list[str]:
            got = []
            with suppress(TimeoutError):
                while True:
                    got.append(reader.receive(1).text)
            return got

        reading = [pool.submit(read) for _ in range(threads)]
        sent = list(pool.map(send, range(threads)))
        numbers = sorted(number for each in sent for number in each)
        assert numbers == list(range(1, threads * count + 1))
        assert all(each == sorted(each) for each in sent)
        got = sorted(text for each in reading for text in each.result())
        assert got == sorted(f"{number} {each}" for number in range(threads) for each in range(count))


def test_large_messages_files_and_batches_arrive_whole(tmp_path: Path) -> None:
    large = bytes(range(256)) * 4000
    path = tmp_path / "report.txt"
    path.write_bytes(large)
    with connected_pair() as (author, reader):
        assert author.broadcast(large, priority=broadloom.Priority.HIGH, ttl_s=60) == 16
        message = reader.receive(20)
        assert message.data == large
        progress: list[tuple[int, int]] = []
        assert author.broadcast_file(path, on_progress=lambda done, size: progress.append((done, size))) == 32
        message = reader.receive(20)
        assert message.file == broadloom.File("report.txt", large)
        assert progress[-1][0] == progress[-1][1] > len(large)
        author.broadcast_nowait(large, priority=broadloom.Priority.LOW, ttl_s=60)
        author.broadcast_nowait(b"after it")
        (first, second) = [next(batches) for batches in [reader.batches()] for _ in range(2)]
        assert [message.data for message in first] == [large]
        assert [message.data for message in second] == [b"after it"]
        with pytest.raises(FileNotFoundError):
            author.broadcast_file(tmp_path / "missing")
        with pytest.raises(ValueError, match="from 0 to 255"):
            author.broadcast(b"above all", priority=300)


def test_batches_are_iterated_and_passed_to_callback() -> None:
    with connected_pair() as (author, reader):
        for number in range(100):
            author.broadcast_nowait(b"%d" % number)
        wait_until(lambda: reader.unread_count == 100)
        message = reader.receive_nowait()
        assert message is not None
        got = []
        for batch in reader.batches():
            got += [int(each.text) for each in batch]
            if got[-1] == 99:
                break
        assert got == list(range(1, 100))
        together: list[broadloom.Batch] = []
        unsubscribe = reader.on_batch(together.append)
        author.broadcast_text("one more")
        wait_until(lambda: together)
        assert [each.text for each in together[0]] == ["one more"]
        unsubscribe()
        author.broadcast_text("kept")
        wait_until(lambda: reader.unread_count == 1)
        reader.leave()
        assert [[each.text for each in batch] for batch in reader.batches()] == [["kept"]]


def test_callback_may_reply_but_must_not_wait() -> None:
    with connected_pair() as (one, other):
        problems: list[BaseException] = []
        answered: list[str] = []

        def answer(message: Message) -> None:
            assert other.status().state == "connected"
            for blocking_call in (lambda: other.broadcast(b"x"), other.receive, other.leave):
                try:
                    blocking_call()
                except RuntimeError as problem:
                    problems.append(problem)
            other.broadcast_nowait(message.data.upper())

        other.on_message(answer)
        one.on_message(lambda message: answered.append(message.text))
        one.broadcast_text("hello")
        wait_until(lambda: answered == ["HELLO"])
        assert len(problems) == 3
        assert "use the `_nowait` methods" in str(problems[0])
        events: list[object] = []
        end = one.on_event(events.append)
        other.leave()
        wait_until(lambda: any(isinstance(event, broadloom.LinkDown) for event in events))
        end()
        one.status()
        count = len(events)
        one.leave()
        assert len(events) == count


def test_iteration_ends_when_channel_is_left() -> None:
    with connected_pair() as (author, reader):
        got: list[str] = []
        thread = threading.Thread(target=lambda: got.extend(message.text for message in reader))
        thread.start()
        for number in range(5):
            author.broadcast_text(str(number))
        wait_until(lambda: len(got) == 5)
        reader.leave()
        thread.join(5)
        assert not thread.is_alive()
        assert got == list("01234")
        reader.leave()


def test_close_channel_closes_channel_for_every_member() -> None:
    with connected_pair() as (one, other):
        one.close_channel()
        with pytest.raises(broadloom.NotConnectedError):
            other.receive(10)
        assert list(other) == []


def test_receive_nowait_raises_inbox_overflow_error() -> None:
    with connected_pair(overflow="leave", inbox_messages_max=3) as (author, reader):
        for number in range(10):
            author.broadcast_text(str(number))
        wait_until(lambda: reader.status().state == "left")
        got = [reader.receive_nowait() for _ in range(4)]
        assert [message.text for message in got if message is not None] == list("0123")
        with pytest.raises(broadloom.InboxOverflowError):
            reader.receive_nowait()
        with pytest.raises(broadloom.InboxOverflowError):
            reader.receive(1)


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    """The result of a program in its own process, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )


PROGRAM = """
import threading, broadloom, broadloom.sync
channel = broadloom.sync.connect("test/{name}", tls=False)
channel.on_message(print)
channel.broadcast(b"hello")
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "raise SystemExit(0)",
        "threading.Thread(target=channel.receive, daemon=True).start()",
        "channel.leave()",
        "del channel",
        "channel.broadcast_nowait(b'bye')",
    ],
    ids=["end of program", "exit", "blocked reader", "leave", "deleted channel", "last message"],
)
def test_process_exits_quietly_without_leaving(end: str) -> None:
    result = run_program(PROGRAM.format(name=uuid4().hex) + end)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_failing_process_prints_one_traceback_and_exits() -> None:
    result = run_program(PROGRAM.format(name=uuid4().hex) + "1 / 0")
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert "ZeroDivisionError" in result.stderr


FORKS = """
import os, sys
import broadloom.sync
name = sys.argv[1]
with broadloom.sync.connect(name, tls=False) as parent:
    child = os.fork()
    if not child:
        try:
            parent.broadcast(b"from the channel of the parent")
        except RuntimeError as error:
            print(error, flush=True)
        with broadloom.sync.connect(name, tls=False, timeout_s=20) as channel:
            channel.broadcast(b"from the child")
        os._exit(0)
    print(parent.receive(timeout_s=30).text, flush=True)
    parent.broadcast(b"the parent goes on")
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_process_connects_by_itself() -> None:
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FORKS, unique_name()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "a channel cannot be used in a forked process: connect there", "from the child", "0"
    ]  # fmt: skip


def test_requests_are_answered_by_handlers_in_the_background_thread() -> None:
    with connected_pair() as (caller, callee):
        remove = callee.on_request(lambda request: request.data.upper())
        assert caller.request(callee.peer_id, b"hello").text == "HELLO"
        received: list[bytes] = []
        callee.layer("vo").on_request(lambda request: received.append(request.data))
        caller.layer("vo").tell(callee.peer_id, b"news")
        wait_until(lambda: received == [b"news"])
        remove()
        with pytest.raises(broadloom.RefusedError):
            caller.request(callee.peer_id, b"?")
        with pytest.raises(ValueError, match="timeout_s=0"):
            caller.request(callee.peer_id, b"?", timeout_s=0)
