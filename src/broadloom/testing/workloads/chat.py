"""Chat in `broadloom.groups`: peers ask questions, reply, and reply to replies."""

import tomllib
from collections import deque
from contextlib import suppress
from importlib import resources
from random import Random
from typing import TYPE_CHECKING

from broadloom.groups import Group, Groups, RetentionPolicy, group_id_from_name

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.groups import GroupMessage

RETAINED_MESSAGES = 400
"""History per group: enough for a late joiner to see recent messages, bounded in a long run."""
RECENT_MAX = 30
"""Recent messages that may get replies and are not repeated."""
REPLY_FRACTION = 0.7
SECOND_GROUP_EVERY = 4
"""One peer in this many is also in a second group."""

_TEXTS = tomllib.loads((resources.files("broadloom.testing.workloads") / "chat.toml").read_text(encoding="utf-8"))
THREADS: dict[str, dict[str, list[str]]] = _TEXTS["groups"]
"""By group: questions, and replies to each."""
FOLLOW_UPS: list[str] = _TEXTS["follow_ups"]
_SCRIPTED = {
    *FOLLOW_UPS,
    *(line for thread in THREADS.values() for question, answers in thread.items() for line in (question, *answers)),
}
"""All texts of the workload. A message with any other text is from a person."""


def group_titles() -> dict[int, str]:
    """Return the titles of the groups by id."""
    return {group_id_from_name(title): title for title in THREADS}


class ChatWorkload:
    """The chat of one peer."""

    def __init__(
        self,
        channel: "Channel",
        name: str,
        number: int,
        random: Random,
    ) -> None:
        self.groups = Groups(channel, name)
        self._number = number
        self._random = random
        self._groups: list[Group] = []
        self._recent: dict[int, deque[GroupMessage]] = {}

    async def join(self) -> None:
        all_titles = list(THREADS)
        chosen = [all_titles[self._number % len(all_titles)]]
        if self._number % SECOND_GROUP_EVERY == 0:
            chosen.append(all_titles[(self._number + 1) % len(all_titles)])
        for title in chosen:
            # A well-known name makes all peers find the same group.
            group = await self.groups.create(
                title, retention=RetentionPolicy(messages_max=RETAINED_MESSAGES), well_known_name=title
            )
            self._groups.append(group)
            self._recent[group.id] = deque(maxlen=RECENT_MAX)

    def read_messages(self) -> None:
        """Take new messages from the groups. Call it regularly."""
        for group in self._groups:
            while (message := group.receive_nowait()) is not None:
                with suppress(UnicodeDecodeError):  # not a text message
                    if message.text:
                        self._recent[group.id].append(message)

    async def post(self) -> None:
        """Send one message: a reply, or a question that was not asked recently."""
        self.read_messages()
        group = self._random.choice(self._groups)
        recent, me = self._recent[group.id], self.groups.me.id
        others = [each for each in recent if each.author != me]
        recent_texts = {each.text for each in recent}
        new = [question for question in THREADS[group.description] if question not in recent_texts]
        if others and (not new or self._random.random() < REPLY_FRACTION):
            parent = self._random.choice(_unanswered(others) or others)
            answered = {each.text for each in recent if each.parent_id == parent.id}
            replies = [each for each in THREADS[group.description].get(parent.text, ()) if each not in answered]
            recent.append(await group.send_text(self._random.choice(replies or FOLLOW_UPS), reply_to=parent))
        else:
            recent.append(await group.send_text(self._random.choice(new or list(THREADS[group.description]))))


def _unanswered(messages: "list[GroupMessage]") -> "list[GroupMessage]":
    """Return the messages without a reply; only those from people, if there are any."""
    answered = {each.parent_id for each in messages}
    left = [each for each in messages if each.id not in answered]
    return [each for each in left if each.text not in _SCRIPTED] or left
