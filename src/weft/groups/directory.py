"""All groups that one member knows of: what each is, and who is or was in it.

The lists are made to be merged: for each member of a group there is one counter (its step), raised by that member
alone, when it joins (odd) and when it leaves (even); of two the larger holds. Of two charters of the same group the
smaller holds.
So any order and repetition of the same messages ends in the same lists (a join-semilattice), which the lists of the
thesis do not: there, whoever has left once has left for ever.

Every group has a hash, put together from those of its parts, and falls into one of 1,024 buckets. Two members compare
their lists by the hashes of the buckets, or of fewer, larger ones made by folding.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from weft.groups.fields import Charter, Roster, Stand, pack_rosters
from weft.groups.limits import BUCKETS_MAX, ENTRIES_MAX, GROUPS_MAX, MEMBERS_MAX, STANDS_MAX
from weft.groups.names import GroupId, MemberId

GROUPS_IN_BUCKET = 8
_STAND = Struct(">QQQ")
_STAND_BYTES = 32
"""On the wire, about, beside the name."""


class Change(NamedTuple):
    """What merging brought."""

    group: GroupId
    founded: bool
    """Its charter was not known."""
    stands: list[tuple[Stand | None, Stand]]
    """Before and after."""


class Book:
    """One group."""

    __slots__ = ("charter", "hash", "stands")

    def __init__(self) -> None:
        self.charter: Charter | None = None
        self.stands: dict[MemberId, Stand] = {}
        self.hash = 0


class Directory:
    def __init__(self) -> None:
        self.books: dict[GroupId, Book] = {}
        self._buckets = [0] * BUCKETS_MAX
        self._folded: dict[int, tuple[int, ...]] = {}
        """Since the last change."""
        self.hash = 0
        """Of everything."""
        self._stands = 0
        self.refused = 0
        """Groups and members over a limit."""

    # -- merging

    def merge(self, roster: Roster) -> Change | None:
        """Take in what somebody knows of a group; None if it was known."""
        group = roster.group
        book = self.books.get(group)
        if book is None:
            if len(self.books) >= GROUPS_MAX:
                self.refused += 1
                return None
            book = self.books[group] = Book()
        founded = False
        charter = roster.charter
        if charter is not None and (book.charter is None or _rank(charter) < _rank(book.charter)):
            founded = book.charter is None
            if book.charter is not None:
                self._toggle(group, book, _charter_hash(group, book.charter))
            self._toggle(group, book, _charter_hash(group, charter))
            book.charter = charter
        changed: list[tuple[Stand | None, Stand]] = []
        for stand in roster.stands:
            old = book.stands.get(stand.member)
            if old is None:
                if len(book.stands) >= MEMBERS_MAX or self._stands >= STANDS_MAX:
                    self.refused += 1
                    continue
                self._stands += 1
            elif (stand.step, stand.name) <= (old.step, old.name):
                continue
            else:
                self._toggle(group, book, _stand_hash(group, old))
            self._toggle(group, book, _stand_hash(group, stand))
            book.stands[stand.member] = stand
            changed.append((old, stand))
        return Change(group, founded, changed) if founded or changed else None

    def _toggle(self, group: GroupId, book: Book, part: int) -> None:
        book.hash ^= part
        self._buckets[group % BUCKETS_MAX] ^= part
        self.hash ^= part
        self._folded.clear()

    # -- comparing

    @property
    def buckets_wanted(self) -> int:
        """As many as make a difference tell a few groups only."""
        count = 1
        while count < BUCKETS_MAX and count * GROUPS_IN_BUCKET < len(self.books):
            count *= 2
        return count

    def fold(self, count: int) -> tuple[int, ...]:
        """The hashes of so many buckets; a power of two."""
        known = self._folded.get(count)
        if known is None:
            folded = self._buckets
            while len(folded) > count:
                half = len(folded) // 2
                folded = [low ^ high for low, high in zip(folded[:half], folded[half:], strict=True)]
            known = self._folded[count] = tuple(folded)
        return known

    def differing(self, buckets: tuple[int, ...]) -> list[int]:
        """The numbers of the buckets that are not the same here."""
        mine = self.fold(len(buckets))
        return [number for number, (here, there) in enumerate(zip(mine, buckets, strict=True)) if here != there]

    def groups_in(self, numbers: Iterable[int], count: int) -> list[GroupId]:
        chosen = frozenset(numbers)
        if len(chosen) == count:
            return list(self.books)
        return [group for group in self.books if group % count in chosen]

    # -- telling

    def roster(self, group: GroupId) -> Roster:
        book = self.books[group]
        return Roster(group, book.charter, tuple(book.stands.values()))


def pages(rosters: Iterable[Roster], page_bytes: int) -> Iterator[bytes]:
    """Rosters as bodies of about this size; a large group is cut into several. One empty body if there are none."""
    page: list[Roster] = []
    size = told = 0
    for roster in rosters:
        stands: list[Stand] = []
        charter = roster.charter
        size += 64 + (len(charter.description) if charter is not None else 0)
        for stand in roster.stands:
            stands.append(stand)
            size += _STAND_BYTES + len(stand.name)
            if size >= page_bytes or len(stands) >= ENTRIES_MAX:
                yield pack_rosters([*page, Roster(roster.group, charter, tuple(stands))])
                told += 1
                page, stands, charter, size = [], [], None, 64
        if stands or charter is not None:
            page.append(Roster(roster.group, charter, tuple(stands)))
        if size >= page_bytes or len(page) >= ENTRIES_MAX:
            yield pack_rosters(page)
            told += 1
            page, size = [], 0
    if page or not told:
        yield pack_rosters(page)


def _rank(charter: Charter) -> tuple[int, str, int, int, int, bool]:
    keep = charter.keep
    return (charter.creator, charter.description, keep.messages, keep.age_s, keep.total_bytes, keep.ids_only)


def _stand_hash(group: GroupId, stand: Stand) -> int:
    told = _STAND.pack(group, stand.member, stand.step) + stand.name.encode()
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big")


def _charter_hash(group: GroupId, charter: Charter) -> int:
    told = repr((group, *_rank(charter))).encode()
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big")
