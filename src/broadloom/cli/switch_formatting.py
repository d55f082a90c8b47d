"""How `broadloom switch` shows messages, replies and registrations: as lines, tables and JSON."""

from typing import TYPE_CHECKING, Any

from broadloom.cli.exit_codes import UsageError
from broadloom.cli.formatting import SHORT_ID_DIGITS, escape_control_chars, message_text, payload_json
from broadloom.cli.output import table
from broadloom.switch import Pattern, Registration, SwitchMessage, SwitchReply
from broadloom.switch.codec import HandlerCopy, decode
from broadloom.wire import WireError

if TYPE_CHECKING:
    from rich.table import Table


def step_line(step: SwitchReply) -> str:
    handler = f" {step.handler:016x}" if step.handler is not None else ""
    detail = message_text(step.data) if step.data else step.failure_text
    reason = f" {step.reason.name.lower()}" if step.reason is not None else ""
    return escape_control_chars(f"{step.state.name.lower()}{reason}{handler}{f': {detail}' if detail else ''}")


def message_line(message: SwitchMessage) -> str:
    about = f" {message.file}" if message.file else ""
    detail = message.reply or message.data
    text = message.failure_text or (message_text(detail) if detail else "")
    line = f"{message.session} {message.operation}{about} {message.state.name.lower()}{f': {text}' if text else ''}"
    return escape_control_chars(line)


def message_fields(message: SwitchMessage) -> dict[str, Any]:
    return {
        "id": str(message.id),
        "class": message.message_class.name.lower(),
        "operation": message.operation,
        "scope": message.scope.name.lower(),
        "file": message.file,
        "session": message.session,
        "state": message.state.name.lower(),
        "reason": message.reason.name.lower() if message.reason is not None else None,
        "handler": f"{message.handler:016x}" if message.handler is not None else None,
        **payload_json(message.reply or message.data),
    }


def stored_message(copy: bytes) -> SwitchMessage:
    try:
        message = decode(copy)
    except WireError as problem:
        raise UsageError(f"the queue has a damaged message: {problem}") from None
    if not isinstance(message, HandlerCopy):
        raise UsageError("the queue has a damaged message")
    return message.message


def pattern_fields(pattern: Pattern) -> dict[str, Any]:
    return {
        "kind": "handle" if pattern.is_handler else "observe",
        "operations": list(pattern.operations),
        "files": list(pattern.files) if pattern.files is not None else None,
        "scope": pattern.scope.name.lower() if pattern.scope is not None else None,
        "class": pattern.message_class.name.lower() if pattern.message_class is not None else None,
        "state": pattern.state.name.lower() if pattern.state is not None else None,
        "rank": pattern.rank,
        "program": pattern.program,
        "absent": pattern.disposition.name.lower() if pattern.program else None,
    }


def registration_fields(each: Registration) -> dict[str, Any]:
    return {
        "peer_id": f"{each.peer_id:016x}",
        "session": each.session,
        "program": each.program,
        "files": list(each.files),
        "patterns": [pattern_fields(pattern) for pattern in each.patterns],
    }


def registration_table(listed: list[Registration]) -> "Table":
    rows = table(["member", "session", "kind", "operations", "files", "rank", "program"], right="rank")
    for each in listed:
        for pattern in each.patterns:
            fields = pattern_fields(pattern)
            shown = (
                f"{each.peer_id:016x}"[:SHORT_ID_DIGITS],
                each.session,
                fields["kind"] if not pattern.program else fields["absent"],
                ", ".join(pattern.operations) or "all",
                ", ".join(pattern.files) if pattern.files is not None else "any",
                str(pattern.rank),
                pattern.program or each.program,
            )
            rows.add_row(*map(escape_control_chars, shown))
    return rows
