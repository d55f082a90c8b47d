"""The panes at the sides: groups and invitations on the left, members of the group on the right."""

from typing import ClassVar

from rich.segment import Segment

from weft.apps.chat.colours import names_of
from weft.apps.chat.rows import Rows, spread
from weft.apps.chat.talk import Talk, about_of, title_of
from weft.apps.chat.talks import Talks
from weft.groups import GroupInfo, Here, Member

HEADING = "invitations"


class GroupRows(Rows):
    """Two lines for each group: its name and what is unread; what it is about, or how much of its history is here."""

    row_lines: ClassVar[int] = 2

    def __init__(self, talks: Talks, id: str | None = None) -> None:
        super().__init__(id=id)
        self._talks = talks
        self.entries: list[Talk | GroupInfo | str] = []

    @property
    def count(self) -> int:
        return len(self.entries)

    def can_be_chosen(self, at: int) -> bool:
        return not isinstance(self.entries[at], str)

    def look_again(self) -> None:
        under = self.entries[self.at] if self.at < self.count else None
        offers = sorted(self._talks.offers.values(), key=lambda info: (title_of(info.description).casefold(), info.id))
        self.entries = [*self._talks.in_order(), *([HEADING] if offers else []), *offers]
        for at, entry in enumerate(self.entries):
            if _id(entry) == _id(under):
                self.at = at
        super().look_again()
        if self.count and not self.can_be_chosen(self.at):
            self.action_move(1)

    def point_at(self, entry: Talk | GroupInfo) -> None:
        """Put the cursor there."""
        for at, each in enumerate(self.entries):
            if _id(each) == _id(entry):
                self.at = at
                self._bring_into_window()

    def draw(self, at: int, width: int) -> list[list[Segment]]:
        entry, plain, dim = self.entries[at], self.plain, self.style_of("dim")
        if isinstance(entry, str):
            return [
                [Segment("", plain)],
                [Segment(f" {entry} ({len(self._talks.offers):,})", self.style_of("heading"))],
            ]
        if isinstance(entry, Talk):
            return self._group(entry, width)
        about = about_of(entry.description) or f"{entry.members:,} in it"
        return [
            spread(
                [Segment(" + ", self.style_of("mark")), Segment(title_of(entry.description), plain)], [], width, plain
            ),
            spread([Segment(f"   {about}", dim)], [], width, plain),
        ]

    def _group(self, talk: Talk, width: int) -> list[list[Segment]]:
        plain, dim = self.plain, self.style_of("dim")
        is_shown = talk is self._talks.shown
        unread = [Segment(f" {talk.unread:,} ", self.style_of("mark"))] if talk.unread else []
        title = Segment(talk.title, self.style_of("open") if is_shown else plain)
        return [
            spread([Segment(" ▌ " if is_shown else "   ", self.style_of("mark")), title], unread, width, plain),
            spread([Segment(f"   {self._second_line(talk)}", dim)], [], width, plain),
        ]

    @staticmethod
    def _second_line(talk: Talk) -> str:
        if talk.catching_up is not None:
            received, remaining = talk.catching_up
            return f"catching up {100 * received // max(1, received + remaining)} %"
        return talk.about


def _id(entry: Talk | GroupInfo | str | None) -> int | str | None:
    return entry if entry is None or isinstance(entry, str) else entry.id


class MemberRows(Rows):
    _MARKS: ClassVar[dict[Here, str]] = {Here.PRESENT: "●", Here.GONE: "○", Here.LEFT: "×"}

    def __init__(self, talks: Talks, id: str | None = None) -> None:
        super().__init__(id=id)
        self._talks = talks
        self.members: list[tuple[Member, Here]] = []

    @property
    def count(self) -> int:
        return len(self.members)

    def look_again(self) -> None:
        self.members = self._talks.shown.members() if self._talks.shown is not None else []
        super().look_again()

    def present(self) -> int:
        return sum(here is Here.PRESENT for _, here in self.members)

    def draw(self, at: int, width: int) -> list[list[Segment]]:
        talk = self._talks.shown
        if talk is None:
            return [[]]
        (member, here), plain, dim = self.members[at], self.plain, self.style_of("dim")
        colours = names_of(dark=self.app.current_theme.dark)
        mark = self.style_of("mark") if here is Here.PRESENT else dim
        colour = plain + colours[talk.names.colour(member.id, len(colours))]
        name = Segment(talk.names.of(member.id), colour if here is Here.PRESENT else dim)
        told = "you" if member.id == talk.names.me.id else "" if here is Here.PRESENT else here.value
        right = [Segment(f" {told} ", dim)] if told else []
        return [spread([Segment(f" {self._MARKS[here]} ", mark), name], right, width, plain)]
