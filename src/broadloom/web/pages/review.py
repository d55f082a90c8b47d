"""The page of the design review: a model that all look at together. The component is in `static/review.js`."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from broadloom.apps.conference import Meeting, Point, Pointed, ViewMoved, Viewpoint
from broadloom.apps.conference.minutes import as_html
from broadloom.apps.conference.participation import MeetingEvent
from broadloom.errors import BroadloomError, NotConnectedError
from broadloom.web.pages.layout import button, call_soon, empty_state, guarded, heading, paragraph, section
from broadloom.web.review_seats import NAME_MAX, ReviewSeats
from broadloom.web.sources import Sources

UPDATE_S = 0.05
"""Changes within this time are sent to the browser together."""
NOTES_MAX = 500
"""The newest notes, measurements and polls on the page."""
HEAD = '<link rel="stylesheet" href="/static/review.css">'


def build(sources: Sources) -> None:
    ui.add_head_html(HEAD)
    seats = sources.review_seats
    if not seats.is_available:
        heading("Review")
        empty_state("No channel is joined here.", "Start `broadloom demo` or join one: `broadloom web review/wing-7`.")
        return
    ReviewPage(seats)


class ReviewView(Element, component="../static/review.js"):
    """Calls of the component: `receive`, `moveTo`, `pointAt`."""


class ReviewPage:
    def __init__(self, seats: ReviewSeats) -> None:
        self._seats = seats
        self._window = ui.context.client.id
        self._meeting: Meeting | None = None
        self._acts: dict[str, Callable[..., Any]] = {}
        """What a browser may ask for."""
        self._timer: asyncio.TimerHandle | None = None
        self._following: asyncio.Task[None] | None = None
        ui.context.client.on_delete(self._leave)
        heading("Review", "A model that everyone sees from the leader's viewpoint. There is no audio and no video.")
        self._content = ui.element("div")
        self._show_form()

    def _show_form(self, name: str = "") -> None:
        seats = self._seats
        self._content.clear()
        with self._content, section("Join the review").classes("bl-review-join"):
            self._name = ui.input("Your name", value=name).props(f"outlined dense stack-label maxlength={NAME_MAX}")
            self._name.on("keydown.enter", guarded(self._join))
            self._name.set_visibility(seats.asks_for_name)
            button("Join", self._join, "join-review", is_primary=True)
            paragraph(
                "Open this page in a second window to be a second participant.", "bl-quiet bl-small"
            ).set_visibility(seats.asks_for_name)

    async def _join(self) -> None:
        name = str(self._name.value or "").strip()
        if self._meeting is not None or (self._seats.asks_for_name and not name):
            return
        self._meeting = meeting = await self._seats.join(self._window, name)
        self._content.clear()
        with self._content:
            self._view = ReviewView()
            self._view.on("ready", guarded(self._update))
            self._view.on("act", self._on_act)
            self._following = asyncio.ensure_future(guarded(partial(self._follow, meeting, name))())
        self._acts = {
            "state": self._update,
            "request_floor": meeting.request_floor,
            "release_floor": meeting.release_floor,
            "take_back": meeting.take_back,
            "hand_over": lambda to: meeting.hand_over(int(to, 16)),
            "raise_hand": meeting.raise_hand,
            "show": self._show,
            "minutes": self._send_minutes,
            "point": meeting.point,
            "load": meeting.load,
            "unload": meeting.unload,
            "measure": meeting.measure,
            "annotate": meeting.annotate,
            "open_poll": meeting.open_poll,
            "vote": meeting.vote,
            "close_poll": meeting.close_poll,
        }

    async def _follow(self, meeting: Meeting, name: str) -> None:
        """If the meeting cannot continue here, the page shows why, and joins it again."""
        try:
            async for event in meeting.events():
                self._on_event(event)
            raise NotConnectedError(f"{meeting.channel.name}: the channel was left")
        except BroadloomError as problem:
            self._meeting = None
            self._show_form(name)
            if not isinstance(problem, NotConnectedError):
                with self._content:
                    call_soon(self._join_again)
            raise

    async def _join_again(self) -> None:
        await self._seats.leave(self._window)
        await self._join()

    async def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._following is not None:
            self._following.cancel()
        await self._seats.leave(self._window)

    # -- from the browser

    async def _on_act(self, event: GenericEventArguments) -> None:
        values = dict(event.args)
        act = self._acts[values.pop("verb")]
        with self._content:
            await guarded(lambda: act(**values))()

    async def _show(self, eye: Point, target: Point) -> None:
        if self._meeting is not None and self._meeting.is_leader:  # else the browser does not know it yet
            await self._meeting.show(Viewpoint(eye, target))

    def _send_minutes(self) -> None:
        if self._meeting is not None:
            document = "".join(as_html(self._meeting.state, self._meeting.channel.name))
            self._view.run_method("save", document)

    # -- to the browser

    def _on_event(self, event: MeetingEvent) -> None:
        match event:
            case ViewMoved(viewpoint):
                self._view.run_method("moveTo", viewpoint._asdict())
            case Pointed(peer_id, at):
                self._view.run_method("pointAt", f"{peer_id:x}", at)
            case _ if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(UPDATE_S, self._update)

    def _update(self) -> None:
        self._timer = None
        if self._meeting is not None:
            self._view.run_method("receive", snapshot(self._meeting))
            if self._meeting.leader == self._meeting.me and not self._meeting.is_leader:
                self._timer = asyncio.get_running_loop().call_later(UPDATE_S, self._update)


def snapshot(meeting: Meeting) -> dict[str, Any]:
    """The meeting as the page shows it."""
    state, view = meeting.state, meeting.shared_viewpoint
    notes = dict(list(state.notes.items())[-NOTES_MAX:])
    return {
        "me": f"{meeting.me:x}",
        "leader": f"{meeting.leader:x}" if meeting.leader is not None else "",
        "isLeader": meeting.is_leader,
        "canTakeBack": state.floor.lender == meeting.me and not meeting.is_leader,
        "view": view._asdict() if view is not None else None,
        "people": [
            {
                "id": f"{each.peer_id:x}",
                "name": each.name,
                "isMe": each.is_me,
                "hand": each.has_hand_up,
                "place": each.queue_place,
            }
            for each in meeting.participants()
        ],
        "parts": list(state.parts),
        "notes": [
            {
                "id": note.id,
                "author": f"{note.author:x}",
                "name": meeting.name_of(note.author),
                "part": note.part,
                "text": note.text,
                "at": note.at,
                "atMs": note.at_ms,
                "replyTo": note.reply_to if note.reply_to in notes else None,
            }
            for note in notes.values()
        ],
        "measurements": [
            {"start": each.start, "end": each.end, "distance": each.distance}
            for each in list(state.measurements.values())[-NOTES_MAX:]
        ],
        "polls": [
            {
                "id": poll.id,
                "author": f"{poll.author:x}",
                "question": poll.question,
                "options": poll.options,
                "counts": poll.counts,
                "mine": poll.votes.get(state.voter(meeting.me) or ""),
                "isOpen": poll.is_open,
            }
            for poll in list(state.polls.values())[-NOTES_MAX:]
        ],
        "agenda": state.agenda,
    }
