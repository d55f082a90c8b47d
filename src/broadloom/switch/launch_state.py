"""`LaunchState`: one program type as a process: starting it, its deadline to become ready, back-off, idle end.

| state | event | result |
|---|---|---|
| stopped | a message needs it | starting |
| starting | it registers its type | ready |
| starting | it exits, or is not ready in time | paused: messages fail at once until the pause is over |
| ready | it exits, or is terminated because it is idle | stopped |
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.switch import settings
from broadloom.switch.program_types import ProgramType

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Timer
    from broadloom.switch.runtime import RunningProgram, SwitchRuntime


class LaunchState:
    def __init__(
        self, runtime: "SwitchRuntime", program: ProgramType, on_not_started: Callable[[str, str], None]
    ) -> None:
        self._runtime = runtime
        self._program = program
        self._on_not_started = on_not_started
        self._process: RunningProgram | None = None
        self._is_ready = False
        self._ready_timer: Timer | None = None
        self._failures = 0
        self._paused_until = 0.0
        self._problem = ""
        self._used_at = 0.0

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> str | None:
        """Start it unless it is starting; returns why it cannot be started."""
        if self._process is not None:
            return None
        now = self._runtime.now()
        if not self._program.start:
            return f"{self._program.name!r} has no command (start)"
        if now < self._paused_until:
            return f"{self._problem}; it is started again in {self._paused_until - now:.0f} s at the earliest"
        self._is_ready, self._used_at = False, now
        self._process = self._runtime.start_program(self._program, self._on_exit)
        self._ready_timer = self._runtime.call_later(self._program.ready_s, self._on_not_ready)
        return None

    def on_ready(self) -> None:
        """A program of this type has registered."""
        self._used_at = self._runtime.now()
        if self._process is not None and not self._is_ready:
            self._is_ready, self._failures = True, 0
            self._cancel_timer()

    def on_used(self) -> None:
        self._used_at = self._runtime.now()

    def check_idle(self, is_used: bool) -> None:
        idle_s = self._program.idle_s
        if self._process is not None and self._is_ready and idle_s is not None and not is_used:
            if self._runtime.now() - self._used_at >= idle_s:
                process, self._process = self._process, None
                process.terminate()

    def close(self) -> None:
        self._cancel_timer()
        process, self._process = self._process, None
        if process is not None:
            process.terminate()

    def _on_exit(self, text: str) -> None:
        self._process = None
        self._cancel_timer()
        if not self._is_ready:
            self._fail(f"{self._program.name!r} {text}")

    def _on_not_ready(self) -> None:
        self._ready_timer = None
        process, self._process = self._process, None
        assert process is not None
        last_lines = f": {process.last_lines}" if process.last_lines else ""
        process.terminate()
        text = f"was started, but did not register within {self._program.ready_s:g} s{last_lines}"
        self._fail(f"{self._program.name!r} {text}")

    def _fail(self, problem: str) -> None:
        self._on_not_started(self._program.name, self._pause(problem))

    def _pause(self, problem: str) -> str:
        self._problem = problem
        pause_s = min(self._program.again_after_s * 2**self._failures, settings.BACKOFF_S_MAX)
        self._failures = min(self._failures + 1, 16)
        self._paused_until = self._runtime.now() + pause_s
        return problem

    def _cancel_timer(self) -> None:
        if self._ready_timer is not None:
            self._ready_timer.cancel()
            self._ready_timer = None
