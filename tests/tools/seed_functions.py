"""Functions of a seed for the tests of the soak. Other processes import them."""

import os
import signal
import struct
import sys
import threading
from multiprocessing.connection import Connection

from tools.seed_pool import Outcome


def passes(seed: int) -> Outcome:
    return Outcome(metrics={"process": os.getpid(), "seed": seed})


def fails_at_three(seed: int) -> Outcome:
    return Outcome(f"seed {seed}: three is too many" if seed == 3 else "")


def raises(seed: int) -> Outcome:
    raise ValueError(f"{seed} is wrong")


def hangs(_seed: int) -> Outcome:
    threading.Event().wait()
    return Outcome()


def dies_in_its_answer(_seed: int) -> Outcome:
    """The parent gets the length of an answer, and only the beginning of it."""
    connection: Connection = sys._getframe(1).f_locals["connection"]
    os.write(connection.fileno(), struct.pack("!i", 100) + b"half")
    os.kill(os.getpid(), signal.SIGKILL)
    return Outcome()


def crashes(_seed: int) -> Outcome:
    os._exit(7)
