"""The coordinator's side of its processes: orders out, answers and news in, and waiting with a deadline.

No event loop and no threads: the coordinator mostly waits, and must be able to fork.
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from weft.trial.orders import from_line, to_line
from weft.trial.processes import Process, end_all

READ_BYTES = 1 << 20
SEND_S = 10.0
"""A process that does not read its orders for so long is stuck."""
LOOK_S = 0.1
"""A condition is looked at this often at most: the coordinator shall not take the cores from its processes."""
ANSWER_S = 60.0
END_S = 5.0
REAP_S = 2.0


class Expired(Exception):
    """Something did not come about in time; says what is lacking."""


class Crew:
    """`told` is given everything that processes tell unasked; `died` the processes that ended without being told to."""

    def __init__(self, told: Callable[[Process, dict[str, Any]], None], died: Callable[[Process], None]) -> None:
        self.processes: list[Process] = []
        self._told = told
        self._died = died
        self._selector = selectors.DefaultSelector()
        self._asked = 0
        self._answers: dict[int, dict[int, dict[str, Any]]] = {}
        self.news = 0
        """Counts what was heard, so that a condition is only looked at when something may have changed."""

    def add(self, process: Process) -> None:
        process.end.settimeout(SEND_S)
        self._selector.register(process.end, selectors.EVENT_READ, process)
        self.processes.append(process)

    @property
    def living(self) -> list[Process]:
        """Those that can be asked."""
        return [each for each in self.processes if each.ended is None and not each.frozen]

    # -- orders and answers

    def order(self, process: Process, **content: Any) -> None:
        if process.ended is None:
            try:
                process.end.sendall(to_line(content))
            except TimeoutError:
                raise Expired(f"process {process.number} does not read its orders") from None
            except OSError:
                pass  # it is gone; that will be noticed where its end is read

    def ask(self, processes: Iterable[Process], within_s: float = ANSWER_S, **content: Any) -> list[dict[str, Any]]:
        """The answers of all of these that live until they have answered."""
        asked = [process for process in processes if process.ended is None]
        self._asked += 1
        number = self._asked
        answers = self._answers[number] = {}
        for process in asked:
            self.order(process, ask=number, **content)

        def silent() -> str | None:
            left = [each.number for each in asked if each.ended is None and each.number not in answers]
            return f"no answer to {content['do']!r} from processes {_some(left)}" if left else None

        self.until(silent, within_s)
        del self._answers[number]
        return list(answers.values())

    # -- time

    def until(self, lacking: Callable[[], str | None], within_s: float) -> None:
        """Wait until nothing is lacking; Expired with what is, after so long."""
        deadline = time.monotonic() + within_s
        while (problem := lacking()) is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Expired(f"after {within_s:g} s: {problem}")
            seen = self.news
            while self.news == seen and (left_s := deadline - time.monotonic()) > 0:
                self._read(min(left_s, 1.0))
            self.run(min(LOOK_S, max(0.0, left_s)))

    def run(self, seconds: float) -> None:
        """Let time pass, and hear what is told meanwhile."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            self._read(left_s)

    def _read(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            self._read_from(key.data)

    def _read_from(self, process: Process) -> None:
        try:
            data = process.end.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.news += 1
        process.unread += data
        *lines, process.unread = process.unread.split(b"\n")
        for line in lines:
            self._heard(process, from_line(bytes(line)))
        if not data:
            self._selector.unregister(process.end)
            process.reap(REAP_S)
            if not process.expected_to_end:
                self._died(process)

    def _heard(self, process: Process, content: dict[str, Any]) -> None:
        number = content.get("answer")
        if number is None:
            self._told(process, content)
        elif number in self._answers:
            self._answers[number][process.number] = content

    # -- the end

    def close(self) -> None:
        """Tell all to end; whoever does not is killed. Leaves no process behind."""
        try:
            for process in self.living:
                process.expected_to_end = True
                self.order(process, do="end")
            with suppress(Expired):
                self.until(self._still_there, END_S)
        except Expired:
            pass
        finally:
            self.kill_all()

    def _still_there(self) -> str | None:
        return "processes that do not end" if self.living else None

    def kill_all(self) -> None:
        end_all(self.processes)
        self._selector.close()


def _some(numbers: list[int], most: int = 8) -> str:
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")
