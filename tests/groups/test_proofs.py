"""Channels with tickets: posts are signed, and any member can serve them with the proof."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broadloom.groups import proofs
from broadloom.groups.message_fields import pack_posts, unpack_posts
from broadloom.groups.model import MessageId, Post
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.security import Authority, PeerCredentials, RevocationList, revoke_tickets
from broadloom.security.post_signer import PostSigner
from broadloom.wire.xdr import WireError

CLUB = ChannelName.parse("chess/club-42")
OWNER = Authority.generate()
GROUP, NONCE = 7, 12345
NOW = datetime.now(UTC)
NOW_MS = int(1000 * NOW.timestamp())


def signer_of(
    name: str, role: Role = Role.PRODUCER, owner: Authority = OWNER, channel: ChannelName = CLUB
) -> PostSigner:
    ticket = owner.issue_ticket(name, role, NOW + timedelta(days=1))
    signer = PeerCredentials.from_ticket(channel, ticket).post_signer
    assert signer is not None
    return signer


ANNA, BEN = signer_of("anna"), signer_of("ben")


def post_of(signer: PostSigner, sequence: int = 1, sent_at_ms: int = NOW_MS, nonce: int = NONCE) -> Post:
    parent = MessageId(5, 9) if sequence > 1 else None
    author = proofs.member_id(signer.name, nonce)
    return proofs.signed(signer, GROUP, nonce, Post(author, sequence, parent, sent_at_ms, b"hello"))


def test_any_member_can_verify_a_post_that_another_one_passes_on() -> None:
    (passed_on,) = unpack_posts(pack_posts([post_of(ANNA, 2)]))
    assert passed_on.verified_name == ""
    proven = proofs.verified(BEN, GROUP, passed_on)
    assert proven is not None
    assert proven == post_of(ANNA, 2)._replace(proof=passed_on.proof)
    assert proven.verified_name == "anna"


def test_page_has_each_credential_once() -> None:
    posts = [post_of(ANNA, 1), Post(3, 1, None, 0, b"unproven"), post_of(BEN, 1), post_of(ANNA, 2)]
    body = pack_posts(posts)
    assert [each._replace(verified_name="") for each in posts] == list(unpack_posts(body))
    assert len(body) < len(ANNA.credential) + len(BEN.credential) + 600


def test_stripped_post_keeps_its_proof() -> None:
    bare = proofs.stripped(post_of(ANNA))
    assert (bare.data, bare.is_stripped) == (b"", True)
    (passed_on,) = unpack_posts(pack_posts([proofs.stripped(bare)]))
    proven = proofs.verified(BEN, GROUP, passed_on)
    assert proven is not None
    assert proven.verified_name == "anna"


@pytest.mark.parametrize(
    "change",
    [
        {"data": b"bye"},
        {"sequence": 3},
        {"parent_id": None},
        {"sent_at_ms": NOW_MS + 1},
        {"author": proofs.member_id("ben", NONCE)},
        {"author": proofs.member_id("anna", NONCE + 1)},
        {"proof": b""},
        {"credential": b""},
        {"credential": BEN.credential},
        {"credential": b"noise"},
        {"is_stripped": True, "data": b"", "proof": post_of(ANNA, 2).proof + bytes(32)},
    ],
)
def test_changed_post_is_rejected(change: dict[str, object]) -> None:
    assert proofs.verified(BEN, GROUP, post_of(ANNA, 2)._replace(**change)) is None  # type: ignore[arg-type]


def test_post_for_another_group_channel_or_owner_is_rejected() -> None:
    assert proofs.verified(BEN, GROUP + 1, post_of(ANNA)) is None
    elsewhere = signer_of("anna", channel=ChannelName.parse("chess/club-43"))
    assert proofs.verified(BEN, GROUP, post_of(elsewhere)) is None
    assert proofs.verified(BEN, GROUP, post_of(signer_of("anna", owner=Authority.generate()))) is None


def test_member_cannot_sign_for_another_with_its_own_ticket() -> None:
    author = proofs.member_id("anna", NONCE)
    forged = proofs.signed(BEN, GROUP, NONCE, Post(author, 1, None, NOW_MS, b"I am Anna"))
    assert proofs.verified(signer_of("cleo"), GROUP, forged) is None


def test_consumer_cannot_post_through_history() -> None:
    assert proofs.verified(BEN, GROUP, post_of(signer_of("eve", Role.CONSUMER))) is None


def test_post_outside_the_validity_of_its_ticket_is_rejected() -> None:
    for days in (-2, 2):
        assert proofs.verified(BEN, GROUP, post_of(ANNA, sent_at_ms=NOW_MS + days * 86_400_000)) is None
    assert proofs.verified(BEN, GROUP, post_of(ANNA, sent_at_ms=(1 << 64) - 1)) is None


def test_posts_of_an_expired_ticket_stay_valid_and_those_of_a_revoked_one_do_not(tmp_path: Path) -> None:
    path, old = tmp_path / "revoked.pem", NOW - timedelta(days=10)
    ticket = OWNER.issue_ticket("anna", Role.PRODUCER, old + timedelta(days=1), now=lambda: old)
    past = PeerCredentials.from_ticket(CLUB, ticket, now=lambda: old).post_signer
    assert past is not None
    post = post_of(past, sent_at_ms=int(1000 * old.timestamp()) + 1000)
    assert proofs.verified(BEN, GROUP, post) is not None
    revoke_tickets(OWNER, path, [ticket.serial])
    mine = OWNER.issue_ticket("strict", Role.PRODUCER, NOW + timedelta(days=1))
    strict = PeerCredentials.from_ticket(CLUB, mine, RevocationList(path, OWNER.certificate)).post_signer
    assert strict is not None
    assert proofs.verified(strict, GROUP, post) is None


def test_renewed_ticket_with_the_same_name_is_the_same_member() -> None:
    assert post_of(signer_of("anna")).author == post_of(ANNA).author
    assert post_of(ANNA, nonce=1).author != post_of(ANNA, nonce=2).author
    assert proofs.is_provable(post_of(ANNA).author)


@pytest.mark.parametrize("size", [0, 1, 71, 73, 104])
def test_proof_of_wrong_size_is_malformed(size: int) -> None:
    with pytest.raises(WireError):
        unpack_posts(pack_posts([post_of(ANNA)._replace(proof=bytes(size or 200))]))


def test_store_keeps_proofs_and_reads_stores_of_the_previous_format(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    store = SqliteStore(path)
    for sequence in (1, 2):
        store.history(GROUP).add(post_of(ANNA, sequence), "Anna")
    store.close()
    store = SqliteStore(path)
    assert [post for _, post in store.history(GROUP).scan(0, 10)] == [post_of(ANNA, 1), post_of(ANNA, 2)]
    store.close()
    with sqlite3.connect(path) as db:  # as the previous version wrote it
        db.execute("drop table credentials")
        db.execute("alter table posts drop column proof")
        db.execute("alter table posts drop column credential")
        db.execute("pragma user_version = 1")
    db.close()
    store = SqliteStore(path)
    assert [post.proof for _, post in store.history(GROUP).scan(0, 10)] == [b"", b""]
    store.history(GROUP).add(post_of(BEN), "Ben")
    assert store.history(GROUP).get(post_of(BEN).id) == post_of(BEN)
    store.close()
