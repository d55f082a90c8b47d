"""`StateFetch`: a newcomer fetches named state from one member after another until one has served it whole.

The rule: the state of position V is used only if this peer has received, or will receive, everything after V. Then the
reader is cut at V, so that nothing is in both. Chunks are identified by their hash. So those that a member has sent
before it died are not fetched again, if the state of the next member contains them too.

A newcomer's first neighbor may have had messages that died with it and their author. No member has them, so after
`LACKING_MIN` members have waited for them in vain, the state need not contain them: they are reported as missed.

| state | event | next |
|---|---|---|
| LOOKING | the roster is complete and a member offers the state | ASKING it |
| LOOKING | the roster is complete and no member is left to ask | failed; or LOOKING again later, if one was only busy |
| ASKING | manifest that contains what is required | FETCHING its chunks |
| FETCHING | all chunks | ARRIVING |
| ARRIVING | everything up to V has arrived here | done; ASKING again if messages were lost here meanwhile |
| ASKING, FETCHING | refusal, no answer, connection lost, lie | LOOKING for the next member |
| ASKING, FETCHING | half of the time is over, and there are other members | LOOKING for the next member |
| ARRIVING | nothing arrives for a while | LOOKING: V is too high to be true |
| any | timeout | failed |
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from broadloom.protocol.events import Missed
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest, RequestState
from broadloom.protocol.state.server import WAIT_S, chunk_hash
from broadloom.protocol.state.stream_tracker import Position, StreamTracker, covers
from broadloom.wire import PeerId, WireError
from broadloom.wire.direct_messages import RequestStatus
from broadloom.wire.payload_kind import layer_mark
from broadloom.wire.state_messages import (
    CHUNK_BYTES_MAX,
    STATE_KIND,
    STATE_LAYER,
    ChunkQuery,
    StateManifest,
    StateQuery,
    StateRelease,
    decode_state,
    encode_state,
)

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer

STATE_MARK = layer_mark(STATE_KIND)
CHUNKS_IN_FLIGHT = 4
CHUNK_TIMEOUT_S = 5.0
QUERY_TIMEOUT_S = WAIT_S + 2.0
"""The member itself waits for `WAIT_S`."""
ARRIVAL_TIMEOUT_S = 5.0
"""How long to wait until the messages that the state contains have arrived here too."""
POLL_S = 0.05
RETRY_S = 0.5
"""Pause before members that were busy are asked again."""
ROSTER_WAIT_S = 5.0
"""How long to wait until the roster is complete; then the members known by then are asked."""
OFFER_WAIT_S = 0.5
"""How long to wait for the first member that offers the state: one that has just begun to is not known at once."""
FINAL = RequestStatus.NO_HANDLER, RequestStatus.TOO_LARGE
"""A member that refuses with these is not asked again."""
LACKING_MIN = 2
"""Members that lack required messages, before those of authors that are gone are given up."""
RESTARTS_MAX = 3
"""How often state is fetched again because messages were lost here during the fetch."""


class FetchState(Enum):
    LOOKING = auto()
    ASKING = auto()
    FETCHING = auto()
    ARRIVING = auto()
    ENDED = auto()


class FetchedState(NamedTuple):
    data: bytes
    position: Position
    missed: tuple[Missed, ...]
    helper: PeerId


class FetchFailure(NamedTuple):
    text: str
    reasons: dict[PeerId, str]
    """Why each member that offers this state, and was asked, did not serve."""


class StateFetch:
    """One fetch. `on_done` is called exactly once, unless the fetch is given up."""

    def __init__(
        self,
        peer: "Peer",
        name: str,
        reader: StreamTracker,
        on_done: Callable[[FetchedState | FetchFailure], None],
        *,
        timeout_s: float,
        bytes_max: int,
        helper: PeerId | None = None,
    ) -> None:
        self._peer = peer
        self._name = name
        self._reader = reader
        self._on_done = on_done
        self._bytes_max = bytes_max
        self._preferred = helper
        self.state = FetchState.LOOKING
        self._reasons: dict[PeerId, str] = {}
        self._not_offering: dict[PeerId, None] = {}
        """Members that offer other states."""
        self._retry_at: dict[PeerId, float] = {}
        """Members that did not serve, and when they may be asked again."""
        self._helper: PeerId | None = None
        self._manifest: StateManifest | None = None
        self._chunks: dict[bytes, bytes] = {}
        """By their hash."""
        self._sizes: dict[bytes, int] = {}
        self._wanted: list[bytes] = []
        self._requests: dict[OutgoingRequest, None] = {}
        self._lacking: dict[PeerId, None] = {}
        """Members that waited in vain for what is required."""
        self._gives_up_gone = False
        """What authors that are gone have sent last is no longer required."""
        self._restarts = 0
        self._ticket = 0
        """Of the present attempt: what belongs to an earlier one is ignored."""
        now = peer.runtime.now()
        self._deadline_at = now + timeout_s
        self._timeout_s = timeout_s
        self._roster_until = now + min(ROSTER_WAIT_S, timeout_s / 2)
        self._offer_until = now + min(OFFER_WAIT_S, timeout_s / 2)
        self._attempt_until = self._arrival_until = 0.0
        reader.begin_fetch()
        peer.runtime.call_soon(self._tick)

    def give_up(self) -> None:
        if not self.has_ended:
            self._stop()
            self._reader.end_fetch(None, ())

    def _tick(self) -> None:
        """Checks what is not announced by an event."""
        if not self.has_ended:
            self._check()
        if not self.has_ended:
            self._peer.runtime.call_later(POLL_S, self._tick)

    @property
    def has_ended(self) -> bool:
        return self.state is FetchState.ENDED

    def _check(self) -> None:
        if self._peer.runtime.now() >= self._deadline_at:
            self._fail(f"not complete within {self._timeout_s:g} s")
            return
        if self.state is FetchState.LOOKING:
            self._look()
        elif self.state is FetchState.ARRIVING:
            self._check_arrival()
        elif self._peer.runtime.now() >= self._attempt_until:
            self._next_helper("too slow")

    # -- LOOKING

    def _look(self) -> None:
        now, roster = self._peer.runtime.now(), self._peer.roster
        if not roster.is_complete and now < self._roster_until:
            return
        offering = [
            member.peer_id
            for member in roster.members()
            if STATE_MARK in member.layers
            and not member.is_secondary
            and member.peer_id not in self._not_offering
            and member.peer_id != self._peer.me.peer_id
        ]
        ready = [each for each in offering if self._retry_at.get(each, now) <= now]
        if self._preferred is not None and self._preferred not in self._reasons:
            ready = [self._preferred]
        fresh = [each for each in ready if each not in self._reasons]
        self._gives_up_gone = len(self._lacking) >= min(LACKING_MIN, max(1, len(offering)))
        if ready:
            self._attempt_until = self._deadline_at if len(offering) < 2 else (now + self._deadline_at) / 2
            self._ask(self._peer.runtime.random.choice(fresh or ready))
        elif now >= self._offer_until and not any(self._retry_at[each] < self._deadline_at for each in offering):
            self._fail("no member serves it" if offering else "no member offers it")

    def _next_helper(self, reason: str, *, is_final: bool = False) -> None:
        """The present one does not serve."""
        assert self._helper is not None
        self._reasons[self._helper] = reason
        self._retry_at[self._helper] = self._deadline_at if is_final else self._peer.runtime.now() + RETRY_S
        self._end_attempt()
        self._peer.runtime.call_soon(self._look_now)

    def _look_now(self) -> None:
        if self.state is FetchState.LOOKING:
            self._look()

    # -- ASKING

    def _ask(self, helper: PeerId) -> None:
        self._helper = helper
        self.state = FetchState.ASKING
        required = self._required()
        query = StateQuery(self._name, tuple(sorted(required.items())))
        self._request(encode_state(query), QUERY_TIMEOUT_S, lambda outcome: self._on_manifest(outcome, required))

    def _required(self) -> Position:
        required = self._reader.required()
        if not self._gives_up_gone:
            return required
        here = {member.peer_id for member in self._peer.roster.members()}
        return {author: sequence for author, sequence in required.items() if author in here}

    def _on_manifest(self, outcome: Outcome, required: Position) -> None:
        if outcome.kind is not OutcomeKind.REPLIED:
            if outcome.status is RequestStatus.REFUSED and self._helper is not None:
                self._lacking[self._helper] = None
            if outcome.status is RequestStatus.NO_HANDLER and self._helper is not None:
                self._not_offering[self._helper] = None
            self._next_helper(_reason(outcome), is_final=outcome.status in FINAL)
            return
        try:
            manifest = decode_state(outcome.data)
        except WireError as problem:
            self._next_helper(f"malformed manifest: {problem}", is_final=True)
            return
        if not isinstance(manifest, StateManifest):
            self._next_helper("not a manifest", is_final=True)
            return
        objection = self._objection(manifest, required)
        if objection:
            self._next_helper(objection, is_final=True)
            return
        self.state = FetchState.FETCHING
        self._manifest = manifest
        self._sizes = dict(manifest.chunks)
        self._chunks = {digest: chunk for digest, chunk in self._chunks.items() if digest in self._sizes}
        self._wanted = [digest for digest in self._sizes if digest not in self._chunks][::-1]
        self._fetch_more()

    def _objection(self, manifest: StateManifest, required: Position) -> str:
        size = sum(size for _, size in manifest.chunks)
        if size > self._bytes_max:
            return f"the state has {size:,} bytes, at most {self._bytes_max:,} are accepted (bytes_max)"
        if any(not 0 < size <= CHUNK_BYTES_MAX for _, size in manifest.chunks):
            return "malformed manifest: size of a chunk"
        if not covers(dict(manifest.position), required):
            return "its state lacks messages that are required"
        return ""

    # -- FETCHING

    def _fetch_more(self) -> None:
        while self._wanted and len(self._requests) < CHUNKS_IN_FLIGHT and self.state is FetchState.FETCHING:
            digest = self._wanted.pop()
            self._request(
                encode_state(ChunkQuery(digest)),
                CHUNK_TIMEOUT_S,
                lambda outcome, digest=digest: self._on_chunk(outcome, digest),  # type: ignore[misc]
            )
        if self.state is FetchState.FETCHING and len(self._chunks) == len(self._sizes):
            self.state = FetchState.ARRIVING
            self._arrival_until = self._peer.runtime.now() + ARRIVAL_TIMEOUT_S
            self._release()
            self._check_arrival()

    def _on_chunk(self, outcome: Outcome, digest: bytes) -> None:
        if outcome.kind is not OutcomeKind.REPLIED:
            self._next_helper(_reason(outcome))
        elif len(outcome.data) != self._sizes[digest] or chunk_hash(outcome.data) != digest:
            self._next_helper("a chunk does not match its hash", is_final=True)
        else:
            self._chunks[digest] = outcome.data
            self._fetch_more()

    # -- ARRIVING

    def _check_arrival(self) -> None:
        assert self._manifest is not None
        assert self._helper is not None
        position, arrived = dict(self._manifest.position), self._reader.arrived()
        late = [each for each, sequence in position.items() if each in arrived and arrived[each] < sequence]
        if late:
            if self._peer.runtime.now() >= self._arrival_until:
                text = "its state contains messages that have not arrived here"
                self._next_helper(f"{text}, of {late[0]:016x}")
            return
        if not covers(position, self._required()):
            self._restart()
            return
        data = b"".join(self._chunks[digest] for digest, _ in self._manifest.chunks)
        missed = [Missed(PeerId(author), first, last) for author, first, last in self._manifest.missed]
        for author, last in self._reader.required().items():
            if (known := position.get(author, 0)) < last:
                missed.append(Missed(author, known + 1, last))
                position[author] = last
        result = FetchedState(data, {PeerId(each): at for each, at in position.items()}, tuple(missed), self._helper)
        self._stop()
        self._reader.end_fetch(position, tuple(missed))
        self._on_done(result)

    def _restart(self) -> None:
        """Messages after V were lost here: a later state contains them."""
        assert self._helper is not None
        self._restarts += 1
        helper = self._helper
        self._end_attempt()
        if self._restarts > RESTARTS_MAX:
            self._fail("messages were lost here during each fetch; read faster, or raise the limits of the reader")
        else:
            self._ask(helper)

    # -- requests, and the end

    def _request(self, data: bytes, timeout_s: float, on_outcome: Callable[[Outcome], None]) -> None:
        assert self._helper is not None
        ticket = self._ticket
        sent: list[OutgoingRequest] = []

        def on_end(outcome: Outcome) -> None:
            for each in sent:
                self._requests.pop(each, None)
            self._peer.runtime.call_soon(lambda: on_outcome(outcome) if ticket == self._ticket else None)

        timeout_s = min(timeout_s, max(POLL_S, self._deadline_at - self._peer.runtime.now()))
        request = self._peer.requests.request(self._helper, data, timeout_s, on_end, layer=STATE_LAYER)
        sent.append(request)
        if request.state is not RequestState.ENDED:  # it may have ended during the call
            self._requests[request] = None

    def _end_attempt(self) -> None:
        self._ticket += 1
        for request in list(self._requests):
            self._peer.requests.give_up(request)
        self._requests.clear()
        self._wanted, self._manifest, self._helper = [], None, None
        self.state = FetchState.LOOKING

    def _release(self) -> None:
        assert self._helper is not None
        data = encode_state(StateRelease(self._name))
        self._peer.requests.request(self._helper, data, 1.0, _ignore, layer=STATE_LAYER, is_tell=True)

    def _fail(self, text: str) -> None:
        self._stop()
        self._reader.end_fetch(None, ())
        reasons = {each: reason for each, reason in self._reasons.items() if each not in self._not_offering}
        self._on_done(FetchFailure(text, reasons))

    def _stop(self) -> None:
        self._end_attempt()
        self._chunks.clear()
        self.state = FetchState.ENDED


def _reason(outcome: Outcome) -> str:
    if outcome.kind is OutcomeKind.REFUSED:
        return outcome.text or outcome.status.name.lower().replace("_", " ")
    if outcome.kind is OutcomeKind.NO_ANSWER:
        return "no answer"
    return outcome.text or outcome.kind.name.lower().replace("_", " ")


def _ignore(_outcome: Outcome) -> None:
    """A one-way message."""
