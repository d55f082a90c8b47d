"""Meetings without a server: who is there, who leads, what all look at, and what they note (docs/conferences.md).

The plan of the package:

- **One order** (`broadloom.order`, mode `available`) has everything that happened. `actions.py` are its entries,
  `state.py` is what they add up to, with `floor.py` for the leader: pure functions, equal at every member. A late
  joiner gets the entries, and so the state.
- **Core** (`core.py`): whether this program leads, and what it has to submit by itself, without IO.
- **Live messages** (`live.py`): moving viewpoints and pointers, which are broadcast and not kept.
- **Meeting** (`meeting.py`): the public object. `participation.py` runs the core over a channel.
- **Minutes** (`minutes.py`): the state as a document.
"""

from broadloom.apps.conference.actions import Point, Viewpoint
from broadloom.apps.conference.core import Done
from broadloom.apps.conference.errors import ConferenceError, FloorTimeoutError, MeetingFullError, NotLeaderError
from broadloom.apps.conference.meeting import Meeting, Participant, join
from broadloom.apps.conference.participation import MeetingEvent, ParticipantsChanged, Pointed, ViewMoved
from broadloom.apps.conference.state import Measurement, MeetingState, Note, Poll, Result
from broadloom.apps.missed import Missed

__all__ = [
    "ConferenceError",
    "Done",
    "FloorTimeoutError",
    "Measurement",
    "Meeting",
    "MeetingEvent",
    "MeetingFullError",
    "MeetingState",
    "Missed",
    "NotLeaderError",
    "Note",
    "Participant",
    "ParticipantsChanged",
    "Point",
    "Pointed",
    "Poll",
    "Result",
    "ViewMoved",
    "Viewpoint",
    "join",
]
