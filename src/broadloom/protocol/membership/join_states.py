"""How a peer finds, joins and leaves a channel, as two literal state tables.

`LIFECYCLE` drives `Peer`. `DISCOVERY` refines its first state and drives `Discovery`. Three rules hold for both:
an event without a row for the current state is ignored; the next state is entered before the action runs, so an action
may raise the next event; every action is a private method of the driven object. The section "Joining" of
docs/protocol/README.md is generated from these tables by `render`.
"""

from collections.abc import Callable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from broadloom.protocol.events import PeerState


class PeerEvent(Enum):
    CHANNEL_CREATED = "no other peer is on the channel"
    POSITION_ADOPTED = "a first neighbor is linked and its digest gave the starting position"
    LINKS_SUFFICE = "a neighbor is linked; in a full mesh, every member is, or no further link is available now"
    LAST_LINK_LOST = "no link is left"
    LEAVE = "the application leaves, or the channel is closed"
    LEAVE_FINISHED = "every link is closed"


class DiscoveryState(Enum):
    IDLE = "not needed: not started, linked, or creator of the channel"
    SEARCHING = "probing the bootstrap hosts, one depth of the port order after the other"
    PAUSED = "the search found no member; the next one starts after a pause"
    REQUESTING = "a join request is under way"
    ACCEPTED = "a member accepted the request; links are on their way"
    BACKING_OFF = "the request failed or brought no link; another member is asked after a pause"


class DiscoveryEvent(Enum):
    START = "the peer starts, or has lost its last link before it was connected"
    DEPTH_PROBED = "all hosts answered or failed at this depth, or took too long"
    EXHAUSTED = "every depth was probed and every probe has ended"
    MAY_CREATE = "no known seeker with a lower id can create the channel"
    MUST_WAIT = "another seeker creates the channel, or this peer is not on a bootstrap host"
    REJECTED = "a member is there and does not admit this peer"
    MEMBER_FOUND = "a connected peer is known"
    NO_MEMBER_LEFT = "no known member is left to ask"
    JOIN_ACCEPTED = "the member sends links: its own, or through random walks"
    JOIN_FAILED = "the member rejected the request or did not answer"
    TIMED_OUT = "the pause or the join timeout is over"
    SUPERSEDED = "the pause or the request ended, but the peer has a link by now or leaves"


S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Transition(NamedTuple, Generic[S, E]):
    state: S
    event: E
    action: str | None
    next_state: S


_P, _PE = PeerState, PeerEvent
_D, _DE = DiscoveryState, DiscoveryEvent

LIFECYCLE: tuple[Transition[PeerState, PeerEvent], ...] = (
    Transition(_P.DISCOVERING, _PE.CHANNEL_CREATED, "begin_membership", _P.CONNECTED),
    Transition(_P.DISCOVERING, _PE.POSITION_ADOPTED, "fill_slots", _P.JOINING),
    Transition(_P.DISCOVERING, _PE.LAST_LINK_LOST, "restart_discovery", _P.DISCOVERING),
    Transition(_P.DISCOVERING, _PE.LEAVE, "stop_filling_slots", _P.LEAVING),
    Transition(_P.JOINING, _PE.LINKS_SUFFICE, "begin_membership", _P.CONNECTED),
    Transition(_P.JOINING, _PE.LAST_LINK_LOST, "restart_discovery", _P.DISCOVERING),
    Transition(_P.JOINING, _PE.LEAVE, "stop_filling_slots", _P.LEAVING),
    Transition(_P.CONNECTED, _PE.LEAVE, "stop_filling_slots", _P.LEAVING),
    Transition(_P.LEAVING, _PE.LEAVE_FINISHED, None, _P.LEFT),
)

DISCOVERY: tuple[Transition[DiscoveryState, DiscoveryEvent], ...] = (
    Transition(_D.IDLE, _DE.START, "start_search", _D.SEARCHING),
    Transition(_D.IDLE, _DE.MEMBER_FOUND, "request_join", _D.REQUESTING),
    Transition(_D.SEARCHING, _DE.START, "start_search", _D.SEARCHING),
    Transition(_D.SEARCHING, _DE.DEPTH_PROBED, "probe_next_depth", _D.SEARCHING),
    Transition(_D.SEARCHING, _DE.MEMBER_FOUND, "request_join", _D.REQUESTING),
    Transition(_D.SEARCHING, _DE.EXHAUSTED, "elect_creator", _D.SEARCHING),
    Transition(_D.SEARCHING, _DE.MAY_CREATE, "create_channel", _D.IDLE),
    Transition(_D.SEARCHING, _DE.MUST_WAIT, "pause", _D.PAUSED),
    Transition(_D.SEARCHING, _DE.REJECTED, "report_rejection", _D.PAUSED),
    Transition(_D.PAUSED, _DE.START, "start_search", _D.SEARCHING),
    Transition(_D.PAUSED, _DE.MEMBER_FOUND, "request_join", _D.REQUESTING),
    Transition(_D.PAUSED, _DE.TIMED_OUT, "search_again", _D.SEARCHING),
    Transition(_D.PAUSED, _DE.SUPERSEDED, None, _D.IDLE),
    Transition(_D.REQUESTING, _DE.START, "start_search", _D.REQUESTING),
    Transition(_D.REQUESTING, _DE.JOIN_ACCEPTED, "await_links", _D.ACCEPTED),
    Transition(_D.REQUESTING, _DE.JOIN_FAILED, "pause", _D.BACKING_OFF),
    Transition(_D.REQUESTING, _DE.SUPERSEDED, None, _D.IDLE),
    Transition(_D.ACCEPTED, _DE.START, "start_search", _D.ACCEPTED),
    Transition(_D.ACCEPTED, _DE.TIMED_OUT, "choose_member", _D.BACKING_OFF),
    Transition(_D.ACCEPTED, _DE.SUPERSEDED, None, _D.IDLE),
    Transition(_D.BACKING_OFF, _DE.START, "start_search", _D.SEARCHING),
    Transition(_D.BACKING_OFF, _DE.MEMBER_FOUND, "request_join", _D.REQUESTING),
    Transition(_D.BACKING_OFF, _DE.TIMED_OUT, "choose_member", _D.BACKING_OFF),
    Transition(_D.BACKING_OFF, _DE.NO_MEMBER_LEFT, "start_search", _D.SEARCHING),
    Transition(_D.BACKING_OFF, _DE.SUPERSEDED, None, _D.IDLE),
)


def bind(table: tuple[Transition[S, E], ...], owner: object) -> dict[tuple[S, E], tuple[Callable[[], None] | None, S]]:
    """The table with its actions resolved to the methods of one object."""
    return {
        (row.state, row.event): (getattr(owner, f"_{row.action}") if row.action else None, row.next_state)
        for row in table
    }


def render(table: tuple[Transition[S, E], ...]) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {table[0].state.name}"]
    for row in table:
        action = f" / {row.action}" if row.action else ""
        lines.append(f"    {row.state.name} --> {row.next_state.name}: {row.event.name}{action}")
    return "\n".join(lines)


def render_meanings(names: type[Enum]) -> str:
    """The members of an enumeration and their meanings, as the rows of a Markdown table."""
    return "\n".join(f"| `{each.name}` | {each.value} |" for each in names)
