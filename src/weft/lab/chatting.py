"""Conversations of the lab's peers, through `weft.groups`: somebody asks, others answer, and answers are answered."""

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from weft.groups import Group, Keep, group_id, groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.channel import Channel
    from weft.fabric.events import Message as ChannelMessage
    from weft.groups import Message

KEPT_MESSAGES = 400
"""Of each group's history: a newcomer sees what was said lately, and a lab that runs for hours does not grow."""
RECENT_MAX = 12
"""Lines that somebody may still answer."""
ANSWER_SHARE = 0.7
SECOND_GROUP_EVERY = 3
"""One member of so many is in a second group too."""

THREADS: dict[str, dict[str, tuple[str, ...]]] = {
    "Harbour watch": {
        "Who has seen the ferry from the islands?": (
            "It passed the lighthouse ten minutes ago.",
            "Still outside, waiting for the pilot.",
            "Not yet, the fog is thick here.",
        ),
        "Which berth is free tonight?": ("Number four, until six in the morning.", "Ask the office, four and seven."),
        "How is the wind at the outer pier?": (
            "South-west, five, and rising.",
            "Gusts of seven. Double your lines.",
            "Quiet on our side.",
        ),
        "Two containers are on the wrong quay.": ("Which numbers?", "I move them after lunch.", "Again?"),
    },
    "Kitchen table": {
        "What shall we cook for twelve on Friday?": (
            "Lentil soup, it keeps warm.",
            "Paella. I have the large pan.",
            "Whatever it is, two of us eat no fish.",
        ),
        "Does anybody have a sourdough to share?": ("Yes, fed this morning.", "Mine died in August.", "Come at five."),
        "The oven is ten degrees too hot.": (
            "I know, turn the tray.",
            "Then bread it is.",
            "I have a thermometer, I bring it.",
        ),
        "How long do beans really need?": ("Overnight, then an hour.", "With salt, longer.", "Until they are done."),
    },
    "Night trains": {
        "Is the sleeper to the coast running?": (
            "Yes, from platform nine tonight.",
            "Forty minutes late at the border.",
            "They took off one carriage.",
        ),
        "Window or corridor?": ("Window, always.", "Corridor, you sleep better.", "Top bunk."),
        "Who can pick me up at 5:40?": ("I can, if there is coffee.", "Take the first tram, it is faster."),
        "They have changed the timetable again.": ("From when?", "Only on Sundays.", "Where did you read that?"),
    },
}
FOLLOW_UPS = ("Thank you!", "Good to know.", "Are you sure?", "Same here.", "I will have a look.", "Let us know.")


def titles() -> dict[int, str]:
    """Each group's id, and what people call it."""
    return {group_id(title): title for title in THREADS}


class Chatting:
    """One peer's part in them. `on_other` gets what is no group's."""

    def __init__(
        self, channel: "Channel", name: str, number: int, on_other: "Callable[[ChannelMessage], None]", chance: Random
    ) -> None:
        self.here = groups(channel, name, on_other=on_other)
        self._number = number
        self._chance = chance
        self._groups: list[Group] = []
        self._recent: dict[int, deque[Message]] = {}

    async def join(self) -> None:
        all_titles = list(THREADS)
        chosen = [all_titles[self._number % len(all_titles)]]
        if self._number % SECOND_GROUP_EVERY == 0:
            chosen.append(all_titles[(self._number + 1) % len(all_titles)])
        for title in chosen:
            # By the same text all find the same group, whoever came first.
            group = await self.here.create(title, keep=Keep(messages=KEPT_MESSAGES), identity=title)
            self._groups.append(group)
            self._recent[group.id] = deque(maxlen=RECENT_MAX)

    def read(self) -> None:
        """Take in what was said; to be called now and then."""
        for group in self._groups:
            while (message := group.acquire()) is not None:
                self._recent[group.id].append(message)

    async def say(self) -> None:
        """One line: an answer to somebody else, or something new."""
        self.read()
        group = self._chance.choice(self._groups)
        me = self.here.me.id
        others = [each for each in self._recent[group.id] if each.author != me]
        if others and self._chance.random() < ANSWER_SHARE:
            heard = self._chance.choice(others)
            await group.send_text(self._answer(group.description, heard.text), reply_to=heard)
        else:
            await group.send_text(self._chance.choice(list(THREADS[group.description])))

    def _answer(self, title: str, heard: str) -> str:
        return self._chance.choice(THREADS[title].get(heard, FOLLOW_UPS))
