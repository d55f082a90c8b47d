from dataclasses import fields, replace
from typing import Any

import pytest

import broadloom
from broadloom.protocol import ChannelSettings, Tuning
from broadloom.transport.limits import Limits, TcpTuning


def test_public_settings_are_few_and_constants_are_not_exported() -> None:
    assert len(fields(ChannelSettings)) == 12
    assert not {"Tuning", "TcpTuning", "Limits"} & set(broadloom.__all__)


def test_degree_outside_its_range_raises_value_error() -> None:
    for degree in (2, 33):
        with pytest.raises(ValueError, match=f"between 3 and 32, not {degree}"):
            ChannelSettings(degree=degree)
        with pytest.raises(ValueError, match="degree"):
            Tuning(degree=degree)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"retention_s": -1}, ValueError, "retention_s must be between 0.1 and 86,400"),
        ({"retention_s": float("nan")}, ValueError, "retention_s must be between"),
        ({"heartbeat_s": 0}, ValueError, "heartbeat_s must be between"),
        ({"heartbeat_s": 5, "heartbeat_timeout_s": 5}, ValueError, "at least twice heartbeat_s"),
        ({"exchange_timeout_s": "4"}, TypeError, "exchange_timeout_s must be a number, not '4'"),
        ({"discovery_ports": 0}, ValueError, "discovery_ports must be between 1 and"),
        ({"message_bytes_max": 1e6}, TypeError, "message_bytes_max must be a whole number"),
        ({"retention_bytes_max": -1}, ValueError, "retention_bytes_max must be between"),
        ({"send_queue_bytes_max": 1}, ValueError, "send_queue_bytes_max must be between"),
        ({"socket_buffer_bytes": True}, TypeError, "socket_buffer_bytes must be a whole number"),
        ({"accept_channel_close": "no"}, TypeError, "accept_channel_close must be True, False or None"),
    ],
)
def test_setting_that_cannot_work_raises(values: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ChannelSettings(**values)


def test_authors_max_beyond_a_digest_raises_value_error() -> None:
    with pytest.raises(ValueError, match="authors_max"):
        Tuning(authors_max=1 << 20)


@pytest.mark.parametrize("profile", [ChannelSettings.lan, ChannelSettings.wan, ChannelSettings.many_small])
def test_tuning_of_settings_keeps_every_public_value(profile: type[ChannelSettings]) -> None:
    settings = replace(profile(), retention_s=7.0)
    tuning = Tuning.of(settings)
    for each in fields(ChannelSettings):
        assert getattr(tuning, each.name) == getattr(settings, each.name)


def test_tuning_of_defaults_equals_default_tuning() -> None:
    assert Tuning.of(None) == Tuning.of(ChannelSettings()) == Tuning.of(ChannelSettings.lan()) == Tuning()


def test_tuning_of_tuning_is_the_same_object() -> None:
    tuning = TcpTuning(tick_s=9.0, limits=Limits(close_timeout_s=1.0))
    assert Tuning.of(tuning) is tuning


def test_reservations_grow_with_exchange_timeout_and_never_shrink() -> None:
    slow = Tuning.of(ChannelSettings(exchange_timeout_s=12.0))
    assert (slow.slot_reservation_s, slow.edge_reservation_s, slow.join_timeout_s) == (7.5, 18.0, 6.0)
    fast = Tuning.of(ChannelSettings(exchange_timeout_s=1.0))
    assert replace(fast, exchange_timeout_s=4.0) == Tuning()
    for profile in (ChannelSettings.lan(), ChannelSettings.wan(), ChannelSettings.many_small()):
        tuning = Tuning.of(profile)
        assert tuning.edge_reservation_s > tuning.exchange_timeout_s
