"""A history is drawn at any moment as it was, keeps within its limit, and says when something is no longer there."""

from random import Random

from broadloom.testing.cluster.timeline import (
    Annotation,
    Change,
    LinkAdded,
    LinkRemoved,
    MessageHop,
    MessagesMissed,
    PeerAdded,
    PeerRemoved,
)
from broadloom.web.history import CHUNK_ENTRIES_MAX, FabricHistory
from broadloom.web.snapshot import PEER_STATS, Snapshot


def changes(count: int, seed: int = 1) -> list[Change]:
    """A made-up story: peers and links come and go."""
    random = Random(seed)
    generated: list[Change] = []
    present: list[int] = []
    links: set[tuple[int, int]] = set()
    for number in range(count):
        at_s = 1000.0 + number / 10
        if len(present) < 4 or random.random() < 0.2:
            present.append(number)
            generated.append(PeerAdded(at_s, number, str(number)))
        elif random.random() < 0.15:
            departed = present.pop(random.randrange(len(present)))
            generated += [LinkRemoved(at_s, *pair) for pair in sorted(links) if departed in pair]
            links = {pair for pair in links if departed not in pair}
            generated.append(PeerRemoved(at_s, departed, "died"))
        else:
            a, b = sorted(random.sample(present, 2))
            generated.append(LinkRemoved(at_s, a, b) if (a, b) in links else LinkAdded(at_s, a, b))
            links ^= {(a, b)}
    return generated


def replay_entries(history: FabricHistory, until: float) -> Snapshot:
    """The picture that a browser has which got everything from the beginning on."""
    snapshot, number = Snapshot(), 0
    while True:
        part = history.since(number, until)
        assert not part.is_expired
        if not part.entries:
            return snapshot
        for entry in part.entries:
            snapshot.apply(entry)
        number = part.next


def test_snapshot_equals_applied_changes() -> None:
    history = FabricHistory(1000.0)
    history.add_all(changes(9_000))
    for moment in (0.0, 3.21, 399.95, 400.0, 777.7, history.end):
        _, picture = history.at(moment)
        again = replay_entries(history, moment)
        assert (picture.peers, list(picture.links)) == (again.peers, list(again.links))
    assert history.at(history.end)[1].peers


def test_history_can_be_played_from_any_moment() -> None:
    history = FabricHistory(1000.0)
    history.add_all(changes(9_000))
    number, kept = history.at(321.0)
    picture = kept.copy()
    while entries := (part := history.since(number, history.end)).entries:
        assert len(entries) <= CHUNK_ENTRIES_MAX
        for entry in entries:
            picture.apply(entry)
        number = part.next
    assert picture.peers == history.newest.peers
    assert picture.links == history.newest.links


def test_full_history_drops_its_beginning_and_reports_it() -> None:
    history = FabricHistory(1000.0, entries_max=10_000)
    history.add_all(changes(13_000))
    assert history.since(0, history.end).is_expired
    assert history.start > 0
    number, picture = history.at(0.0)
    assert not history.since(number, history.end).is_expired
    for entry in history.since(number, history.start + 10).entries:
        picture.apply(entry)
    assert picture.peers == history.at(history.start + 10)[1].peers


def test_figures_and_overview_are_computed() -> None:
    history = FabricHistory(1000.0)
    history.add_all([PeerAdded(1000.0 + n, n, str(n)) for n in range(4)])
    history.add_all([LinkAdded(1004.0, a, b) for a, b in ((0, 1), (1, 2), (2, 3), (0, 99))])
    history.add((4.5, PEER_STATS, 7, [[0, 1], [42, 1]], False, [3]))
    history.add_all(
        [MessageHop(1005.0, 0, 1, 0, 1, 1), MessagesMissed(1006.0, 3, 0, 5, 9), Annotation(1006.0, "so it is")]
    )
    stats = history.stats(history.end)
    assert (stats["peers"], stats["links"], stats["partitions"], stats["diameter"]) == (4, 3, 1, 3)
    assert (stats["free_slots"], stats["missed"], stats["estimate"], stats["paused"]) == (1, 5, 7, [3])
    history.add_all([LinkRemoved(1007.0, 1, 2), PeerRemoved(1008.0, 2, "killed"), PeerRemoved(1009.0, 1, "left")])
    assert history.stats(8.5)["partitions"] == 2
    assert history.stats(8.5)["diameter"] is None
    outline = history.overview()
    assert (max(outline["peers"]), outline["peers"][-1], sum(outline["deaths"])) == (4, 2, 1)


def test_snapshot_comes_with_the_last_log_lines() -> None:
    history = FabricHistory(1000.0)
    history.add_all([Annotation(1000.0 + number, f"number {number}") for number in range(20)])
    assert [entry[2] for entry in history.annotations(2.5)] == ["number 0", "number 1", "number 2"]
    assert [entry[2] for entry in history.annotations(99.0)][-1] == "number 19"
    assert len(history.annotations(99.0)) == 8
