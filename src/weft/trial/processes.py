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

from weft.trial.orders import to_line

_PR_SET_PDEATHSIG = 1
REAP_LOOK_S = 0.01
_PROBLEM = "trials need Linux: there the kernel sees to it that no process is left behind"


def why_not_here() -> str | None:
    """Why this machine cannot hold trials."""
    return None if sys.platform == "linux" else _PROBLEM


class Process:
    """One child, as its parent sees it."""

    def __init__(self, number: int, pid: int, end: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.end = end
        self.unread = bytearray()
        self.frozen = False
        self.expected_to_end = False
        self.ended: str | None = None
        """How it ended, once it has."""
        self.cpu_s = 0.0
        """What it used in all; known when it has ended."""

    def signal(self, number: signal.Signals) -> None:
        if self.ended is None:
            os.kill(self.pid, number)

    def reap(self, within_s: float = 0.0) -> None:
        """It has closed its end, or was killed: see it off. Whoever lingers is killed."""
        deadline = time.monotonic() + within_s
        while self.ended is None:
            late = time.monotonic() >= deadline
            if late:
                os.kill(self.pid, signal.SIGKILL)
            pid, status, used = os.wait4(self.pid, 0 if late else os.WNOHANG)
            if pid == 0:
                time.sleep(REAP_LOOK_S)
                continue
            self.cpu_s = used.ru_utime + used.ru_stime
            code = os.waitstatus_to_exitcode(status)
            self.ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            self.end.close()


def fork(number: int, main: Callable[[socket.socket], None], siblings: Iterable[Process]) -> Process:
    """A child that runs `main` with its end of a socket pair, and then ends."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    # Ctrl-C waits: while a fork is under way Python would swallow it, and a child must not take it for its own.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    pid = os.fork()
    if pid:
        theirs.close()
        process = Process(number, pid, ours)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return process
    code = 1
    try:
        die_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which will end us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        ours.close()
        for sibling in siblings:
            sibling.end.close()  # or they would not see the coordinator go
        main(theirs)
        code = 0
    except BaseException:
        with suppress(OSError):
            theirs.sendall(to_line({"tell": "fault", "text": traceback.format_exc()}))
    finally:
        os._exit(code)


def die_with(parent: int) -> None:
    """The kernel kills this process when its parent dies, even if it is stopped just then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def freeze_heap() -> None:
    """What is here before forking stays shared: the collector of a child shall not touch, and so copy, it."""
    gc.collect()
    gc.freeze()


def end_all(processes: Iterable[Process]) -> None:
    """Without a word, and all of them."""
    processes = list(processes)  # killed first and waited for afterwards, so that they go at once
    for process in processes:
        process.signal(signal.SIGKILL)
    for process in processes:
        process.reap()
