"""The address cache: bounded, without oneself, those that failed replaced first, and its index always true."""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broadloom.protocol.membership.peer_cache import FAILURES_MAX, PeerCache
from broadloom.wire import PeerId
from tests.protocol.fake_runtime import ME, peer_info


def cache_of(*names: PeerId, cache_max: int = 8) -> PeerCache:
    cache = PeerCache(ME, cache_max, Random(1))
    for name in names:
        cache.add(peer_info(name))
    return cache


def test_it_never_grows_beyond_its_limit_and_keeps_the_newest() -> None:
    cache = cache_of(cache_max=8)
    for name in range(1, 100):
        cache.add(peer_info(name))
        assert len(cache) == min(name, 8)
        assert name in cache


def test_i_am_never_in_it() -> None:
    cache = cache_of(ME)
    cache.mark_alive(peer_info(ME))
    assert len(cache) == 0
    assert ME not in cache
    assert cache.pick() is None


def test_those_that_failed_are_replaced_first() -> None:
    cache = cache_of(*range(1, 9))
    for name in (3, 5):
        cache.mark_failed(name)
    for name in (11, 12):
        cache.add(peer_info(name))
    assert [name for name in range(1, 20) if name in cache] == [1, 2, 4, 6, 7, 8, 11, 12]


def test_who_answers_again_is_as_good_as_before() -> None:
    cache = cache_of(*range(1, 9))
    for name in (3, 5):
        cache.mark_failed(name)
    cache.mark_alive(peer_info(3))
    cache.add(peer_info(11))
    assert 3 in cache
    assert 5 not in cache


def test_one_that_fails_is_kept_for_a_while() -> None:
    cache = cache_of(1, 2)
    for _ in range(FAILURES_MAX - 1):
        cache.mark_failed(1)
    assert 1 in cache
    cache.mark_failed(1)
    assert 1 not in cache
    assert 2 in cache


def test_failures_count_only_in_a_row() -> None:
    cache = cache_of(1)
    for _ in range(3 * FAILURES_MAX):
        cache.mark_failed(1)
        cache.mark_alive(peer_info(1))
    assert 1 in cache


def test_failures_of_strangers_are_not_remembered() -> None:
    cache = cache_of()
    cache.mark_failed(1)
    cache.add(peer_info(1))
    assert cache.sample(1) == (peer_info(1),)


def test_a_sample_has_no_more_than_asked_for_and_nobody_twice() -> None:
    cache = cache_of(*range(1, 9))
    for count in range(12):
        sample = cache.sample(count)
        assert len(sample) == len(set(sample)) == min(count, 8)
        assert all(each.peer_id in cache for each in sample)


def test_samples_are_random() -> None:
    cache = cache_of(*range(1, 9))
    chosen = {each for _ in range(200) for each in cache.sample(2)}
    assert chosen == {peer_info(name) for name in range(1, 9)}


def test_those_that_failed_are_not_passed_on() -> None:
    cache = cache_of(*range(1, 9))
    cache.mark_failed(3)
    for _ in range(50):
        assert peer_info(3) not in (*cache.sample(4), *cache.sample(8))


def test_pick_avoids_who_is_to_be_avoided() -> None:
    cache = cache_of(*range(1, 9))
    for _ in range(50):
        assert cache.pick(excluded=(1, 2, 3, 5, 6, 7, 8)) == peer_info(4)
    assert cache.pick(excluded=range(1, 9)) is None
    assert {cache.pick() for _ in range(200)} == {peer_info(name) for name in range(1, 9)}


def test_a_hopeful_pick_is_one_that_did_not_fail_if_there_is_any() -> None:
    cache = cache_of(*range(1, 9))
    for name in range(1, 7):
        cache.mark_failed(name)
    assert {cache.pick(prefer_responsive=True) for _ in range(100)} == {peer_info(7), peer_info(8)}
    assert {cache.pick(excluded=(7,), prefer_responsive=True) for _ in range(100)} == {peer_info(8)}
    assert {cache.pick(excluded=(7, 8), prefer_responsive=True) for _ in range(300)} == {
        peer_info(name) for name in range(1, 7)
    }


names = st.integers(0, 12)


class CacheMachine(RuleBasedStateMachine):
    """Any history of a small cache, beside a plain dict of who is in it and how often each failed in a row."""

    CACHE_MAX = 5

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache_of(cache_max=self.CACHE_MAX)
        self.failures: dict[PeerId, int] = {}

    def _present(self) -> list[PeerId]:
        return [name for name in range(13) if name in self.cache]

    def _came(self, name: PeerId) -> None:
        """The model follows a newcomer, and checks who had to go for it."""
        if name in self.failures:
            return
        gone = [each for each in self.failures if each not in self.cache]
        assert len(gone) == (len(self.failures) == self.CACHE_MAX)
        if any(self.failures.values()):
            assert all(self.failures[each] for each in gone), "one that had not failed was replaced"
        for each in gone:
            del self.failures[each]
        self.failures[name] = 0

    @rule(name=names)
    def add(self, name: PeerId) -> None:
        self.cache.add(peer_info(name))
        self._came(name)

    @rule(name=names)
    def answered(self, name: PeerId) -> None:
        self.cache.mark_alive(peer_info(name))
        if name in self.failures:
            self.failures[name] = 0
        self._came(name)

    @rule(name=names)
    def failed(self, name: PeerId) -> None:
        self.cache.mark_failed(name)
        if name in self.failures:
            self.failures[name] += 1
            if self.failures[name] == FAILURES_MAX:
                del self.failures[name]

    @rule(name=names)
    def dropped(self, name: PeerId) -> None:
        self.cache.drop(name)
        self.failures.pop(name, None)

    @invariant()
    def the_cache_and_the_model_agree(self) -> None:
        assert self._present() == sorted(self.failures)
        assert len(self.cache) == len(self.failures) <= self.CACHE_MAX

    @invariant()
    def every_entry_is_where_the_index_says(self) -> None:
        for name in self.failures:
            others = [each for each in self.failures if each != name]
            assert self.cache.pick(others) == peer_info(name)
        assert self.cache.pick(list(self.failures)) is None

    @invariant()
    def a_sample_of_all_has_all_that_did_not_fail(self) -> None:
        good = sorted(name for name, count in self.failures.items() if not count)
        assert sorted(each.peer_id for each in self.cache.sample(self.CACHE_MAX)) == good


TestAnyHistory = CacheMachine.TestCase


def test_one_message_cannot_replace_all_that_we_know() -> None:
    cache = PeerCache(ME, 128, Random(1))
    for name in range(1000, 1128):
        cache.add(peer_info(name))
    cache.add_all([peer_info(name) for name in range(2000, 2256)])
    assert sum(each.peer_id < 2000 for each in cache.sample(128)) >= 112
