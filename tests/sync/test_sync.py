"""Channels for programs that are not asynchronous."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import broadloom.sync
from broadloom import Message
from broadloom.protocol import Tuning
from broadloom.sync import Channel

QUICK: dict[str, Any] = {"tls": False, "settings": Tuning(discovery_retry_s=0.1, leave_linger_s=0.05)}


def unique_name() -> str:
    return f"test/{uuid4().hex}"


def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within its time"
        time.sleep(0.003)


@contextmanager
def connected_pair(**options: Any) -> Iterator[tuple[Channel, Channel]]:
    name = unique_name()
    with (
        broadloom.sync.connect(name, **{**QUICK, **options}) as one,
        broadloom.sync.connect(name, **{**QUICK, **options}) as other,
    ):
        yield one, other


def test_a_program_without_a_loop_can_do_it_all() -> None:
    with connected_pair() as (author, reader):
        assert author.is_connected
        assert author.name == reader.name
        assert author.peer_id != reader.peer_id
        assert [author.broadcast(b"one"), author.broadcast_text("two"), author.broadcast_json([3])] == [1, 2, 3]
        got = [reader.receive(5) for _ in range(3)]
        assert [message.data for message in got if message is not None] == [b"one", b"two", b"[3]"]
        author.broadcast_nowait(b"four")
        until(lambda: reader.status().unread_count == 1)
        message = reader.receive_nowait()
        assert message is not None
        assert message.text == "four"
        assert reader.receive_nowait() is None
        assert reader.receive(0.01) is None
        assert reader.receive(0) is None
        assert reader.status().state == "connected"
        assert reader.missed_count == 0
        assert reader.few == author.few == 2
        assert reader.identity(author.peer_id) is None
        assert reader.display_name(author.peer_id) == f"{author.peer_id:016x}"
    assert not reader.is_connected
    author.leave()
    with pytest.raises(broadloom.NotConnectedError):
        author.broadcast(b"late")
    with pytest.raises(broadloom.NotConnectedError):
        reader.receive(1)


def test_mistakes_are_told_to_who_makes_them() -> None:
    with pytest.raises(ValueError, match="TYPE/INSTANCE"):
        broadloom.sync.connect("chess")
    with pytest.raises(broadloom.ConnectError, match="nobody of this channel answered"):
        broadloom.sync.connect(unique_name(), bootstrap=["127.0.0.1:9"], timeout_s=0.2, **QUICK)
    with connected_pair() as (author, _), pytest.raises(TypeError, match="broadcast_text"):
        author.broadcast("text")  # type: ignore[arg-type]


def test_an_error_of_one_that_did_not_wait_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    options = {"settings": Tuning(discovery_retry_s=0.1, leave_linger_s=0.05, message_bytes_max=1 << 20)}
    with connected_pair(**options) as (author, reader):
        author.broadcast_nowait("text")  # type: ignore[arg-type]
        author.broadcast_nowait(bytes(2 << 20))
        author.broadcast_nowait(b"never", ttl_s=-1)
        author.broadcast_nowait(b"above all", priority=256)
        author.broadcast_nowait(b"good")
        message = reader.receive(5)
        assert message is not None
        assert message.sequence == 1
    told = [record.getMessage() for record in caplog.records if record.name == "broadloom"]
    assert [text.partition(":")[0] for text in told] == ["a message was not sent"] * 4
    assert not [record for record in caplog.records if record.name == "asyncio"], "the loop heard nothing of it"


def test_many_threads_may_speak_and_read_at_once() -> None:
    threads, count = 8, 60
    with connected_pair() as (author, reader), ThreadPoolExecutor(2 * threads) as pool:

        def speak(number: int) -> list[int]:
            return [author.broadcast_text(f"{number} {each}") for each in range(count)]

        def read() -> list[str]:
            got = []
            while (message := reader.receive(1)) is not None:
                got.append(message.text)
            return got

        reading = [pool.submit(read) for _ in range(threads)]
        spoken = list(pool.map(speak, range(threads)))
        numbers = sorted(number for each in spoken for number in each)
        assert numbers == list(range(1, threads * count + 1))
        assert all(each == sorted(each) for each in spoken)
        got = sorted(text for each in reading for text in each.result())
        assert got == sorted(f"{number} {each}" for number in range(threads) for each in range(count))


def test_large_ones_files_and_batches(tmp_path: Path) -> None:
    large = bytes(range(256)) * 4000
    path = tmp_path / "report.txt"
    path.write_bytes(large)
    with connected_pair() as (author, reader):
        assert author.broadcast(large, priority=broadloom.Priority.HIGH, ttl_s=60) == 16
        message = reader.receive(20)
        assert message is not None
        assert message.data == large
        told: list[tuple[int, int]] = []
        assert author.broadcast_file(path, on_progress=lambda done, size: told.append((done, size))) == 32
        message = reader.receive(20)
        assert message is not None
        assert message.file == broadloom.File("report.txt", large)
        assert told[-1][0] == told[-1][1] > len(large)
        author.broadcast_nowait(large, priority=broadloom.Priority.LOW, ttl_s=60)
        author.broadcast_nowait(b"behind it")
        (first, second) = [next(batches) for batches in [reader.batches()] for _ in range(2)]
        assert [message.data for message in first] == [large]
        assert [message.data for message in second] == [b"behind it"]
        with pytest.raises(FileNotFoundError):
            author.broadcast_file(tmp_path / "missing")
        with pytest.raises(ValueError, match="from 0 to 255"):
            author.broadcast(b"above all", priority=300)


def test_batches_as_they_come_and_to_a_callback() -> None:
    with connected_pair() as (author, reader):
        for number in range(100):
            author.broadcast_nowait(b"%d" % number)
        until(lambda: reader.unread_count == 100)
        message = reader.receive_nowait()
        assert message is not None
        got = []
        for batch in reader.batches():
            got += [int(each.text) for each in batch]
            if got[-1] == 99:
                break
        assert got == list(range(1, 100))
        together: list[broadloom.Batch] = []
        reader.on_batch(together.append)
        author.broadcast_text("one more")
        until(lambda: together)
        assert [each.text for each in together[0]] == ["one more"]
        reader.on_batch(None)
        author.broadcast_text("kept")
        until(lambda: reader.unread_count == 1)
        reader.leave()
        assert [[each.text for each in batch] for batch in reader.batches()] == [["kept"]]


def test_callbacks_run_and_may_answer_without_waiting() -> None:
    with connected_pair() as (one, other):
        problems: list[BaseException] = []
        answered: list[str] = []

        def answer(message: Message) -> None:
            for waits in (lambda: other.broadcast(b"x"), other.status, other.receive, other.leave):
                try:
                    waits()
                except RuntimeError as problem:
                    problems.append(problem)
            other.broadcast_nowait(message.data.upper())

        other.on_message(answer)
        one.on_message(lambda message: answered.append(message.text))
        one.broadcast_text("hello")
        until(lambda: answered == ["HELLO"])
        assert len(problems) == 4
        assert "inside a callback use the `_nowait` methods" in str(problems[0])
        events: list[object] = []
        end = one.on_event(events.append)
        other.leave()
        until(lambda: any(isinstance(event, broadloom.LinkDown) for event in events))
        end()
        one.status()
        count = len(events)
        one.leave()
        assert len(events) == count


def test_iteration_ends_when_the_channel_is_left() -> None:
    with connected_pair() as (author, reader):
        got: list[str] = []
        thread = threading.Thread(target=lambda: got.extend(message.text for message in reader))
        thread.start()
        for number in range(5):
            author.broadcast_text(str(number))
        until(lambda: len(got) == 5)
        reader.leave()
        thread.join(5)
        assert not thread.is_alive()
        assert got == list("01234")
        reader.leave()


def test_a_channel_can_be_closed_for_all() -> None:
    with connected_pair() as (one, other):
        one.close_channel()
        with pytest.raises(broadloom.NotConnectedError):
            other.receive(10)
        assert list(other) == []


def test_who_fell_behind_is_told_when_polling_too() -> None:
    with connected_pair(overflow="leave", inbox_messages_max=3) as (author, reader):
        for number in range(10):
            author.broadcast_text(str(number))
        until(lambda: reader.status().state == "left")
        got = [reader.receive_nowait() for _ in range(4)]
        assert [message.text for message in got if message is not None] == list("0123")
        with pytest.raises(broadloom.InboxOverflowError):
            reader.receive_nowait()
        with pytest.raises(broadloom.InboxOverflowError):
            reader.receive(1)


def exits(program: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, which must end by itself, and quietly."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )


LONELY = """
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
    ids=["falls off its end", "exits", "a reader waits", "leaves", "forgets it", "says a last word"],
)
def test_a_process_may_end_without_leaving(end: str) -> None:
    ended = exits(LONELY.format(name=uuid4().hex) + end)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_process_that_fails_says_why_and_ends() -> None:
    ended = exits(LONELY.format(name=uuid4().hex) + "1 / 0")
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert "ZeroDivisionError" in ended.stderr
