"""`Rules`: what `connect(rules=…)` takes. It runs the interpreter for each message and carries out the effects.

Fail closed: unless every rule that applies was carried out, nothing is sent, and `NotSentError` names the rule and the
reason. With `dry_run` it is the other way round: everything is sent as it is, and what would have happened is logged.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from broadloom.channel.outgoing import Outgoing, pack_data
from broadloom.errors import HeldError, NotSentError, RulesError
from broadloom.rules.compiled import Names, PythonAction, compile_rules
from broadloom.rules.held import HeldMessages, write_new
from broadloom.rules.interpreter import CopyEffect, Delivery, Effect, Interpretation, ProgramEffect, SealEffect
from broadloom.rules.model import Comment, Forward, Rule
from broadloom.rules.parser import parse
from broadloom.rules.preview import Preview, problem_text, try_out
from broadloom.rules.programs import ProgramFailedError, ProgramLimits, ProgramRunner
from broadloom.rules.recording import RecordedHits
from broadloom.security.sealing import SealingPublicKey, seal

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel
    from broadloom.protocol.runtime import Observer

log = logging.getLogger("broadloom")

RELOAD_INTERVAL_S = 1.0
"""How often the file is looked at."""
COPY_SUFFIX = ".msg"
SEND_TIMEOUT_S = 5.0

F = TypeVar("F", bound=Callable[..., object])
_actions: dict[str, PythonAction] = {}
_conditions: dict[str, Callable[[Outgoing], bool]] = {}


def action(name: str) -> Callable[[F], F]:
    """Decorator: rules call this function by its name. It gets a copy of the `Outgoing` and the arguments in the rule,
    and returns an `Outgoing`, in which data, headers, topic, content type, priority and `ttl_s` may be changed."""

    def register(function: F) -> F:
        _actions[name] = function  # type: ignore[assignment]
        return function

    return register


def condition(name: str) -> Callable[[F], F]:
    """Decorator: a condition for rules, by its name. It gets the `Outgoing` and returns whether it holds."""

    def register(function: F) -> F:
        if iscoroutinefunction(function):
            raise TypeError(f"condition {name!r} must be a plain function: conditions do not wait")
        _conditions[name] = function  # type: ignore[assignment]
        return function

    return register


@dataclass(slots=True)
class RuleCount:
    """What one rule has done so far."""

    rule: str
    hits: int = 0
    """Messages for which it acted."""
    refused: int = 0
    """Messages that were not sent because of it: refused, held, or not carried out."""
    seconds: float = 0.0
    """Time it took for the messages for which it acted."""


class Rules:
    """Rules, and what they have done. One object may serve several channels, between which it can forward."""

    def __init__(
        self,
        rules: Iterable[Rule | Comment] = (),
        *,
        programs: Mapping[str, Sequence[str]] | None = None,
        limits: ProgramLimits | None = None,
        held: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Raises `RulesError` if the rules cannot work.

        - `programs`: the programs that rules may run: a name, and the command as a list of words. None are by default.
        - `held`: directory for messages that rules hold.
        - `directory`: what paths in rules are relative to. Default: the current directory.
        """
        for name, command in (programs or {}).items():
            if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
                raise TypeError(f"programs[{name!r}] must be a list of words, as in ['gpg', '--encrypt']")
        self.dry_run = dry_run
        self._programs = {name: tuple(command) for name, command in (programs or {}).items()}
        self._directory = Path(directory) if directory is not None else Path()
        self.held = HeldMessages(Path(held)) if held is not None else None
        self._runner = ProgramRunner(limits or ProgramLimits(), directory)
        self._channels: WeakValueDictionary[str, Channel] = WeakValueDictionary()
        self._keys: dict[str, SealingPublicKey] = {}
        self._counts: dict[str, RuleCount] = {}
        self._path: Path | None = None
        self._stamp: tuple[int, ...] = ()
        self._check_at = 0.0
        self.reload_error: str = ""
        """Why the last change of the file was not taken over; empty if it was."""
        self._use(tuple(rules))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        programs: Mapping[str, Sequence[str]] | None = None,
        limits: ProgramLimits | None = None,
        held: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> "Rules":
        """Read rules from a file, and again whenever it changes. Raises `RulesError`.

        Paths in rules are relative to the directory of the file. Held messages are stored in `FILE.held` by default.
        """
        file = Path(path)
        if file.is_dir():
            raise RulesError(f"{file}: a directory, not a file of rules")
        held = held if held is not None else file.with_name(file.name + ".held")
        rules = cls(programs=programs, limits=limits, held=held, directory=file.resolve().parent, dry_run=dry_run)
        rules._path = file
        rules._stamp = rules._file_stamp()
        rules._use(parse(read_source(file), str(file)))
        return rules

    def _use(self, items: tuple[Rule | Comment, ...]) -> None:
        compiled = compile_rules(items, Names(self._programs, _actions, _conditions), str(self._path or ""))
        keys = {name: SealingPublicKey.load(self._directory / name) for name in compiled.keys}
        if compiled.can_hold and self.held is None:
            raise RulesError("a rule holds messages: pass a directory for them, as in held='held/'")
        self._items, self._compiled = items, compiled
        self._keys.update(keys)  # messages that are just passing the old rules still need theirs

    @property
    def items(self) -> tuple[Rule | Comment, ...]:
        """The rules, and the comments between them."""
        return self._items

    def counts(self) -> list[RuleCount]:
        """What each rule has done, in their order; rules that are no longer there are left out."""
        return [replace(self._counts.get(label) or RuleCount(label)) for label in self._compiled.labels]

    def add_channel(self, channel: "Channel") -> None:
        """Let rules forward to this channel. `connect(rules=…)` does this by itself."""
        self._channels[channel.name] = channel

    # -- reloading

    def _file_stamp(self) -> tuple[int, ...]:
        assert self._path is not None
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def reload(self) -> bool:
        """Read the file again if it has changed. If the new rules cannot be used, the old ones stay in force, with a
        warning. Returns whether new rules are in force."""
        if self._path is None or (stamp := self._file_stamp()) == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._use(parse(read_source(self._path), str(self._path)))
        except (RulesError, ValueError) as problem:
            self.reload_error = str(problem)
            log.warning("%s: the rules have changed and cannot be used; the old ones stay: %s", self._path, problem)
            return False
        self.reload_error = ""
        log.info("%s: new rules are in force", self._path)
        return True

    # -- the filter of a channel

    def _start(self, out: Outgoing, *, traces: bool = False) -> Interpretation:
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + RELOAD_INTERVAL_S
            self.reload()
        return Interpretation(self._compiled, out, time.time(), time.perf_counter, traces=traces)

    def apply(self, out: Outgoing, channel: "Channel") -> Coroutine[Any, Any, Outgoing]:
        """Raises `NotSentError`, or `HeldError` if a rule holds the message."""
        run = self._start(out, traces=self.dry_run)
        if channel._observer is None or self.dry_run:
            return self._apply(run, out, channel)
        return self._apply_recorded(channel._observer, run, out, channel)

    async def _apply_recorded(
        self, observer: "Observer", run: Interpretation, out: Outgoing, channel: "Channel"
    ) -> Outgoing:
        with RecordedHits(observer, run):
            return await self._apply(run, out, channel)

    async def _apply(self, run: Interpretation, out: Outgoing, channel: "Channel") -> Outgoing:
        if self.dry_run:
            self._log_dry_run(try_out(run, self._seal))
            return out
        try:
            effects = run.run()
            answer: bytes | None = None
            while True:
                answer = await self._perform(effects.send(answer))  # type: ignore[arg-type]
        except StopIteration:
            pass
        except BaseException as problem:
            raise self._failure(run, problem) from None
        self._count(run)
        if run.hold_reason is not None:
            raise await self._hold(run, out)
        if run.deliveries:
            pack_data(run.out)  # raises `NotSentError` before anything is sent
        for delivery in run.deliveries:
            try:
                await self._deliver(delivery, channel)
            except Exception as problem:
                raise self._not_sent(delivery.label, problem) from None
        return run.out

    def apply_nowait(self, out: Outgoing, channel: "Channel") -> Outgoing:
        """As `apply`. Raises `NotSentError` if a rule would have to wait."""
        run = self._start(out, traces=self.dry_run)
        if channel._observer is None or self.dry_run:
            return self._apply_nowait(run, out)
        with RecordedHits(channel._observer, run):
            return self._apply_nowait(run, out)

    def _apply_nowait(self, run: Interpretation, out: Outgoing) -> Outgoing:
        if self.dry_run:
            self._log_dry_run(try_out(run, self._seal))
            return out
        try:
            effects = run.run()
            answer: bytes | None = None
            while True:
                effect = effects.send(answer)  # type: ignore[arg-type]
                if not isinstance(effect, SealEffect):
                    raise NotSentError(run.label, _MUST_WAIT)
                answer = self._seal(effect)
        except StopIteration:
            pass
        except BaseException as problem:
            raise self._failure(run, problem) from None
        self._count(run)
        if run.hold_reason is not None or run.deliveries:
            label = run.deliveries[0].label if run.hold_reason is None else run.label
            raise self._not_sent(label, NotSentError(label, _MUST_WAIT))
        return run.out

    # -- effects

    async def _perform(self, effect: Effect) -> bytes:
        match effect:
            case CopyEffect(directory, data):
                await asyncio.to_thread(write_new, self._directory / directory, data, COPY_SUFFIX)
                return b""
            case ProgramEffect(program, data):
                return await self._runner.run(program, data)
            case SealEffect():
                return self._seal(effect)

    def _seal(self, effect: SealEffect) -> bytes:
        return seal(effect.data, [self._keys[name] for name in effect.keys])

    async def _deliver(self, delivery: Delivery, channel: "Channel") -> None:
        if isinstance(delivery.action, Forward):
            name = delivery.action.channel
            target = self._channels.get(name)
            if target is None:
                raise RulesError(f"cannot forward to {name}: this program has not joined it with these rules")
            await target._broadcast_outgoing(delivery.out)
        else:
            await channel._tell_outgoing(_member_id(channel, delivery.action.member), delivery.out, SEND_TIMEOUT_S)

    async def _hold(self, run: Interpretation, out: Outgoing) -> NotSentError:
        assert self.held is not None
        reason = run.hold_reason or ""
        if not out.has_envelope or out.receiver:
            return self._not_sent(run.label, RulesError(f"a {out.way} cannot be held, only broadcasts can"))
        self._counter(run.label).refused += 1
        try:
            held_id = await asyncio.to_thread(self.held.put, out, run.label, reason)
        except OSError as problem:
            return NotSentError(run.label, f"cannot be held: {problem_text(problem)}")
        return HeldError(run.label, reason, held_id)

    async def release(self, held_id: str, channel: "Channel") -> int:
        """Send a held message and return its sequence number. It passes all rules again, but `hold` does nothing now.
        Raises `RulesError` if it is not there, if it belongs to another channel or the channel was joined without
        rules, and as `Channel.broadcast`."""
        if self.held is None:
            raise RulesError("there is no directory of held messages: pass held=…")
        message = self.held.begin_release(held_id)
        is_sent = False
        try:
            if message.out.channel != channel.name:
                raise RulesError(f"{held_id} belongs to the channel {message.out.channel}, not {channel.name}")
            if channel._filter is None:
                raise RulesError(f"{channel.name} was joined without rules: join it with them to release {held_id}")
            sequence = await channel._broadcast_outgoing(replace(message.out, is_released=True))
            is_sent = True
            return sequence
        finally:
            self.held.end_release(held_id, is_sent=is_sent)

    # -- counting and errors

    def _counter(self, label: str) -> RuleCount:
        return self._counts.setdefault(label, RuleCount(label))

    def _count(self, run: Interpretation) -> None:
        for number, seconds in run.hits:
            counter = self._counter(run.labels[number])
            counter.hits += 1
            counter.seconds += seconds

    def _failure(self, run: Interpretation, problem: BaseException) -> BaseException:
        """The exception for what a rule could not do."""
        self._count(run)
        if run.current >= 0:
            counter = self._counter(run.label)
            counter.hits += 1
            counter.seconds += run.elapsed_s
        if not isinstance(problem, Exception):
            return problem  # cancelled: nothing was sent
        return self._not_sent(run.label, problem)

    def _not_sent(self, label: str, problem: Exception) -> NotSentError:
        self._counter(label).refused += 1
        if isinstance(problem, NotSentError) and problem.rule == label:
            return problem
        if not isinstance(problem, OSError | RulesError | ProgramFailedError | NotSentError):
            log.error("%s failed", label, exc_info=problem)
        return NotSentError(label, problem_text(problem))

    # -- trying

    def preview(self, out: Outgoing) -> Preview:
        """What these rules would do with a message. Nothing is sent, copied or held, and no program runs: the data
        stays as it is where a program would have changed it."""
        return try_out(self._start(out, traces=True), self._seal)

    def _log_dry_run(self, preview: Preview) -> None:
        acted = [each for each in preview.steps if not each.is_condition]
        if acted or preview.reason:
            what = "; ".join(f"{each.rule}: {each.text} ({each.outcome})" for each in acted)
            log.info("dry run of the rules: %s", preview.reason or what)


_MUST_WAIT = "this action has to wait; send with broadcast, not broadcast_nowait, or return the reply"


def read_source(path: Path) -> str:
    """The text of a rule file. Raises `RulesError`."""
    try:
        return path.read_bytes().decode()
    except OSError as problem:
        raise RulesError(f"cannot read the rules {path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise RulesError(f"{path} is not text in UTF-8 (byte {problem.start})") from None


def _member_id(channel: "Channel", wanted: str) -> int:
    """The member with this name or id. A proven name wins; otherwise there must be only one. Raises `RulesError`."""
    found = [each for each in channel.members() if wanted in (each.name, str(each.peer_id))]
    found = [each for each in found if each.is_proven] or found
    others = [each for each in found if each.peer_id != channel.peer_id]
    if len(others) != 1:
        how_many = f"{len(others)} members have this name; use a peer id" if others else "there is no such member"
        raise RulesError(f"cannot send to {wanted}: {how_many}")
    return others[0].peer_id
