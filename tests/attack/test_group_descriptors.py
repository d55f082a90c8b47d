"""Only the creator of a group chooses its description and retention, on a channel with tickets."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broadloom.groups import creator_proofs, proofs
from broadloom.groups.codec import encode
from broadloom.groups.creator_proofs import Check
from broadloom.groups.message_fields import (
    GroupDescriptor,
    GroupRecord,
    MembershipRecord,
    pack_group_records,
    unpack_group_records,
)
from broadloom.groups.messages import DirectoryPage
from broadloom.groups.model import GroupId
from broadloom.groups.settings import RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import StoredGroup
from broadloom.protocol.identity import Role
from broadloom.security import PeerCredentials, RevocationList, revoke_tickets
from tests.groups.group_bus import BusMember, GroupBus
from tests.groups.sim_post_signer import ticketed_bus
from tests.groups.test_proofs import ANNA, BEN, CLUB, NONCE, NOW, NOW_MS, OWNER, signer_of

KEPT = RetentionPolicy(messages_max=1000)
SMALLER = RetentionPolicy(messages_max=1)


def sim_club(group: GroupId | None = None) -> tuple[GroupBus, GroupId, list[BusMember]]:
    bus = ticketed_bus(1)
    members = [bus.add(name) for name in ("anna", "ben", "mallory")]
    group = members[0].participant.create("Chess club", KEPT, group)
    bus.run(10)
    members[1].participant.join(group)
    bus.run(10)
    return bus, group, members


def false_descriptors(mallory: BusMember, anna: BusMember) -> dict[str, GroupDescriptor]:
    signer, nonce = mallory.post_signer, mallory.participant.nonce
    assert signer is not None
    plain = GroupDescriptor(1, "AAA", SMALLER)
    mine, hers = (plain._replace(creator=each.participant.me.id) for each in (mallory, anna))
    true = anna.participant.directory.entries
    (descriptor,) = [entry.descriptor for entry in true.values() if entry.descriptor is not None]
    return {
        "unsigned": plain,
        "unsigned, in her name": hers,
        "signed": creator_proofs.signed(signer, nonce, NOW_MS, mine),
        "signed, in her name": creator_proofs.signed(signer, nonce, NOW_MS, hers),
        "changed": descriptor._replace(description="AAA", retention=SMALLER),
    }


def false_page(group: GroupId, descriptor: GroupDescriptor) -> DirectoryPage:
    record = GroupRecord(group, descriptor, (MembershipRecord(12345, "x", 1),))
    return DirectoryPage(0, 1, False, True, 0, (), (), pack_group_records([record]))


def shown(member: BusMember, group: GroupId) -> tuple[str, RetentionPolicy, RetentionPolicy | None]:
    info, conversation = member.participant.info(group), member.participant.conversations.get(group)
    return info.description, info.retention, conversation.retention if conversation is not None else None


@pytest.mark.parametrize("kind", ["unsigned", "unsigned, in her name", "signed", "signed, in her name", "changed"])
@pytest.mark.parametrize("well_known", [None, 7])
def test_stranger_cannot_change_description_and_retention(kind: str, well_known: GroupId | None) -> None:
    bus, group, (anna, ben, mallory) = sim_club(well_known)
    mallory.participant.send(false_page(group, false_descriptors(mallory, anna)[kind]))
    bus.run(5)
    for member in (anna, ben):
        assert shown(member, group) == ("Chess club", KEPT, KEPT)
    bus.kill(mallory)
    newcomer = bus.add("newcomer")
    bus.run(10)
    newcomer.participant.join(group)
    bus.run(60)
    assert shown(newcomer, group) == ("Chess club", KEPT, KEPT)
    requests = bus.count()["DirectoryRequest"]
    bus.run(300)
    assert bus.count()["DirectoryRequest"] == requests, "the directories are equal"


def test_newcomer_that_was_lied_to_learns_the_descriptor_of_the_creator() -> None:
    bus, group, (anna, _, mallory) = sim_club()
    newcomer = bus.add("newcomer")
    lie = false_page(group, false_descriptors(mallory, anna)["unsigned"])
    newcomer.participant.on_message(mallory.peer_id, encode(lie))
    newcomer.participant.join(group)
    assert shown(newcomer, group) == ("AAA", SMALLER, SMALLER)
    bus.run(60)
    assert shown(newcomer, group) == ("Chess club", KEPT, KEPT)
    assert newcomer.participant.directory.hash == anna.participant.directory.hash


def test_groups_created_at_the_same_time_have_different_ids() -> None:
    bus = ticketed_bus(1)
    anna = bus.add("anna")
    assert len({anna.participant.create("one"), anna.participant.create("two")}) == 2


CREATOR = proofs.member_id("anna", NONCE)
GROUP = creator_proofs.group_id(CREATOR, NOW_MS)
TICKET = OWNER.issue_ticket("anna", Role.PRODUCER, NOW + timedelta(days=1))
HOLDER = PeerCredentials.from_ticket(CLUB, TICKET).post_signer
"""Made here, because a certificate must not be younger than what it signs."""
SIGNED = creator_proofs.signed(ANNA, NONCE, NOW_MS, GroupDescriptor(CREATOR, "Chess club", KEPT))


def test_store_and_pages_keep_the_proof(tmp_path: Path) -> None:
    plain = GroupRecord(3, GroupDescriptor(9, "lobby", KEPT), ())
    records = (plain, GroupRecord(GROUP, None, ()), GroupRecord(GROUP, SIGNED, ()))
    assert unpack_group_records(pack_group_records(records)) == records
    store = SqliteStore(tmp_path / "a.db")
    store.save_group(StoredGroup(records[2], True))
    assert store.groups() == [StoredGroup(records[2], True)]
    store.close()
    assert creator_proofs.check(BEN, GROUP, SIGNED) is Check.PROVEN


@pytest.mark.parametrize(
    "change",
    [
        {"description": "AAA"},
        {"retention": SMALLER},
        {"retention": RetentionPolicy(messages_max=1000, ids_only=True)},
        {"creator": proofs.member_id("ben", NONCE)},
        {"credential": BEN.credential},
        {"proof": bytes(len(SIGNED.proof))},
    ],
)
def test_changed_descriptor_is_forged(change: dict[str, object]) -> None:
    assert creator_proofs.check(BEN, GROUP, SIGNED._replace(**change)) is Check.FORGED  # type: ignore[arg-type]


def test_descriptor_is_valid_for_its_group_only_and_of_this_owner_only() -> None:
    assert creator_proofs.check(BEN, GROUP + 1, SIGNED) is Check.FORGED
    stranger = signer_of("anna", owner=type(OWNER).generate())
    foreign = creator_proofs.signed(stranger, NONCE, NOW_MS, SIGNED._replace(proof=b"", credential=b""))
    assert creator_proofs.check(BEN, GROUP, foreign) is Check.UNPROVEN


def test_group_outlives_the_ticket_of_its_creator(tmp_path: Path) -> None:
    """All members agree on the descriptor, whether they have the revocation list or not."""
    path = tmp_path / "revoked.pem"
    assert HOLDER is not None
    signed = creator_proofs.signed(HOLDER, NONCE, NOW_MS, SIGNED._replace(proof=b"", credential=b""))
    revoke_tickets(OWNER, path, [TICKET.serial])
    mine = OWNER.issue_ticket("strict", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
    strict = PeerCredentials.from_ticket(CLUB, mine, RevocationList(path, OWNER.certificate)).post_signer
    assert strict is not None
    assert creator_proofs.check(strict, GROUP, signed) is Check.PROVEN
