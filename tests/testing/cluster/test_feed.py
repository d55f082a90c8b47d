"""The feed of a cluster, message sampling, traffic rates and metrics."""

import json
import time
from random import Random
from typing import Any

import pytest

from broadloom.testing.cluster.config import ClusterConfig, TrafficRates
from broadloom.testing.cluster.metrics import MetricsSampler
from broadloom.testing.errors import ConfigError
from broadloom.testing.processes.peer_observer import SampledMessages
from broadloom.testing.workloads import feed


def test_tick_carries_its_time_of_sending() -> None:
    before = time.time()
    data = feed.tick(Random(1), {})
    at_s = feed.sent_at(data)
    assert at_s is not None
    assert before - 0.001 <= at_s <= time.time()
    assert json.loads(data)["at"] == at_s


@pytest.mark.parametrize("data", [b"", b"hello", b'{"at":', b'{"at":nonsense, "kind": 1}', b'{"at":1}'])
def test_foreign_payload_is_ignored(data: bytes) -> None:
    assert feed.sent_at(data) is None


def test_member_names_are_unique() -> None:
    names = [feed.member_name(number) for number in range(1, 201)]
    assert len(set(names)) == 200


def test_all_peers_sample_the_same_messages() -> None:
    one, other = SampledMessages(), SampledMessages()
    one.one_in = other.one_in = 10
    messages = [(author * 0x1234567, sequence) for author in range(1, 30) for sequence in range(1, 200)]
    chosen = [each for each in messages if one.is_sampled(*each)]
    assert chosen == [each for each in messages if other.is_sampled(*each)]
    assert 0.05 < len(chosen) / len(messages) < 0.2
    one.one_in = 0
    assert not any(one.is_sampled(*each) for each in messages)


def test_default_rates_shrink_with_more_peers() -> None:
    assert TrafficRates.default_for(24).total_per_s == TrafficRates.default_for(2).total_per_s
    assert TrafficRates.default_for(200).total_per_s == pytest.approx(3.0)
    assert TrafficRates.default_for(1000).total_per_s > 0


@pytest.mark.parametrize("wrong", [{"peers": 1}, {"peers": 100_000}, {"processes_max": 0}, {"file_duration_s": 0}])
def test_invalid_cluster_config_raises_config_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClusterConfig(**wrong)


def counts(**values: object) -> dict[str, object]:
    empty = dict.fromkeys(("sent", "delivered", "received", "duplicates", "missed", "links_made", "links_lost"), 0)
    return {**empty, "hops": [], "latency": {}, "slow": [], **values}


def test_metrics_sample_summarizes_one_second() -> None:
    sampler = MetricsSampler()
    sampler.on_counts(1, counts(sent=2, delivered=10, received=10, duplicates=20, hops=[[1, 4], [3, 6]], slow=[7]))
    sampler.on_counts(2, counts(delivered=10, received=10, duplicates=20, links_made=2, slow=[7, 8]))
    sample = sampler.tick(5)
    assert (sample.redundancy, sample.hops_p50, sample.hops_max) == (3.0, 3.0, 3)
    assert (sample.slow_peers, sample.links_made, sample.peers) == (2, 1, 5)
    assert sampler.delivered == 20
    after = sampler.tick(5)
    assert (after.delivered_per_s, after.redundancy, after.hops_max) == (0.0, 0.0, 0)
