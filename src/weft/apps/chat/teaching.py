"""What the chat says when there is nothing to show: where one is, and the key that leads on."""

from typing import TYPE_CHECKING, NamedTuple

from weft.apps.chat.safe import clean_line
from weft.apps.chat.talk import Talk
from weft.apps.chat.talks import Talks

if TYPE_CHECKING:
    from weft.channel import Status

LOBBY = "chat/lobby"
"""The channel of a chat that was not told another."""


class State(NamedTuple):
    """How this peer stands to the channel, in words, and in a colour of the theme."""

    text: str
    colour: str


def state_of(status: "Status") -> State:
    count = len(status.neighbours)
    company = f"{count} {'neighbour' if count == 1 else 'neighbours'}"
    match status.state:
        case "connected" if count:
            return State(f"● connected · {company}", "success")
        case "connected":
            return State(f"○ alone · {company}", "warning")
        case "left" | "leaving":
            return State("× the channel was closed", "error")
        case "seeking":
            return State(f"◌ seeking · {company}", "warning")
    return State(f"◌ connecting · {company}", "warning")


def when_empty(talks: Talks, channel: str, *, is_alone: bool) -> str:
    """In place of a conversation; empty if there is one."""
    talk = talks.shown
    if talk is not None and talk.tree is not None and len(talk.tree):
        return ""
    lines: list[str] = []
    if talk is not None and (talk.is_loading or talk.catching_up is not None):
        return "The history is coming in …"
    if talk is not None:
        lines = [f"Nothing was said in “{talk.title}” yet: press w and write."]
    elif talks.talks:
        lines = ["Choose a group: Tab goes to the list, Enter opens one."]
    elif talks.offers:
        lines = [
            "You are in no group yet.",
            "Others have invited you: press i to join or reject, or n to make a group.",
        ]
    else:
        lines = ["No groups yet: press n to make the first one.", "All who are on this channel will be invited to it."]
    if is_alone:
        named = "" if channel == LOBBY else f" --channel {clean_line(channel)}"
        lines += [
            "",
            "Nobody else is here. On this machine, in another terminal:",
            f"    weft chat SOMEBODY{named}",
            "On another machine, with the address of this one:",
            f"    weft chat SOMEBODY{named} --portal ADDRESS",
        ]
    return "\n".join([*lines, "", "? shows all keys."])


def about_conversation(talk: Talk) -> str:
    """The line below the title: what comes in, what is lacking, what it is about."""
    told: list[str] = []
    if talk.catching_up is not None:
        received, remaining = talk.catching_up
        total = max(1, received + remaining)
        done = 20 * received // total
        told.append(f"catching up {'█' * done}{'░' * (20 - done)} {received:,} of {received + remaining:,}")
    if talk.is_loading:
        told.append("reading the store: {:,} of {:,}".format(*talk.loaded))
    if talk.unavailable:
        told.append(f"{talk.unavailable:,} older messages cannot be had any more")
    if talk.tree is not None and talk.tree.dropped:
        told.append(f"the first {talk.tree.dropped:,} messages are in the store only")
    return " · ".join(told) or talk.about
