"""What the chat says when there is nothing to show: where one is, and the key that leads on."""

from typing import TYPE_CHECKING, NamedTuple

from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.group_model import GroupModel
from broadloom.apps.chat.sanitize import clean_line

if TYPE_CHECKING:
    from broadloom.channel import Status

LOBBY = "chat/lobby"
"""The channel of a chat that was not told another."""


class StatusText(NamedTuple):
    """How this peer stands to the channel, in words, and in a colour of the theme."""

    text: str
    color: str


def status_text(status: "Status") -> StatusText:
    count = len(status.neighbors)
    neighbors = f"{count} {'neighbour' if count == 1 else 'neighbours'}"
    match status.state:
        case "connected" if count:
            return StatusText(f"● connected · {neighbors}", "success")
        case "connected":
            return StatusText(f"○ alone · {neighbors}", "warning")
        case "left" | "leaving":
            return StatusText("× the channel was closed", "error")
        case "discovering":
            return StatusText(f"◌ seeking · {neighbors}", "warning")
    return StatusText(f"◌ connecting · {neighbors}", "warning")


def placeholder_text(chat: ChatModel, channel: str, *, is_alone: bool) -> str:
    """In place of a conversation; empty if there is one."""
    group_model = chat.shown
    if group_model is not None and group_model.tree is not None and len(group_model.tree):
        return ""
    lines: list[str] = []
    if group_model is not None and (group_model.is_loading or group_model.catching_up is not None):
        return "The history is coming in …"
    if group_model is not None:
        lines = [f"Nothing was said in “{group_model.title}” yet: press w and write."]
    elif chat.group_models:
        lines = ["Choose a group: Tab goes to the list, Enter opens one."]
    elif chat.invitations:
        lines = [
            "You are in no group yet.",
            "Others have invited you: press i to join or reject, or n to make a group.",
        ]
    else:
        lines = ["No groups yet: press n to make the first one.", "All who are on this channel will be invited to it."]
    if is_alone:
        channel_option = "" if channel == LOBBY else f" --channel {clean_line(channel)}"
        lines += [
            "",
            "Nobody else is here. On this machine, in another terminal:",
            f"    broadloom chat SOMEBODY{channel_option}",
            "On another machine, with the address of this one:",
            f"    broadloom chat SOMEBODY{channel_option} --portal ADDRESS",
        ]
    return "\n".join([*lines, "", "? shows all keys."])


def conversation_summary(group_model: GroupModel) -> str:
    """The line below the title: what comes in, what is lacking, what it is about."""
    parts: list[str] = []
    if group_model.catching_up is not None:
        received, remaining = group_model.catching_up
        total = max(1, received + remaining)
        done = 20 * received // total
        parts.append(f"catching up {'█' * done}{'░' * (20 - done)} {received:,} of {received + remaining:,}")
    if group_model.is_loading:
        parts.append("reading the store: {:,} of {:,}".format(*group_model.loaded))
    if group_model.unavailable:
        parts.append(f"{group_model.unavailable:,} older messages cannot be had any more")
    if group_model.tree is not None and group_model.tree.dropped_count:
        parts.append(f"the first {group_model.tree.dropped_count:,} messages are in the store only")
    return " · ".join(parts) or group_model.about
