"""The coordinator's side of its processes: orders out, answers and news in, and waiting with a deadline.

No event loop and no threads: the coordinator mostly waits, and must be able to fork.
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from broadloom.testing.chaos.processes import ForkedProcess, kill_all
from broadloom.testing.processes.control_protocol import decode_line, encode_line

READ_BYTES = 1 << 20
SEND_TIMEOUT_S = 10.0
"""A process that does not read its orders for so long is stuck."""
POLL_S = 0.1
"""A condition is looked at this often at most: the coordinator shall not take the cores from its processes."""
REPLY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
REAP_TIMEOUT_S = 2.0


class WorkerTimeoutError(Exception):
    """Something did not come about in time; says what is lacking."""


class WorkerPool:
    """`told` is given everything that processes tell unasked; `died` the processes that ended without being told to."""

    def __init__(
        self, on_report: Callable[[ForkedProcess, dict[str, Any]], None], on_death: Callable[[ForkedProcess], None]
    ) -> None:
        self.processes: list[ForkedProcess] = []
        self._on_report = on_report
        self._on_death = on_death
        self._selector = selectors.DefaultSelector()
        self._last_request_id = 0
        self._replies: dict[int, dict[int, dict[str, Any]]] = {}
        self.message_count = 0
        """Counts what was heard, so that a condition is only looked at when something may have changed."""

    def add(self, process: ForkedProcess) -> None:
        process.control_socket.settimeout(SEND_TIMEOUT_S)
        self._selector.register(process.control_socket, selectors.EVENT_READ, process)
        self.processes.append(process)

    @property
    def responsive(self) -> list[ForkedProcess]:
        """Those that can be asked."""
        return [each for each in self.processes if each.exit_status is None and not each.is_paused]

    # -- orders and answers

    def send(self, process: ForkedProcess, **content: Any) -> None:
        if process.exit_status is None:
            try:
                process.control_socket.sendall(encode_line(content))
            except TimeoutError:
                raise WorkerTimeoutError(f"process {process.number} does not read its orders") from None
            except OSError:
                pass  # it is gone; that will be noticed where its end is read

    def request(
        self, processes: Iterable[ForkedProcess], timeout_s: float = REPLY_TIMEOUT_S, **content: Any
    ) -> list[dict[str, Any]]:
        """The answers of all of these that live until they have answered."""
        targets = [process for process in processes if process.exit_status is None]
        self._last_request_id += 1
        number = self._last_request_id
        replies = self._replies[number] = {}
        for process in targets:
            self.send(process, ask=number, **content)

        def find_missing() -> str | None:
            left = [each.number for each in targets if each.exit_status is None and each.number not in replies]
            return f"no answer to {content['do']!r} from processes {_format_numbers(left)}" if left else None

        self.wait_until(find_missing, timeout_s)
        del self._replies[number]
        return list(replies.values())

    # -- time

    def wait_until(self, find_problem: Callable[[], str | None], timeout_s: float) -> None:
        """Wait until nothing is lacking; Expired with what is, after so long."""
        deadline = time.monotonic() + timeout_s
        while (problem := find_problem()) is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise WorkerTimeoutError(f"after {timeout_s:g} s: {problem}")
            seen_count = self.message_count
            while self.message_count == seen_count and (left_s := deadline - time.monotonic()) > 0:
                self._read(min(left_s, 1.0))
            self.run(min(POLL_S, max(0.0, left_s)))

    def run(self, seconds: float) -> None:
        """Let time pass, and hear what is told meanwhile."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            self._read(left_s)

    def _read(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            self._read_from(key.data)

    def _read_from(self, process: ForkedProcess) -> None:
        try:
            data = process.control_socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.message_count += 1
        process.unread += data
        *lines, process.unread = process.unread.split(b"\n")
        for line in lines:
            self._on_message(process, decode_line(bytes(line)))
        if not data:
            self._selector.unregister(process.control_socket)
            process.reap(REAP_TIMEOUT_S)
            if not process.is_expected_to_exit:
                self._on_death(process)

    def _on_message(self, process: ForkedProcess, content: dict[str, Any]) -> None:
        number = content.get("answer")
        if number is None:
            self._on_report(process, content)
        elif number in self._replies:
            self._replies[number][process.number] = content

    # -- the end

    def close(self) -> None:
        """Tell all to end; whoever does not is killed. Leaves no process behind."""
        try:
            for process in self.responsive:
                process.is_expected_to_exit = True
                self.send(process, do="end")
            with suppress(WorkerTimeoutError):
                self.wait_until(self._find_running, STOP_TIMEOUT_S)
        except WorkerTimeoutError:
            pass
        finally:
            self.kill_all()

    def _find_running(self) -> str | None:
        return "processes that do not end" if self.responsive else None

    def kill_all(self) -> None:
        kill_all(self.processes)
        self._selector.close()


def _format_numbers(numbers: list[int], limit: int = 8) -> str:
    return ", ".join(map(str, numbers[:limit])) + (", …" if len(numbers) > limit else "")
