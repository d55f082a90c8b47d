"""`Participant`: one program's part in a game, without IO.

In agreed order, entries come from an ordered conversation; in free order they are broadcast, sorted by logical time,
and anti-entropy finds what is missing. Both end in the same `Timeline`. What a participant does by itself, several
times a second: take the role that its player wants, stand in for roles whose actor is gone, and compare states.
"""

import zlib
from collections import deque
from typing import Any

from broadloom.apps.game.changes import Acted, Diverged, Refused, Rewound, Said, changes_between
from broadloom.apps.game.entry import (
    ENTRY_BYTES_MAX,
    Entry,
    Key,
    Kind,
    counts_of,
    decode_entry,
    decode_message,
    entry_of,
    from_json,
    is_plain,
    key_of,
    to_json,
)
from broadloom.apps.game.game import Action, Game, GameOrder, identity_of
from broadloom.apps.game.introduction import Introduction
from broadloom.apps.game.runtime import GameRuntime
from broadloom.apps.game.seating import Seating
from broadloom.apps.game.stand_ins import StandIns
from broadloom.apps.game.table import Phase, Table
from broadloom.apps.game.timeline import Timeline

LAYER = "Ga"
TICK_S = 0.2
DIGEST_S = 2.0
"""Interval at which one member sends the hash of its state."""
TIPS_KEPT = 2
RETRY_S = 2.0
"""Pause before the same thing is asked for again."""
FETCH_TIMEOUT_S = 5.0
WAITING_MAX = 4096
"""Entries that a newcomer keeps until it has the state."""
SAID_MAX = 2000
"""Characters of a message to a player."""
LARGE = b'{"digest":', b'{"window":'
"""Only messages that begin like this may be larger than an entry."""
SNAPSHOT_BYTES_MAX = 64 << 20
TIME_STEP_MAX = 1 << 20
"""Logical time may jump by this much, so that a hostile member cannot use it up."""


