"""A tape of the simulator, replayed: who died, how the fabric looked, and what is told about it."""

from pathlib import Path

import pytest

from tests.web.made import a_tape
from weft.web.picture import TOLD
from weft.web.replay import NoReplay, Replay, replay, tapes_in
from weft.web.tape_traffic import traffic_of


@pytest.fixture(scope="module")
def kill(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """30 peers, of which six are killed."""
    return replay(a_tape(tmp_path_factory.mktemp("tapes") / "kill", 30))


def sentences(played: Replay) -> list[str]:
    return [entry[2] for entry in played.history.since(0, played.history.end).entries if entry[1] == TOLD]


def test_it_ends_as_one_regular_fabric_of_those_who_live(kill: Replay) -> None:
    told = kill.history.figures(kill.history.end)
    assert (told["peers"], told["links"], told["parts"], told["holes"]) == (24, 48, 1, 0)
    assert told["estimate"] >= told["diameter"] >= 3
    assert told["small"] is False


def test_deaths_are_told_though_the_dead_wrote_nothing(kill: Replay) -> None:
    told = sentences(kill)
    assert "6 peers died" in told
    assert any(each.startswith("all have their links again") for each in told)
    assert sum(kill.history.outline()["deaths"]) == 6


def test_followed_messages_reach_everyone_by_links_that_are_there(kill: Replay) -> None:
    hops = [each for each in kill.history.since(0, kill.history.end).entries if each[1] == "h"]
    assert 0 < kill.followed <= kill.messages
    first = next(each for each in kill.history.since(0, kill.history.end).entries if each[1] == "s")
    reached = {each[5] for each in hops if each[2:4] == first[2:4]}
    assert len(reached) == 29
    assert "shown on their way" in kill.sentence


def test_its_traffic(kill: Replay) -> None:
    samples = traffic_of(kill.path, kill.channel)
    busy = [each for each in samples if each.delivered_per_s]
    assert sum(each.sent_per_s for each in samples) == pytest.approx(kill.messages)
    assert all(each.latency_p50_ms <= each.latency_p99_ms and each.hops_p50 <= each.hops_max for each in busy)
    assert max(each.redundancy for each in busy) > 1


def test_a_split_is_seen(tmp_path: Path) -> None:
    told = sentences(replay(a_tape(tmp_path / "split", 24, "split")))
    assert told.index("the fabric is in 2 parts") < told.index("the fabric is one again")


def test_what_is_no_tape_is_said(tmp_path: Path, kill: Replay) -> None:
    with pytest.raises(NoReplay, match="there is no tape at"):
        replay(tmp_path / "nowhere")
    with pytest.raises(NoReplay, match="no finished file"):
        replay(tmp_path)
    assert tapes_in(tmp_path) == []
    assert tapes_in(kill.path.parent) == [kill.path]
    assert tapes_in(kill.path) == [kill.path]
    broken = tmp_path / "channel=0000000000000000" / "day=2027-01-15"
    broken.mkdir(parents=True)
    (broken / "x.parquet").write_bytes(b"not Parquet")
    with pytest.raises(NoReplay, match="cannot be read"):
        replay(tmp_path)
