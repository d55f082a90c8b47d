"""The state tables of joining, and the document generated from them."""

from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from broadloom.protocol.events import PeerState
from broadloom.protocol.membership.discovery import Discovery
from broadloom.protocol.membership.join_states import (
    DISCOVERY,
    LIFECYCLE,
    DiscoveryEvent,
    DiscoveryState,
    PeerEvent,
    Transition,
    render,
    render_meanings,
)
from broadloom.protocol.peer import Peer

DOCUMENT = Path(__file__).parents[3] / "docs" / "protocol" / "README.md"

both_tables = pytest.mark.parametrize(
    ("table", "owner", "states", "events"),
    [(LIFECYCLE, Peer, PeerState, PeerEvent), (DISCOVERY, Discovery, DiscoveryState, DiscoveryEvent)],
    ids=["lifecycle", "discovery"],
)
Table = tuple[Transition[Any, Any], ...]


@both_tables
def test_table_has_one_row_per_state_and_event(
    table: Table, owner: type, states: type[Enum], events: type[Enum]
) -> None:
    keys = [(row.state, row.event) for row in table]
    assert len(set(keys)) == len(keys)
    assert {row.event for row in table} == set(events)
    assert {row.state for row in table} | {row.next_state for row in table} == set(states)


@both_tables
def test_table_names_existing_actions(table: Table, owner: type, states: type[Enum], events: type[Enum]) -> None:
    for row in table:
        assert row.action is None or callable(getattr(owner, f"_{row.action}")), row


@both_tables
def test_table_reaches_every_state_from_the_first(
    table: Table, owner: type, states: type[Enum], events: type[Enum]
) -> None:
    reached = {table[0].state}
    for _ in states:
        reached |= {row.next_state for row in table if row.state in reached}
    assert reached == set(states)


@both_tables
def test_document_contains_the_rendered_table(
    table: Table, owner: type, states: type[Enum], events: type[Enum]
) -> None:
    text = DOCUMENT.read_text()
    assert f"```mermaid\n{render(table)}\n```" in text, f"docs/protocol/README.md should contain:\n{render(table)}"
    assert render_meanings(events) in text, f"docs/protocol/README.md should contain:\n{render_meanings(events)}"


def test_document_explains_the_states_of_discovery() -> None:
    assert render_meanings(DiscoveryState) in DOCUMENT.read_text()
