"""How people are called on the screen. Anybody may choose any name: those of the same name are told apart by ids."""

from weft.apps.chat.safe import clean_line
from weft.groups import Member, MemberId, Message

DIGITS = 4
"""Of the id, behind a name that several have."""


class Names:
    """Of one group."""

    def __init__(self, me: Member) -> None:
        self._names: dict[MemberId, tuple[str, str]] = {}
        """By id: the name as it came, and as it is shown."""
        self._bearers: dict[str, dict[MemberId, None]] = {}
        self._colours: dict[MemberId, int] = {}
        self.me = me
        self.learn(me)

    def learn(self, member: Member) -> None:
        known = self._names.get(member.id)
        if known is not None and known[0] == member.name:
            return
        shown = clean_line(member.name) or f"{member.id:016x}"[:8]
        if known is not None:
            self._bearers[known[1].casefold()].pop(member.id, None)
        self._names[member.id] = (member.name, shown)
        self._bearers.setdefault(shown.casefold(), {})[member.id] = None

    def of(self, member: MemberId) -> str:
        known = self._names.get(member)
        if known is None:
            return f"{member:016x}"[:8]
        is_shared = len(self._bearers[known[1].casefold()]) > 1 and member != self.me.id
        return f"{known[1]}~{member:016x}"[: len(known[1]) + 1 + DIGITS] if is_shared else known[1]

    def colour(self, member: MemberId, count: int) -> int:
        """One of so many: by the id, so that it is mostly the same each day, or the next one that nobody has yet."""
        found = self._colours.get(member)
        if found is None:
            taken = set(self._colours.values())
            choices = [(member + more) % count for more in range(count)]
            found = next((each for each in choices if each not in taken), choices[0])
            self._colours[member] = found
        return found

    def said_by(self, message: Message) -> str:
        """Its author; with the name on the ticket of who said it, if that is another one."""
        name = self.of(message.author)
        if not message.proven or message.proven == message.name:
            return name
        return f"{name} [{clean_line(message.proven)}]"
