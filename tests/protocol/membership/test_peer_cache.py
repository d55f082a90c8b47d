"""The peer cache: bounded, without the own id, failed peers apart from the others, and a consistent index."""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broadloom.protocol.membership.peer_cache import FAILED_SHARE, PeerCache
from broadloom.wire import PeerId
from tests.protocol.fake_runtime import ME, peer_info


def cache_of(*peer_ids: PeerId, cache_max: int = 8) -> PeerCache:
    cache = PeerCache(ME, cache_max, Random(1))
    for peer_id in peer_ids:
        cache.add(peer_info(peer_id))
    return cache


def test_peer_cache_is_bounded_and_keeps_the_newest() -> None:
    cache = cache_of(cache_max=8)
    for peer_id in range(1, 100):
        cache.add(peer_info(peer_id))
        assert len(cache) == min(peer_id, 8)
        assert peer_id in cache


def test_peer_cache_never_contains_own_id() -> None:
    cache = cache_of(ME)
    cache.mark_alive(peer_info(ME))
    assert len(cache) == 0
    assert ME not in cache
    assert cache.pick() is None


def test_failed_peers_leave_room_for_others_and_few_of_them_are_kept() -> None:
    cache = cache_of(*range(1, 9))
    for peer_id in (3, 5, 4, 6):
        cache.mark_failed(peer_id)
    kept = [peer_id for peer_id in (3, 4, 5, 6) if peer_id in cache]
    assert len(kept) == 8 // FAILED_SHARE
    for peer_id in range(21, 60):
        cache.add(peer_info(peer_id))
    assert [peer_id for peer_id in (3, 4, 5, 6) if peer_id in cache] == kept
    assert len(cache) == 8 + 8 // FAILED_SHARE


def test_failed_peer_recovers_when_it_answers() -> None:
    cache = cache_of(*range(1, 9))
    cache.mark_failed(3)
    cache.add(peer_info(3))  # others may still think that it is alive
    assert cache.responsive_count == 7
    cache.mark_alive(peer_info(3))
    assert cache.responsive_count == 8
    assert peer_info(3) in cache.sample(8)


def test_forgiven_peers_count_as_responsive() -> None:
    cache = cache_of(*range(1, 9))
    for peer_id in (3, 5):
        cache.mark_failed(peer_id)
    cache.forgive()
    assert sorted(each.peer_id for each in cache.sample(8)) == list(range(1, 9))


def test_full_sample_is_taken_although_many_peers_failed() -> None:
    cache = cache_of(*range(1, 129), cache_max=128)
    for peer_id in range(1, 113):
        cache.mark_failed(peer_id)
    for _ in range(50):
        assert {each.peer_id for each in cache.sample(16)} == set(range(113, 129))
        assert {each.peer_id for each in cache.sample_for_newcomer(16)} == set(range(113, 129))


def test_failed_peer_is_kept_however_often_it_fails() -> None:
    cache = cache_of(1, 2)
    for _ in range(1000):
        cache.mark_failed(1)
    assert cache.pick(excluded=(2,)) == peer_info(1)
    assert cache.responsive_count == 1


def test_failures_of_uncached_peers_are_ignored() -> None:
    cache = cache_of()
    cache.mark_failed(1)
    cache.add(peer_info(1))
    assert cache.sample(1) == (peer_info(1),)


def test_sample_is_bounded_and_has_no_duplicates() -> None:
    cache = cache_of(*range(1, 9))
    for count in range(12):
        sample = cache.sample(count)
        assert len(sample) == len(set(sample)) == min(count, 8)
        assert all(each.peer_id in cache for each in sample)


def test_samples_are_random() -> None:
    cache = cache_of(*range(1, 9))
    chosen = {each for _ in range(200) for each in cache.sample(2)}
    assert chosen == {peer_info(peer_id) for peer_id in range(1, 9)}


def test_sample_contains_no_failed_peers() -> None:
    cache = cache_of(*range(1, 9))
    cache.mark_failed(3)
    for _ in range(50):
        assert peer_info(3) not in (*cache.sample(4), *cache.sample(8))


def test_sample_for_newcomer_is_filled_up_with_failed_peers() -> None:
    cache = cache_of(*range(1, 9))
    for peer_id in (3, 5):
        cache.mark_failed(peer_id)
    for _ in range(50):
        assert len({*cache.sample_for_newcomer(7)}) == 7
    assert sorted(each.peer_id for each in cache.sample_for_newcomer(16)) == list(range(1, 9))


