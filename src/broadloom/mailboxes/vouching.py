"""`Vouching`: the owner of many values, if it is a member, confirms a page of them at once.

On a channel with tickets every value has the signature of its writer, and verifying ten thousand of them takes seconds.
A member whose ticket has the name of the owner knows which records are genuine, and its direct connection proves its
name as well as a signature does. So a newcomer asks it for a page of records, by their hashes, and verifies the
signatures only of those that it does not confirm, or whose owner is gone. The hash covers the signature, so that a
record can be passed on to others, which may have to verify it.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from broadloom.mailboxes.messages import Confirm, Confirmed, RecordDigest, decode, encode
from broadloom.mailboxes.record import content
from broadloom.mailboxes.table import slot_of
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.mailboxes.post_office import PostOffice
    from broadloom.mailboxes.record import Record
    from broadloom.mailboxes.runtime import Answer
    from broadloom.wire import PeerId

RECORDS_MIN = 16
"""Fewer records of one owner are verified faster than asked for."""
OWNERS_MAX = 8
"""Owners that are asked for one page."""
TIMEOUT_S = 0.5
SILENT_S = 60.0
"""An owner that did not answer is not asked again for this time."""

Then = Callable[[list["Record"], list["Record"]], None]
"""Called with the records that are proven by their owner, and with the others."""


def digest_of(record: "Record") -> bytes:
    parts = (record.proof, record.credential, content(record))
    return sha256(b"".join(sha256(part).digest() for part in parts)).digest()[:16]


class Vouching:
    def __init__(self, office: "PostOffice") -> None:
        self._office = office
        self._runtime = office.runtime
        self._silent_until: dict[PeerId, float] = {}

    def check(self, source: "PeerId", records: "Sequence[Record]", then: Then) -> None:
        """Ask the owners of these records, which `source` has sent. `then` is called once, perhaps during this call."""
        by_owner: dict[str, list[Record]] = {}
        for record in records:
            by_owner.setdefault(record.owner, []).append(record)
        proven: list[Record] = []
        rest: list[Record] = []
        asked: dict[PeerId, list[Record]] = {}
        for owner, listed in by_owner.items():
            vouchers = self._runtime.members_of(owner) if len(listed) >= RECORDS_MIN else []
            now = self._runtime.now()
            willing = [each for each in vouchers if self._silent_until.get(each, 0.0) <= now]
            if source in vouchers:
                proven += listed  # the owner itself has sent them
            elif willing and len(asked) < OWNERS_MAX:
                asked[willing[0]] = listed
            else:
                rest += listed
        if not asked:
            then(proven, rest)
            return
        waiting = dict.fromkeys(asked)

        def on_answer(peer_id: "PeerId", answer: "Answer") -> None:
            confirmed = self._confirmed(peer_id, asked[peer_id], answer)
            for record, is_confirmed in zip(asked[peer_id], confirmed, strict=True):
                (proven if is_confirmed else rest).append(record)
            del waiting[peer_id]
            if not waiting:
                then(proven, rest)

        for peer_id, listed in asked.items():
            message = Confirm(tuple(RecordDigest(each.name, slot_of(each)[2], digest_of(each)) for each in listed))
            self._runtime.request(
                peer_id,
                encode(message),
                TIMEOUT_S,
                lambda answer, peer_id=peer_id: on_answer(peer_id, answer),  # type: ignore[misc]
            )

    def _confirmed(self, peer_id: "PeerId", records: "list[Record]", answer: "Answer") -> "Sequence[bool]":
        if answer.error is None:
            try:
                reply = decode(answer.data)
                if isinstance(reply, Confirmed) and len(reply.confirmed) == len(records):
                    return reply.confirmed
            except WireError:
                pass
        self._silent_until = {peer: at for peer, at in self._silent_until.items() if at > self._runtime.now()}
        self._silent_until[peer_id] = self._runtime.now() + SILENT_S
        return [False] * len(records)

    def on_confirm(self, message: Confirm) -> Confirmed:
        """Which of these records of our owner name are those that we have."""
        table, owner = self._office.table, self._office.owner
        found = [(each, table.at((owner, each.name, each.writer))) for each in message.records]
        return Confirmed(tuple(record is not None and digest_of(record) == each.digest for each, record in found))
