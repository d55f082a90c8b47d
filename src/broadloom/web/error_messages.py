"""Exceptions as one sentence for the page."""

import logging
import re

from broadloom.errors import BroadloomError
from broadloom.extras import EXTRAS, missing_package
from broadloom.record.arrow_import import pa
from broadloom.record.reader import TapeReadError

log = logging.getLogger("broadloom.web")


def describe_error(problem: BaseException) -> str:
    """A readable sentence. Unexpected errors also go to the log, with their traceback."""
    if isinstance(problem, BroadloomError | TapeReadError):
        return str(problem)
    if isinstance(problem, ModuleNotFoundError) and problem.name is not None:
        missing = problem.name.partition(".")[0]
        if any(missing in packages for packages in EXTRAS.values()):
            return missing_package(missing)
    if isinstance(problem, FileNotFoundError | PermissionError):
        where = f" ({problem.filename})" if problem.filename else ""
        return f"{problem.strerror or problem}{where}: check the directory passed on the command line"
    if type(problem) is ValueError:  # as the library says what is wrong with an argument; here it was typed
        log.warning("a page was given a wrong value", exc_info=problem)
        return str(problem)
    log.error("a page failed", exc_info=problem)
    if isinstance(problem, pa.ArrowException | OSError):
        file = next(iter(re.findall(r"'(/[^']+)'", str(problem))), "a file")
        return f"{file} cannot be read; it may be corrupt. Build the tables or record the tape again"
    return f"this page failed ({type(problem).__name__}: {problem}). Reload it; the server's log has details"
