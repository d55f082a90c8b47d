"""Names on the screen. Names are not unique: equal ones get a suffix from the member ID."""

from rich.cells import cell_len

from broadloom.apps.chat.sanitize import clean_line, truncate
from broadloom.groups import GroupMessage, Member, MemberId

ID_DIGITS = 4
"""Digits of the ID after an ambiguous name."""
NAME_CELLS_MIN = 4
"""Least cells of a name that has a note after it."""


class DisplayNames:
    """Of one group."""

    def __init__(self, me: Member) -> None:
        self._names: dict[MemberId, tuple[str, str]] = {}
        """By ID: the name as received and as shown."""
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
        """A color index from the ID, so that it is usually the same every day; or the next unused one."""
        found = self._colors.get(member_id)
        if found is None:
            taken = set(self._colors.values())
            choices = [(member_id + more) % count for more in range(count)]
            found = next((each for each in choices if each not in taken), choices[0])
            self._colors[member_id] = found
        return found

    def author_label(self, message: GroupMessage, cells_max: int | None = None) -> str:
        """The author, the name on its ticket if that differs, and whether the message is unproven. Authors choose their
        names, so a long one is cut before what follows it."""
        name, note = self.get(message.author), clean_line(message.author_note)
        if cells_max is None:
            return f"{name} {note}".rstrip()
        if note:
            name = truncate(name, max(NAME_CELLS_MIN, cells_max - cell_len(note) - 1))
        return truncate(f"{name} {note}".rstrip(), cells_max)
