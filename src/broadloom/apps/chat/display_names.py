"""How people are called on the screen. Anybody may choose any name: those of the same name are told apart by ids."""

from broadloom.apps.chat.sanitize import clean_line
from broadloom.groups import GroupMessage, Member, MemberId

ID_DIGITS = 4
"""Of the id, behind a name that several have."""


class DisplayNames:
    """Of one group."""

    def __init__(self, me: Member) -> None:
        self._names: dict[MemberId, tuple[str, str]] = {}
        """By id: the name as it came, and as it is shown."""
        self._ids_by_name: dict[str, dict[MemberId, None]] = {}
        self._colors: dict[MemberId, int] = {}
        self.me = me
        self.learn(me)

    def learn(self, member: Member) -> None:
        known = self._names.get(member.id)
        if known is not None and known[0] == member.name:
            return
        shown = clean_line(member.name) or f"{member.id:016x}"[:8]
        if known is not None:
            self._ids_by_name[known[1].casefold()].pop(member.id, None)
        self._names[member.id] = (member.name, shown)
        self._ids_by_name.setdefault(shown.casefold(), {})[member.id] = None

    def get(self, member_id: MemberId) -> str:
        known = self._names.get(member_id)
        if known is None:
            return f"{member_id:016x}"[:8]
        is_shared = len(self._ids_by_name[known[1].casefold()]) > 1 and member_id != self.me.id
        return f"{known[1]}~{member_id:016x}"[: len(known[1]) + 1 + ID_DIGITS] if is_shared else known[1]

    def color_index(self, member_id: MemberId, count: int) -> int:
        """One of so many: by the id, so that it is mostly the same each day, or the next one that nobody has yet."""
        found = self._colors.get(member_id)
        if found is None:
            taken = set(self._colors.values())
            choices = [(member_id + more) % count for more in range(count)]
            found = next((each for each in choices if each not in taken), choices[0])
            self._colors[member_id] = found
        return found

    def author_label(self, message: GroupMessage) -> str:
        """Its author; with the name on the ticket of who said it, if that is another one."""
        name = self.get(message.author)
        if not message.verified_name or message.verified_name == message.author_name:
            return name
        return f"{name} [{clean_line(message.verified_name)}]"
