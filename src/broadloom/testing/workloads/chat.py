"""Chat in `broadloom.groups`: peers ask questions, reply, and reply to replies."""

from collections import deque
from contextlib import suppress
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

THREADS: dict[str, dict[str, tuple[str, ...]]] = {
    "Harbor watch": {
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
        "Has the crane been repaired?": ("Since noon, slowly.", "They wait for a part.", "Use the small one."),
        "When does the tide turn?": ("At ten past four.", "Four, but the wind holds it back.", "Ask the pilots."),
        "Somebody left the gate at pier two open.": ("That was us, sorry.", "Closed it.", "Since when?"),
        "Is there still diesel at the pump?": ("Half a tank.", "The lorry comes tomorrow.", "None since yesterday."),
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
        "Who took the big knife?": ("It is in the drawer, sharpened.", "Not me.", "I bring it back tonight."),
        "Can rhubarb be frozen?": ("Yes, in pieces, raw.", "Better make jam.", "I still have some of last year."),
        "We are out of coffee.": ("That cannot be.", "On my way.", "There is tea."),
        "Which flour for the pancakes?": ("Buckwheat, half of it.", "Plain will do.", "Whatever is open."),
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
        "Is there a dining car on the late one?": ("Until the border.", "Bring your own.", "Soup only."),
        "How cold do the couchettes get?": ("Take a second blanket.", "Too hot, always.", "Depends on the guard."),
        "Does anybody know the stop after the tunnel?": ("It has none.", "Only if you ring.", "Two minutes, be quick."),
        "Can one take a bicycle?": ("In the last carriage.", "If there is room.", "Folded, yes."),
    },
}
FOLLOW_UPS = (
    "Thank you!",
    "Good to know.",
    "Are you sure?",
    "Same here.",
    "I will have a look.",
    "Let us know.",
    "That was last week.",
    "I can help with that.",
    "Where did you hear that?",
    "As always.",
    "Not any more.",
    "See you there.",
    "I had not heard that.",
    "Could be worse.",
)

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
