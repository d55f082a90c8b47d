"""Minutes: the state of a meeting as a document, in Markdown, HTML or JSON.

The same lines for both formats. Texts are escaped for the format, so nothing that a participant wrote is taken for
markup; control characters are spelled out.
"""

import html
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple

from broadloom.apps.chat.export import DEPTH_MAX, PAGE_HEAD, escape_control_chars, escape_markdown
from broadloom.apps.conference.state import MeetingState, Note

TIME_MS_MAX = 253_402_300_799_000
"""The last second of the year 9999, beyond which nothing can be written as a date."""


class Line(NamedTuple):
    """An item of a list, or, without a depth, a heading."""

    text: str
    lead: str = ""
    """Comes first, emphasized: who or what."""
    depth: int | None = None


def minutes_of(state: MeetingState, title: str) -> Iterator[Line]:
    """The lines of the minutes. Sections without content are left out."""
    yield Line(f"Minutes of {title}")
    yield Line("Participants")
    for record in state.participants.values():
        left = f" to {_time(record.left_ms)}" if record.left_ms is not None else ""
        yield Line(f"from {_time(record.arrived_ms)}{left}", record.name, 0)
    if state.agenda:
        yield Line("Agenda")
        yield from (Line(item, f"{number}.", 0) for number, item in enumerate(state.agenda, 1))
    if state.polls:
        yield Line("Polls")
    for poll in state.polls.values():
        yield Line("" if poll.is_open else "closed", poll.question, 0)
        for option, count in zip(poll.options, poll.counts, strict=True):
            yield Line(f"{count} {'vote' if count == 1 else 'votes'}", option, 1)
    if state.notes:
        yield Line("Annotations")
        yield from _threads(state)
    if state.measurements:
        yield Line("Measurements")
    for measured in state.measurements.values():
        who = f"{state.name_of(measured.author)}, {_time(measured.at_ms)}"
        yield Line(f"{measured.distance:,.1f} ({who})", measured.part, 0)
    if state.results:
        yield Line("Results")
    for result in state.results.values():
        values = ", ".join(f"{name} {value}" for name, value in result.values.items())
        who = f"{state.name_of(result.author)}, {_time(result.at_ms)}"
        yield Line(f"{result.kind}: {values} ({who})", result.part, 0)
    if state.parts:
        yield Line("Loaded parts")
        yield from (Line(f"by {state.name_of(author)}", part, 0) for part, author in state.parts.items())
    if state.terms:
        yield Line("Who led")
        yield from (Line(f"from {_time(term.at_ms)}", state.name_of(term.holder), 0) for term in state.terms)


def _threads(state: MeetingState) -> Iterator[Line]:
    """Threads by part, without recursion: a thread can be as deep as it wants."""
    replies = state.replies()
    parts: dict[str, list[Note]] = {}
    for note in replies.get(None, ()):
        parts.setdefault(note.part, []).append(note)
    for part, notes in parts.items():
        yield Line("", part, 0)
        waiting = [(note, 1) for note in reversed(notes)]
        while waiting:
            note, depth = waiting.pop()
            yield Line(f"{_time(note.at_ms)}: {note.text}", state.name_of(note.author), min(depth, DEPTH_MAX))
            waiting += [(reply, depth + 1) for reply in reversed(replies.get(note.id, []))]


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(min(at_ms, TIME_MS_MAX) / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def as_markdown(state: MeetingState, title: str) -> Iterator[str]:
    for number, line in enumerate(minutes_of(state, title)):
        text, lead = (
            " ".join(escape_markdown(escape_control_chars(each)).split("\n")) for each in (line.text, line.lead)
        )
        if line.depth is None:
            yield f"{'# ' if number == 0 else chr(10) + '## '}{text}\n\n"
        else:
            yield f"{'  ' * line.depth}- **{lead}** {text if line.text else ''}".rstrip() + "\n"


def as_html(state: MeetingState, title: str) -> Iterator[str]:
    """One self-contained page."""
    for number, line in enumerate(minutes_of(state, title)):
        text, lead = (html.escape(escape_control_chars(each)) for each in (line.text, line.lead))
        if number == 0:
            yield PAGE_HEAD.format(title=text)
        elif line.depth is None:
            yield f"<h2>{text}</h2>\n"
        else:
            content = f'<b dir="auto">{lead}</b> <span dir="auto">{text}</span>'
            yield f'<article style="--depth:{line.depth};--hue:210">{content}</article>\n'
    yield "</main>\n</html>\n"


def as_json(state: MeetingState, title: str) -> Iterator[str]:
    """The whole state."""
    yield json.dumps({"title": title, **asdict(state)}, ensure_ascii=False, indent=2) + "\n"


FORMATS: dict[str, Callable[[MeetingState, str], Iterator[str]]] = {
    "md": as_markdown,
    "json": as_json,
    "html": as_html,
}
