"""`Meeting` for synchronous programs: same names, results and exceptions, without `await`.

    with conference.sync.join("review/wing-7", name="Anna") as meeting, meeting.floor(timeout_s=10):
        meeting.show(Viewpoint((4000, 2000, 3000)))

Thread-safe: `state` is a copy, which does not change. Callbacks run in Broadloom's own thread and must not block.
"""

from contextlib import AbstractContextManager
from functools import partial

from broadloom.apps.conference.actions import Viewpoint
from broadloom.apps.conference.meeting import Meeting as AsyncMeeting
from broadloom.apps.conference.meeting import join as async_join
from broadloom.apps.conference.state import MeetingState
from broadloom.apps.session import TIMEOUT_S
from broadloom.apps.sync_session import SyncSession, entered
from broadloom.channel.options import ConnectOptions, accepts_connect_options
from broadloom.sync.bridge import Attribute, awaits, calls
from broadloom.wire import PeerId


class Meeting(SyncSession[AsyncMeeting]):
    """The synchronous twin of `conference.Meeting`."""

    _counterpart = AsyncMeeting
    name = Attribute[str]()
    me = Attribute[PeerId]()
    state = Attribute[MeetingState](copy=MeetingState.copy)
    leader = Attribute[PeerId | None](in_loop=True)
    is_leader = Attribute[bool](in_loop=True)
    is_following = Attribute[bool](in_loop=True)
    viewpoint = Attribute[Viewpoint | None](in_loop=True)
    shared_viewpoint = Attribute[Viewpoint | None](in_loop=True)
    name_of = calls(AsyncMeeting.name_of)
    participants = calls(AsyncMeeting.participants)
    raise_hand = awaits(AsyncMeeting.raise_hand)
    request_floor = awaits(AsyncMeeting.request_floor)
    release_floor = awaits(AsyncMeeting.release_floor)
    hand_over = awaits(AsyncMeeting.hand_over)
    take_back = awaits(AsyncMeeting.take_back)
    show = awaits(AsyncMeeting.show)
    detach = calls(AsyncMeeting.detach)
    attach = calls(AsyncMeeting.attach)
    point = awaits(AsyncMeeting.point)
    pointers = calls(AsyncMeeting.pointers)
    load = awaits(AsyncMeeting.load)
    unload = awaits(AsyncMeeting.unload)
    measure = awaits(AsyncMeeting.measure)
    annotate = awaits(AsyncMeeting.annotate)
    publish = awaits(AsyncMeeting.publish)
    open_poll = awaits(AsyncMeeting.open_poll)
    vote = awaits(AsyncMeeting.vote)
    close_poll = awaits(AsyncMeeting.close_poll)
    set_agenda = awaits(AsyncMeeting.set_agenda)

    def floor(self, timeout_s: float = TIMEOUT_S) -> "AbstractContextManager[Meeting]":
        """Lead while the block runs. Raises `FloorTimeoutError`."""
        return entered(partial(self._wrapped.floor, timeout_s), lambda _: self)


@accepts_connect_options
def join(channel: str, options: ConnectOptions) -> "AbstractContextManager[Meeting]":
    """Join the meeting of a channel: `with conference.sync.join("review/wing-7", name="Anna") as meeting`."""
    return entered(partial(async_join, channel, options=options), Meeting._of)
