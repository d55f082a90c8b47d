"""What happens in a meeting, in sentences: for a terminal and for a log on a page."""

from math import dist

from broadloom.apps.conference.actions import (
    Annotate,
    Arrive,
    ClosePoll,
    HandOver,
    Leave,
    LoadPart,
    Measure,
    OpenPoll,
    Publish,
    RaiseHand,
    ReleaseFloor,
    ReportGone,
    RequestFloor,
    SetAgenda,
    TakeBack,
    UnloadPart,
    Vote,
    item_id,
)
from broadloom.apps.conference.core import Done
from broadloom.apps.conference.meeting import Meeting


def describe(done: Done, meeting: Meeting) -> str | None:
    """A sentence on an action that was just done; None if it changed nothing that matters to people."""
    if not done.is_permitted:
        return None
    text = _describe(done, meeting)
    return f"{meeting.name_of(done.author)} {text}" if text else None


def _describe(done: Done, meeting: Meeting) -> str | None:
    state, item = meeting.state, item_id(done.author, done.sent.number)
    match done.sent.action:
        case Arrive():
            return "joins"
        case Leave():
            return "leaves"
        case RaiseHand(is_up):
            return "raises a hand" if is_up else "lowers the hand"
        case RequestFloor():
            return "leads" if state.floor.holder == done.author else "asks for the floor"
        case ReleaseFloor():
            return "does not lead any longer" + _next_leader(meeting) if done.was_leader else "leaves the queue"
        case HandOver(to):
            return f"hands the floor to {meeting.name_of(to)}"
        case TakeBack():
            return "takes the floor back"
        case ReportGone(holder):
            return f"reports: {meeting.name_of(holder)} is gone" + _next_leader(meeting)
        case LoadPart(part):
            return f"loads {part}"
        case UnloadPart(part):
            return f"unloads {part}"
        case Measure(part, start, end):
            return f"measures {dist(start, end):,.1f} at {part}"
        case Annotate(text=text) if (note := state.notes.get(item)) is not None:
            parent = state.notes.get(note.reply_to) if note.reply_to else None
            reply = f" (reply to {list(state.notes).index(parent.id) + 1})" if parent is not None else ""
            return f"notes at {note.part} [{list(state.notes).index(item) + 1}]{reply}: {text}"
        case Publish(kind, part, values):
            listed = ", ".join(f"{name} {value}" for name, value in values.items())
            return f"publishes at {part}: {kind}: {listed}"
        case OpenPoll(question, options) if item in state.polls:
            listed = ", ".join(f"{number} {option}" for number, option in enumerate(options, 1))
            return f"asks [{list(state.polls).index(item) + 1}]: {question} ({listed})"
        case Vote(poll, option) if poll in state.polls:
            return f"votes [{list(state.polls).index(poll) + 1}]: {state.polls[poll].options[option]}"
        case ClosePoll(poll) if poll in state.polls:
            found = state.polls[poll]
            counts = ", ".join(f"{name} {count}" for name, count in zip(found.options, found.counts, strict=True))
            return f"closes [{list(state.polls).index(poll) + 1}]: {counts}"
        case SetAgenda(items):
            return f"sets the agenda: {'; '.join(items)}"
    return None


def _next_leader(meeting: Meeting) -> str:
    return f"; {meeting.name_of(meeting.leader)} leads" if meeting.leader is not None else ""
