"""What the rules of this server have done, and the messages that they hold."""

import asyncio
from itertools import islice

from nicegui import ui

from broadloom.rules import HeldMessage, Rules
from broadloom.web.pages.layout import data_table, every, hint_paragraph, paragraph, section, subheading

REFRESH_S = 2.0
ROWS_MAX = 100
"""Rules and held messages, each."""


class ServerRules:
    """The rules with which this server has joined its channel."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._shown: list[object] = []
        with section("Rules of this server").classes("bl-server-rules"):
            hint_paragraph(
                "What they have done with messages that this server sent. Release or drop held messages with "
                "`broadloom rules held`.",
                "bl-small",
            )
            self._error = paragraph("", "bl-mistake-text")
            self._tables = ui.element("div")
        every(REFRESH_S, self._refresh)

    async def _refresh(self) -> None:
        rules = self._rules
        counts = rules.counts()
        held = await asyncio.to_thread(rules.held.list) if rules.held is not None else []
        error = rules.reload_error
        self._error.set_text(f"The file has changed and cannot be used: {error}" if error else "")
        current: list[object] = [counts, [each.id for each in held]]
        if current == self._shown:
            return
        self._shown = current
        self._tables.clear()
        with self._tables:
            data_table(
                "Rules and what they have done",
                ("Rule", "Acted", "Not sent", "Time"),
                (
                    (each.rule, f"{each.hits:,}", f"{each.refused:,}", f"{each.seconds * 1000:.1f} ms")
                    for each in islice(counts, ROWS_MAX)
                ),
            )
            subheading(f"Held messages: {len(held)}")
            if held:
                data_table(
                    "Held messages, the oldest first",
                    ("Id", "Subject", "Bytes", "Rule", "Reason"),
                    map(_held_row, islice(held, ROWS_MAX)),
                )


def _held_row(each: HeldMessage) -> tuple[str, ...]:
    return each.id, each.out.headers.get("subject", ""), f"{len(each.out.data):,}", each.rule, each.reason
