"""Texts for empty states: where the reader is, and which key to press."""

from typing import TYPE_CHECKING, NamedTuple

from broadloom.apps.chat.chat_model import ChatModel
from broadloom.apps.chat.group_model import GroupModel
from broadloom.apps.chat.sanitize import clean_line

if TYPE_CHECKING:
    from broadloom.channel import Status

LOBBY = "chat/lobby"
"""The default channel."""


class StatusText(NamedTuple):
    """The connection state in words, and its color."""

    text: str
    color: str


def status_text(status: "Status") -> StatusText:
    count = len(status.neighbors)
    neighbors = f"{count} {'neighbor' if count == 1 else 'neighbors'}"
    match status.state:
        case "connected" if count:
            return StatusText(f"● connected · {neighbors}", "success")
        case "connected":
            return StatusText(f"○ no other peers · {neighbors}", "warning")
        case "left" | "leaving":
            return StatusText("× disconnected", "error")
        case "discovering":
            return StatusText(f"◌ discovering · {neighbors}", "warning")
    return StatusText(f"◌ joining · {neighbors}", "warning")


def placeholder_text(chat: ChatModel, channel: str, *, is_alone: bool) -> str:
    """Shown instead of a conversation; empty if there is one."""
    group_model = chat.shown
    if group_model is not None and group_model.tree is not None and len(group_model.tree):
        return ""
    lines: list[str] = []
    if group_model is not None and (group_model.is_loading or group_model.catching_up is not None):
        return "Loading history …"
    if group_model is not None:
        lines = [f"No messages in “{group_model.title}” yet. Press w to write one."]
    elif chat.group_models:
        lines = ["Select a group: Tab goes to the list, Enter opens one."]
    elif chat.invitations:
        lines = [
            "You are in no group yet.",
            "You have invitations: press i to join or decline, or n to create a group.",
        ]
    else:
        lines = ["No groups yet: press n to create the first one.", "Everyone on this channel will be invited to it."]
    if is_alone:
        channel_option = "" if channel == LOBBY else f" --channel {clean_line(channel)}"
        lines += [
            "",
            "No other peers. On this machine, in another terminal:",
            f"    broadloom chat NAME{channel_option}",
            "On another machine, with the address of this one:",
            f"    broadloom chat NAME{channel_option} --bootstrap ADDRESS",
        ]
    return "\n".join([*lines, "", "? shows all keys."])


def conversation_summary(group_model: GroupModel) -> str:
    """The line below the title: history transfer, missing messages, description."""
    parts: list[str] = []
    if group_model.catching_up is not None:
        received, remaining = group_model.catching_up
        total = max(1, received + remaining)
        done = 20 * received // total
        parts.append(f"catching up {'█' * done}{'░' * (20 - done)} {received:,} of {received + remaining:,}")
    if group_model.is_loading:
        parts.append("reading the store: {:,} of {:,}".format(*group_model.loaded))
    if group_model.unavailable:
        parts.append(f"{group_model.unavailable:,} older messages are no longer available")
    if group_model.tree is not None and group_model.tree.dropped_count:
        parts.append(f"the first {group_model.tree.dropped_count:,} messages are in the store only")
    return " · ".join(parts) or group_model.about
