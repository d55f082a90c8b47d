"""The conversations page without a browser."""

import asyncio
from dataclasses import replace

import pytest
from nicegui import Client, core, ui
from starlette.requests import Request

from broadloom.groups import GroupMessage, MessageId
from broadloom.web.pages.conversations import MessageTree

PROVEN = GroupMessage(9, MessageId(2, 1), "Anna", None, 0, b"x", verified_name="Anna")


async def labels_of(message: GroupMessage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of a rendered message, and what a screen reader says for its button."""
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    request = Request({"type": "http", "path": "/conversations", "headers": [], "query_string": b""})
    client = Client(ui.page("/conversations"), request=request)
    with client:
        MessageTree(ui.element("div"), lambda _message: None).add(message, is_ours=False)
    labels = [each.text for each in client.elements.values() if isinstance(each, ui.label)]
    labels += [each.props["aria-label"] for each in client.elements.values() if "aria-label" in each.props]
    client.delete()
    return labels


async def test_unproven_message_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = await labels_of(replace(PROVEN, verified_name="", is_unproven=True), monkeypatch)
    assert {"Anna (unproven)", "Reply to Anna (unproven)"} <= set(labels)


async def test_name_on_the_ticket_is_shown_if_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Anna [mallory]" in await labels_of(replace(PROVEN, verified_name="mallory"), monkeypatch)
    assert "Anna" in await labels_of(PROVEN, monkeypatch)