class Participant:
    def __init__(self, runtime: GameRuntime, game: Game, seed: str, *, name: str = "", wanted: str = "") -> None:
        self.runtime = runtime
        self.game = game
        self.seating = Seating(self, name, wanted)
        self.timeline = Timeline(game, seed)
        self.identity = identity_of(game)
        self._small_bytes_max = ENTRY_BYTES_MAX + len(self._message("entry", 0))
        self.introduction = Introduction(self)
        self.is_ready = False
        """Whether the state is that of the others."""
        self._is_free = game.order is GameOrder.FREE
        self._number = 0
        self._clock = 0
        self._counts: dict[int, int] = {}
        """Free order: of each author, the number of its last entry here."""
        self._times: dict[int, int] = {}
        """Free order: of each author, the time of its last entry here. The next one must be later."""
        self._unreported: list[Entry] = []
        """Free order: entries that have arrived in this turn of the event loop."""
        self._before = self.timeline.tip
        self._waiting: deque[tuple[int, Any]] = deque(maxlen=WAITING_MAX)
        self._tried: dict[object, float] = {}
        self._stand_ins = StandIns(self)
        self._digest_key = Key(0)
        self._digest_at = 0.0
        self._tips: deque[Key] = deque(maxlen=TIPS_KEPT)
        """Where the timeline ended when the last digests came."""
        self._is_fetching = False
        self._needs_state = self._is_free
        """Whether the state has to come from another member."""
        self._fetch_reason = ""
        self._asked: list[int] = []
        """Members without a state, that were asked for it."""
        self.is_closed = False

    @property
    def table(self) -> Table:
        return self.timeline.tip

    @property
    def role(self) -> str | None:
        return self.table.role_of(self.runtime.peer_id)

    @property
    def has_players(self) -> bool:
        """Whether any player is there."""
        members = self.members() or []
        return any(seat.player in members for seat in self.table.seats.values())

    def members(self) -> list[int] | None:
        """Members that are not known to play another game; None while the roster is not complete."""
        members = self.runtime.members()
        return self.introduction.playing_here(members) if members is not None else None

    def start(self) -> None:
        self._tick()

    def close(self) -> None:
        self.is_closed = True

    # -- own entries

    def new_entry(self, kind: Kind, role: str = "", name: str = "", values: dict[str, Any] | None = None) -> Entry:
        """Exactly as the others will read it. Raises `ValueError` if it cannot be sent: then its number is not used."""
        new = Entry(self.runtime.peer_id, self._number + 1, kind, role, name, values or {}, self._clock + 1)
        entry = decode_entry(new.author, new.encode())
        self._number, self._clock = entry.number, entry.time
        return entry

    def submit(self, entry: Entry) -> None:
        """`on_settled` follows: in free order at once, in agreed order when it has its place. An entry of free order
        that is illegal here is not sent."""
        if not self._is_free:
            self.runtime.submit(entry)
            return
        self._flush()
        before = self.table
        self.timeline.insert(entry)
        problem = self.timeline.problem(entry) or ""
        if problem:
            self.timeline.remove(entry)
            self._number -= 1
        else:
            self._counts[entry.author], self._times[entry.author] = entry.number, entry.time
            self.runtime.broadcast(self._message("entry", entry.fields()))
            self.runtime.on_input("entry", [entry.author, *entry.fields()])
            self._report(before, entry)
        self.runtime.on_settled(entry.number, problem)

    def submit_or_skip(self, what: object, entry: tuple[Kind, str, str, dict[str, Any]]) -> None:
        """Submit unless that was tried a moment ago."""
        if self.may_try(what):
            self.submit(self.new_entry(*entry))

    def may_try(self, what: object) -> bool:
        """False if it was tried a moment ago."""
        now = self.runtime.now()
        self._tried = {each: until for each, until in self._tried.items() if until > now}
        if what in self._tried:
            return False
        self._tried[what] = now + RETRY_S
        return True

    # -- agreed order

    def on_entry(self, index: int, author: int, data: bytes) -> None:
        """The next entry of the order."""
        try:
            entry = decode_entry(author, data, index)
        except ValueError:
            return
        before = self.table
        is_new = self.timeline.insert(entry)
        if is_new:
            self.runtime.on_input("entry", [entry.author, *entry.fields()])
        if entry.author == self.runtime.peer_id:
            self._number = max(self._number, entry.number)
            self.runtime.on_settled(entry.number, self.timeline.problem(entry) or "")
        if is_new:
            self._report(before, entry)

    def on_rewound(self, to_index: int) -> None:
        before = self.table
        self.runtime.on_input("rewound", to_index)
        if not self.timeline.truncate(to_index):
            self._lose_state()
        for change in changes_between(before, self.table):
            self.runtime.emit(change)
        self.runtime.emit(Rewound("another part of the game was larger"))

    def on_skipped(self) -> None:
        self._lose_state()

    def _lose_state(self) -> None:
        """The state cannot be computed from what is here: another member has to send it."""
        self.is_ready = False
        self.fetch("")

    # -- messages of other members

    def _message(self, kind: str, value: Any) -> bytes:
        return to_json({kind: value, "game": self.identity})

    def on_message(self, author: int, data: bytes) -> None:
        is_large = len(data) > self._small_bytes_max
        if is_large and not data.startswith(LARGE):
            return
        message = decode_message(data)
        if "said" in message:
            self._on_said(author, message["said"])
            return
        game = message.get("game")
        self.introduction.note(author, game)
        if game != self.identity:
            return
        if "entry" in message and self._is_free and not is_large:
            if self.is_ready:
                self._on_free_entry(author, message["entry"], is_checked=is_plain(data))
            else:
                self._waiting.append((author, message["entry"]))
        elif "digest" in message and self.is_ready and author == self._lead():
            self._on_digest(message["digest"])
        elif "window" in message and self._is_free and self.is_ready:
            self._on_window(author, message["window"])

    def _on_said(self, author: int, text: Any) -> None:
        if isinstance(text, str) and len(text) <= SAID_MAX:
            seat = next((each for each in self.table.seats.values() if each.player == author), None)
            self.runtime.emit(Said(seat.name if seat is not None else "", author, text))

    def on_request(self, data: bytes) -> bytes | None:
        """A member asks for the state, or which game this is."""
        request = decode_message(data)
        if "game" in request:
            return self.introduction.answer()
        if request.get("fetch") != self.identity or not self.is_ready:
            return None
        return zlib.compress(to_json(self.timeline.snapshot()), 1)

    def _on_free_entry(self, author: int, fields: Any, *, is_checked: bool = False) -> None:
        try:
            entry = entry_of(author, fields, is_checked=is_checked)
        except ValueError:
            return
        expected = self._counts.get(author, 0) + 1
        if entry.number > expected:
            self.fetch("")  # the channel keeps the order of an author, so something was missed
        if entry.number != expected or not self._times.get(author, 0) < entry.time <= self._clock + TIME_STEP_MAX:
            return
        if not self._unreported:
            self._before = self.table
            self.runtime.call_later(0.0, self._flush)
        self._counts[author], self._times[author] = entry.number, entry.time
        self._clock = max(self._clock, entry.time)
        if self.timeline.insert_or_skip(entry):
            self.runtime.on_input("entry", [author, *fields])
            self._unreported.append(entry)

    def _flush(self) -> None:
        """Free order: apply and report what has arrived, together."""
        if not self._unreported:
            return
        unreported, self._unreported = self._unreported, []
        for change in changes_between(self._before, self.table):
            self.runtime.emit(change)
        for entry in unreported:
            self._report_action(entry)
        for entry in self.timeline.take_refused():
            if entry.author == self.runtime.peer_id and entry.kind is Kind.ACT:
                problem = self.timeline.problem(entry) or ""
                self.runtime.emit(Refused(Action(entry.name, entry.values), problem))

    def _report(self, before: Table, entry: Entry) -> None:
        for change in changes_between(before, self.table):
            self.runtime.emit(change)
        self._report_action(entry)

    def _report_action(self, entry: Entry) -> None:
        problem = self.timeline.problem(entry)
        self.runtime.on_applied(entry, problem)
        if entry.kind is Kind.ACT and problem == "":
            self.runtime.emit(Acted(entry.role, Action(entry.name, entry.values)))

    # -- comparing states

    def _lead(self) -> int | None:
        """The member whose state counts."""
        if not self._is_free:
            return self.runtime.sequencer()
        members = self.members()
        return min(members) if members else None

    def _send_digest(self) -> None:
        """About the place where the timeline ended when the last one was sent: what was on its way then has arrived."""
        table = self.timeline.table_at(self._digest_key)
        if table is not None and self._digest_key.time:
            counts = sorted(self.timeline.counts(self._digest_key).items()) if self._is_free else []
            self.runtime.broadcast(self._message("digest", [list(self._digest_key), counts, table.hash()]))
        self._digest_key = self.timeline.tip_key

    def _on_digest(self, digest: Any) -> None:
        try:
            key, counts, state_hash = key_of(digest[0]), counts_of(digest[1]), str(digest[2])
        except (TypeError, ValueError, IndexError, KeyError):
            return
        lead = self._lead()
        if lead is None:
            return
        if self._is_free:
            own = self.timeline.counts(key)
            if any(number > own.get(author, 0) for author, number in counts.items()):
                self.fetch("")
                return
            # What was here two digests ago must be there, too.
            limit = max(key, self._tips[0] if len(self._tips) == TIPS_KEPT else key)
            self._tips.append(self.timeline.tip_key)
            extra = self.timeline.beyond(counts)
            if any(each.key <= limit for each in extra):
                window = [[each.author, *each.fields()] for each in extra]
                self.runtime.tell_member(lead, self._message("window", window))
                return
            if own != counts:
                return
        elif self.timeline.tip_key.time < key.time:
            return  # the order brings the rest
        table = self.timeline.table_at(key)
        if table is not None and table.hash() != state_hash:
            self.fetch(f"the state after {key.time} differs from that of {lead:016x}")

    def _on_window(self, sender: int, window: Any) -> None:
        """Entries that are missing here: those of the sender, and of authors that are gone. The others send their
        own, so nobody can act as another member that is there."""
        try:
            entries = [entry_of(author, fields) for author, *fields in window]
        except (TypeError, ValueError):
            return
        if (members := self.runtime.members()) is None:
            return
        self._flush()
        before = self.table
        entries = [each for each in entries if each.author == sender or each.author not in members]
        timely = [each for each in entries if each.time <= self._clock + TIME_STEP_MAX]
        if self.timeline.insert_missing(timely) or len(timely) < len(entries):
            self.fetch("")
        self._after_jump(before)

    def _after_jump(self, before: Table) -> None:
        self._counts, self._times = self.timeline.counts(), self.timeline.times()
        self._number = max(self._number, self._counts.get(self.runtime.peer_id, 0))
        self._clock = max(self._clock, self.timeline.tip_key.time)
        self.runtime.on_input("snapshot", self.timeline.snapshot())
        for change in changes_between(before, self.table):
            self.runtime.emit(change)

    def fetch(self, reason: str) -> None:
        """Get the state of the lead, or of any other member; `reason` is why this one is wrong, if it is."""
        self._needs_state = True
        self._fetch_reason = reason or self._fetch_reason
        members, me = self.members(), self.runtime.peer_id
        if self._is_fetching or members is None:
            return
        lead = self._lead()
        others = [each for each in members if each not in (me, *self._asked)]
        if not others:
            self._asked.clear()
            if me == min(members, default=0) and (not self.is_ready or len(members) == 1):
                self._needs_state, self._fetch_reason = False, ""
                self._become_ready()  # nobody has a state, and this is the first to know it
            return
        source = lead if lead in others else min(others)
        self._is_fetching = True
        self.runtime.request(
            source, to_json({"fetch": self.identity}), FETCH_TIMEOUT_S, lambda data: self._on_snapshot(source, data)
        )

    def _on_snapshot(self, source: int, data: bytes | None) -> None:
        self._is_fetching = False
        if self.is_closed:
            return
        self._flush()
        before, mine = self.table, self.timeline.entries
        try:
            if data is None:
                raise ValueError("no state there")
            unpacker = zlib.decompressobj()
            snapshot = from_json(unpacker.decompress(data, SNAPSHOT_BYTES_MAX))
            # If the same entries gave another state, computing it again would give it again.
            self.timeline.restore(snapshot, is_final=bool(self._fetch_reason))
        except (ValueError, zlib.error):
            self._asked.append(source)
            return
        self._asked.clear()
        self._needs_state = False
        if self._is_free:
            self.timeline.insert_missing(mine)
        else:
            for entry in mine:
                if entry.key > self.timeline.tip_key:
                    self.timeline.insert(entry)
        self._after_jump(before)
        if self._fetch_reason:
            self.runtime.emit(Diverged(self._fetch_reason))
            self._fetch_reason = ""
        self._become_ready()

    def _become_ready(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            waiting, self._waiting = self._waiting, deque(maxlen=WAITING_MAX)
            for author, fields in waiting:
                self._on_free_entry(author, fields)

    def on_caught_up(self) -> None:
        """Agreed order: the history that others had is here."""
        if not self._needs_state:
            self._become_ready()

    # -- several times a second

    def _tick(self) -> None:
        if self.is_closed:
            return
        self.runtime.call_later(TICK_S, self._tick)
        members = self.runtime.members()
        if members is None:
            return
        self.introduction.ask(members)
        members = self.introduction.playing_here(members)
        if self._needs_state:
            self.fetch("")
        if not self.is_ready or self.runtime.peer_id not in members:  # a consumer only watches
            return
        now = self.runtime.now()
        if now >= self._digest_at and self._lead() == self.runtime.peer_id:
            self._digest_at = now + DIGEST_S
            self._send_digest()
        self.seating.sit(members)
        if self.table.phase is Phase.RUNNING:
            self._stand_ins.replace_absent(members, now)
            self._stand_ins.act(now)
