"""Processes of a trial: forked from the coordinator, and never left behind.

The rule: a child dies with its parent, whatever kills the parent (the kernel sees to it, and a closed socket besides),
and it never returns into the parent's code. Forking takes milliseconds where starting Python anew would take a second;
each child is still a process of its own, with its own event loop and sockets. So the parent must have neither when it
forks, nor threads.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

from broadloom.testing.processes.control_protocol import encode_line

_PR_SET_PDEATHSIG = 1
REAP_POLL_S = 0.01
_UNSUPPORTED = "trials need Linux: there the kernel sees to it that no process is left behind"


def unsupported_reason() -> str | None:
    """Why this machine cannot hold trials."""
    return None if sys.platform == "linux" else _UNSUPPORTED


class ForkedProcess:
    """One child, as its parent sees it."""

    def __init__(self, number: int, pid: int, sock: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.control_socket = sock
        self.unread = bytearray()
        self.is_paused = False
        self.is_expected_to_exit = False
        self.exit_status: str | None = None
        """How it ended, once it has."""
        self.cpu_s = 0.0
        """What it used in all; known when it has ended."""

    def signal(self, number: signal.Signals) -> None:
        if self.exit_status is None:
            os.kill(self.pid, number)

    def reap(self, timeout_s: float = 0.0) -> None:
        """It has closed its end, or was killed: see it off. Whoever lingers is killed."""
        deadline = time.monotonic() + timeout_s
        while self.exit_status is None:
            is_overdue = time.monotonic() >= deadline
            if is_overdue:
                os.kill(self.pid, signal.SIGKILL)
            pid, status, used = os.wait4(self.pid, 0 if is_overdue else os.WNOHANG)
            if pid == 0:
                time.sleep(REAP_POLL_S)
                continue
            self.cpu_s = used.ru_utime + used.ru_stime
            code = os.waitstatus_to_exitcode(status)
            self.exit_status = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            self.control_socket.close()


def fork(number: int, main: Callable[[socket.socket], None], siblings: Iterable[ForkedProcess]) -> ForkedProcess:
    """A child that runs `main` with its end of a socket pair, and then ends."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    # Ctrl-C waits: while a fork is under way Python would swallow it, and a child must not take it for its own.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    pid = os.fork()
    if pid:
        theirs.close()
        process = ForkedProcess(number, pid, ours)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return process
    code = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which will end us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        ours.close()
        for sibling in siblings:
            sibling.control_socket.close()  # or they would not see the coordinator go
        main(theirs)
        code = 0
    except BaseException:
        with suppress(OSError):
            theirs.sendall(encode_line({"tell": "fault", "text": traceback.format_exc()}))
    finally:
        os._exit(code)


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when its parent dies, even if it is stopped just then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def freeze_heap() -> None:
    """What is here before forking stays shared: the collector of a child shall not touch, and so copy, it."""
    gc.collect()
    gc.freeze()


def kill_all(processes: Iterable[ForkedProcess]) -> None:
    """Without a word, and all of them."""
    processes = list(processes)  # killed first and waited for afterwards, so that they go at once
    for process in processes:
        process.signal(signal.SIGKILL)
    for process in processes:
        process.reap()