def test_pick_skips_excluded_peers() -> None:
    cache = cache_of(*range(1, 9))
    for _ in range(50):
        assert cache.pick(excluded=(1, 2, 3, 5, 6, 7, 8)) == peer_info(4)
    assert cache.pick(excluded=range(1, 9)) is None
    assert {cache.pick() for _ in range(200)} == {peer_info(peer_id) for peer_id in range(1, 9)}


def test_pick_takes_failed_peers_only_if_there_is_no_other() -> None:
    cache = cache_of(*range(1, 9))
    for peer_id in (1, 2):
        cache.mark_failed(peer_id)
    assert {cache.pick() for _ in range(200)} == {peer_info(peer_id) for peer_id in range(3, 9)}
    assert {cache.pick(excluded=range(3, 9)) for _ in range(100)} == {peer_info(1), peer_info(2)}
    assert {cache.pick_for_probe(()) for _ in range(200)} == {peer_info(peer_id) for peer_id in range(1, 9)}
    assert sum(cache.pick_for_probe((1,)) == peer_info(2) for _ in range(1000)) in range(400, 600)
    assert {cache.pick_for_probe((1, 2, *range(4, 9))) for _ in range(100)} == {peer_info(3)}


peer_ids = st.integers(0, 12)


class CacheMachine(RuleBasedStateMachine):
    """Any history of a small cache, compared with a dict of its peers and whether they have failed."""

    CACHE_MAX = 5
    FAILED_MAX = CACHE_MAX // FAILED_SHARE

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache_of(cache_max=self.CACHE_MAX)
        self.has_failed: dict[PeerId, bool] = {}

    def _present(self) -> list[PeerId]:
        return [peer_id for peer_id in range(13) if peer_id in self.cache]

    def _on_put(self, peer_id: PeerId, *, has_failed: bool) -> None:
        """Note in the model what became of the peer, and check which one it replaced."""
        full = self.FAILED_MAX if has_failed else self.CACHE_MAX
        others = [each for each, failed in self.has_failed.items() if failed is has_failed and each != peer_id]
        gone = [each for each in self.has_failed if each not in self.cache]
        assert len(gone) == (len(others) == full)
        for each in gone:
            assert self.has_failed.pop(each) is has_failed
        self.has_failed[peer_id] = has_failed

    @rule(peer_id=peer_ids)
    def add(self, peer_id: PeerId) -> None:
        self.cache.add(peer_info(peer_id))
        if peer_id not in self.has_failed:
            self._on_put(peer_id, has_failed=False)

    @rule(peer_id=peer_ids)
    def answered(self, peer_id: PeerId) -> None:
        self.cache.mark_alive(peer_info(peer_id))
        if self.has_failed.get(peer_id) is not False:
            self._on_put(peer_id, has_failed=False)

    @rule(peer_id=peer_ids)
    def failed(self, peer_id: PeerId) -> None:
        self.cache.mark_failed(peer_id)
        if self.has_failed.get(peer_id) is False:
            self._on_put(peer_id, has_failed=True)

    @rule(peer_id=peer_ids)
    def dropped(self, peer_id: PeerId) -> None:
        self.cache.drop(peer_id)
        self.has_failed.pop(peer_id, None)

    @invariant()
    def the_cache_and_the_model_agree(self) -> None:
        assert self._present() == sorted(self.has_failed)
        assert len(self.cache) == len(self.has_failed) <= self.CACHE_MAX + self.FAILED_MAX
        assert self.cache.responsive_count == len(self.has_failed) - sum(self.has_failed.values())

    @invariant()
    def every_entry_is_where_the_index_says(self) -> None:
        for peer_id in self.has_failed:
            others = [each for each in self.has_failed if each != peer_id]
            assert self.cache.pick(others) == peer_info(peer_id)
        assert self.cache.pick(list(self.has_failed)) is None

    @invariant()
    def a_sample_of_all_has_all_that_did_not_fail(self) -> None:
        good = sorted(peer_id for peer_id, failed in self.has_failed.items() if not failed)
        assert sorted(each.peer_id for each in self.cache.sample(self.CACHE_MAX)) == good
        everyone = self.cache.sample_for_newcomer(self.CACHE_MAX + self.FAILED_MAX)
        assert sorted(each.peer_id for each in everyone) == sorted(self.has_failed)


TestAnyHistory = CacheMachine.TestCase


def test_single_message_cannot_replace_the_cache() -> None:
    cache = PeerCache(ME, 128, Random(1))
    for peer_id in range(1000, 1128):
        cache.add(peer_info(peer_id))
    cache.add_all([peer_info(peer_id) for peer_id in range(2000, 2256)])
    assert sum(each.peer_id < 2000 for each in cache.sample(128)) >= 112
