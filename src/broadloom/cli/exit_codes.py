"""The one table of exit codes, and the exceptions that lead to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from broadloom import extras

SUCCESS = 0
FAILURE = 1
USAGE_ERROR = 2
NOT_SUPPORTED = 3
UNDECIDED = 3
"""An audit that neither held nor was broken."""
INTERRUPTED = 130

MEANINGS = {
    SUCCESS: "Success. Also after Ctrl-C, SIGTERM or SIGHUP where that is the normal way to stop.",
    FAILURE: "The operation failed: not joined, not admitted, no other peers, messages lost, a corrupt file, "
    "a guarantee violated.",
    USAGE_ERROR: "Usage error: wrong arguments, or files that cannot be used.",
    NOT_SUPPORTED: "Not supported or not permitted on this machine, or an extra is not installed. "
    "`pipeline audit`, `demo --headless`: unsettled or unjudged. Errors of `pipeline audit` are 2.",
    INTERRUPTED: "Interrupted by Ctrl-C before the work was done. For other signals, 128 plus the signal number.",
}

VERDICT_CODES = {"held": SUCCESS, "broken": FAILURE, "unsettled": UNDECIDED, "unjudged": UNDECIDED}
"""The verdicts of an audit (`testing/checks/settling.py`)."""

SIGNAL_BASE = 128
"""Shells report the end by signal n as 128 + n."""


class UsageError(Exception):
    """The user can fix it. The message says how."""


class CommandFailedError(Exception):
    """The arguments were fine, but the operation failed. The message says why."""


class NotSupportedError(Exception):
    """This machine or this installation cannot do it. The message says what is missing."""


_CODES = {
    USAGE_ERROR: "UsageError InvalidKeyError RulesError ConfigError ScenarioError ServeError ChatStoreError "
    "TapeWriteError StudyUsageError TapesNotFoundError TableNotFoundError TableSettingError ResultsNotFoundError "
    "ResultsLockedError NothingToPlotError BillingConfigError IssuedInvoicesError LiveStateMismatchError "
    "LiveTablesNotFoundError SqlError CompactError StoreError FileNotFoundError NotADirectoryError IsADirectoryError "
    "PermissionError",
    NOT_SUPPORTED: "NotSupportedError JavaNotFoundError SparkUnavailableError",
    FAILURE: "CommandFailedError BroadloomError TapeReadError StoreCorruptError StoreFullError OSError",
}
"""Exceptions that are reported without a traceback. Their names, because importing some of them would import Spark; the
most specific class that is listed decides. All others are bugs."""
_CODE_BY_NAME = {name: code for code, names in _CODES.items() for name in names.split()}


def exit_code_for(problem: Exception) -> int | None:
    names = (each.__name__ for each in type(problem).__mro__)
    return next((_CODE_BY_NAME[name] for name in names if name in _CODE_BY_NAME), None)


@contextmanager
def usage_errors(prefix: str = "", suffix: str = "") -> Iterator[None]:
    """A `ValueError` of the library, for an argument that the user chose, becomes a usage error."""
    try:
        yield
    except ValueError as problem:
        raise UsageError(f"{prefix}{problem}{suffix}") from None


def require_extra(extra: str) -> None:
    """Raise `NotSupportedError` if a package of this extra is not installed. Imports nothing."""
    for package in extras.EXTRAS[extra]:
        if find_spec(package) is None:
            raise missing_package(package, extra)


def missing_package(package: str, extra: str = "") -> NotSupportedError:
    """The error for a package that could not be imported."""
    return NotSupportedError(extras.missing_package(package, extra))
