"""Requests on the switch: one row each, statistics by operation, and the guarantees, from what peers recorded."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from broadloom.record import Tape, TapeSettings, read
from broadloom.switch import DeclinedError, FailureReason, HandledRequest, MessageClass, RequestFailedError, Switch
from tests.channel.joined import connected_channels, unique_name
from tests.histories import HistoryError
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table
from tests.pipeline.test_delivery_balances import LONG, A, B, C, TapeBuilder
from tests.support import TIMEOUT_S, eventually
from tests.switch.history import History
from tests.switch.test_histories import ends_twice, hands_a_message_to_two_handlers

BEGIN = datetime(2027, 1, 15, 12, tzinfo=UTC)
PRINT: dict[str, Any] = {
    "name": "print",
    "scope": "file",
    "file_name": "notes",
    "is_notice": False,
    "is_repeatable": False,
}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def sender_step(second: float, status: str, sequence: int = 1, sender: str = A, **columns: Any) -> dict[str, Any]:
    row = {"kind": "request_step", "event_time": at(second), "peer": sender, "author": sender, "sequence": sequence}
    return {**row, **PRINT, "status": status, **columns}


def handler_step(second: float, status: str, handler: str, sequence: int = 1, **columns: Any) -> dict[str, Any]:
    return {
        **sender_step(second, status, sequence),
        "kind": "handler_step",
        "peer": handler,
        "run_id": handler,
        **columns,
    }


def table(name: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return build_in_memory(event_table(*rows), name)[name].to_dicts()


def row_of(**columns: Any) -> dict[str, Any]:
    """A row of `requests`, as far as it is not null or usual."""
    nothing = dict.fromkeys(
        ("reason", "handler", "queued_time", "launch_time", "accepted_time", "end_time", "latency_ms", "handling_ms")
    )
    usual = {"scope": "file", "file_name": "notes", "is_notice": False, "is_repeatable": False, "handler_count": 0}
    common = {"channel": "c", "sender": A, "sequence": 1, "operation": "print", "end_count": 1, "timeout_ms": None}
    return {**nothing, **usual, **common, "sent_time": at(1), **columns}


def test_request_has_the_end_of_its_sender_and_the_times_of_its_handler() -> None:
    found = table(
        "requests",
        sender_step(1, "sent", duration_ms=5000.0),
        handler_step(9.0, "accepted", B),
        handler_step(9.1, "declined", B),
        handler_step(3.25, "accepted", C),
        handler_step(3.5, "handled", C),
        sender_step(2, "handled", handler=C),
    )
    times = {"accepted_time": at(3.25), "end_time": at(2), "latency_ms": 1000.0, "handling_ms": 250.0}
    assert found == [row_of(status="handled", handler=C, timeout_ms=5000.0, handler_count=1, **times)]


def test_request_without_a_handler_that_records_or_without_an_end_has_a_row() -> None:
    found = table(
        "requests",
        sender_step(1, "sent"),
        sender_step(1.5, "queued", handler=B),
        sender_step(2, "launched", handler=B),
        sender_step(2.5, "accepted", handler=B),
        sender_step(3, "failed", reason="handler_died", handler=B),
        sender_step(1, "sent", 2),
        sender_step(1, "sent", 3),
        sender_step(1.25, "given_up", 3),
        handler_step(7, "accepted", B, 4),
        sender_step(1, "sent", 5, is_notice=True),
        sender_step(1.5, "queued", 5, is_notice=True, handler=B),
        # Nobody else can end a request.
        {**sender_step(1, "handled", 2), "peer": C},
    )
    died = {"reason": "handler_died", "handler": B, "end_time": at(3), "latency_ms": 2000.0}
    steps = {"queued_time": at(1.5), "launch_time": at(2), "accepted_time": at(2.5)}
    queued = {"handler": B, "queued_time": at(1.5), "end_time": at(1.5), "latency_ms": 500.0, "is_notice": True}
    assert found == [
        row_of(status="failed", **died, **steps),
        row_of(status="open", sequence=2, end_count=0),
        row_of(status="given_up", sequence=3, end_time=at(1.25), latency_ms=250.0),
        row_of(status="queued", sequence=5, **queued),
        row_of(status="open", sequence=4, sent_time=None, accepted_time=at(7), handler=B, end_count=0),
    ]


def test_statistics_by_operation_count_failures_by_reason() -> None:
    rows = [sender_step(1, "sent", number) for number in range(1, 8)]
    rows += [sender_step(1 + number / 100, "handled", number, handler=B) for number in (1, 2, 3)]
    rows += [sender_step(5, "failed", number, reason="timed_out") for number in (4, 5)]
    rows += [sender_step(5, "failed", 6, reason="no_handler")]
    rows += [sender_step(1, "sent", 1, C, name="save", is_notice=True)]
    rows += [sender_step(1, "handled", 1, C, name="save", is_notice=True, handler=B)]
    found = table("request_stats", *rows)
    failures = [{"reason": "timed_out", "request_count": 2}, {"reason": "no_handler", "request_count": 1}]
    counts = {"queued_count": 0, "given_up_count": 0, "sender_count": 1, "handler_count": 1}
    assert found == [
        {"channel": "c", "operation": "print", "is_notice": False, "request_count": 7, "handled_count": 3}
        | {"failed_count": 3, "failures": failures, "open_count": 1, **counts}
        | {"latency_p50_ms": 20.0, "latency_p99_ms": 30.0},
        {"channel": "c", "operation": "save", "is_notice": True, "request_count": 1, "handled_count": 1}
        | {"failed_count": 0, "failures": [], "open_count": 0, **counts}
        | {"latency_p50_ms": 0.0, "latency_p99_ms": 0.0},
    ]


def conversation(*steps: tuple[str, str, str, int], is_repeatable: bool = False, end: float = LONG) -> pl.DataFrame:
    """The findings on a tape of A, B and C, on which A sends requests. Steps are kind, peer, status and number."""
    tape = TapeBuilder(A, B, C).sent(A, 1, 1.0).delivered(B, A, 1, 1.1).delivered(C, A, 1, 1.1)
    for place, (kind, peer, status, number) in enumerate(steps):
        columns = {**PRINT, "is_repeatable": is_repeatable, "duration_ms": 5000.0 if status == "sent" else None}
        tape.add(kind, peer, 2.0 + place / 10, author=A, sequence=number, status=status, **columns)
    tape.alive(A, B, C, second=end)
    return build_in_memory(tape.table(), "audit_summary")["audit_findings"]


SENT = ("request_step", A, "sent", 7)
HANDLED = ("request_step", A, "handled", 7)


def handled_by(*peers: str) -> list[tuple[str, str, str, int]]:
    return [("handler_step", peer, status, 7) for peer in peers for status in ("accepted", "handled")]


def test_audit_proves_one_handler_and_one_end() -> None:
    declined = [("handler_step", B, "accepted", 7), ("handler_step", B, "declined", 7)]
    assert conversation(SENT, *declined, *handled_by(C), HANDLED).height == 0
    for steps, finding in (
        ([SENT, *handled_by(B, C), HANDLED], ("request_handled_twice", A, 7, B)),
        ([SENT, *handled_by(B, B), HANDLED], ("request_handled_twice", A, 7, B)),
        ([SENT, *handled_by(B), HANDLED, HANDLED], ("request_ended_twice", A, 7, A)),
        ([SENT, *handled_by(B)], ("request_without_end", A, 7, A)),
    ):
        found = conversation(*steps)
        assert found.select("finding", "author", "sequence", "receiver").rows() == [finding]
        assert found["is_violation"].all()


def test_request_is_not_accused_if_that_is_allowed_or_not_known() -> None:
    assert conversation(SENT, *handled_by(B, C), HANDLED, is_repeatable=True).height == 0
    assert conversation(SENT, end=40.0).height == 0, "its sender may still wait"
    dropped = TapeBuilder(A, B).add("request_step", A, 1.0, author=A, sequence=1, status="sent", **PRINT)
    dropped.add("rows_dropped", None, 2.0, run=f"run-{A}", event_count=1, end_time=at(3)).alive(A, B)
    assert build_in_memory(dropped.table(), "audit_findings")["audit_findings"].height == 0


def recorded_history(folder: Path, seed: int) -> tuple[History, dict[str, pl.DataFrame]]:
    """A simulated history with kills, leaves and partitions, and what its tape shows."""
    tapes: list[Tape] = []

    def make_tape(clock: Callable[[], float]) -> Tape:
        tapes.append(Tape(folder, settings=TapeSettings(block_when_full=True), wall_clock=clock))
        return tapes[-1]

    history = History(seed, tape_factory=make_tape)
    with suppress(HistoryError):  # of a broken switch
        history.run()
    tapes[0].close()
    return history, build_in_memory(read(folder), "requests", "audit_findings")


def findings_of(built: dict[str, pl.DataFrame]) -> set[str]:
    return set(built["audit_findings"]["finding"].filter(built["audit_findings"]["finding"].str.starts_with("request")))


def test_tape_of_a_history_with_kills_has_the_end_of_every_request(tmp_path: Path) -> None:
    history, built = recorded_history(tmp_path, seed=1)
    ended = built["requests"].filter(pl.col("status").is_in(["handled", "failed"]) & ~pl.col("is_notice"))
    given_up = {(f"{id.peer_id:016x}", id.counter) for id in history.given_up}
    rows = {(row["sender"], row["sequence"]): (row["status"], row["reason"]) for row in ended.to_dicts()}
    on_tape = {key: end for key, end in rows.items() if key not in given_up}
    known = {
        (f"{id.peer_id:016x}", id.counter): record.ends[0]
        for id, record in history.records.items()
        if record.ends and record.message.message_class is MessageClass.REQUEST
    }
    assert len(known) > 20
    assert on_tape == {
        key: (end.state.name.lower(), end.reason.name.lower() if end.reason is not None else None)
        for key, end in known.items()
    }
    assert findings_of(built) == set()


@pytest.mark.parametrize(
    ("mutate", "finding"),
    [
        pytest.param(hands_a_message_to_two_handlers, "request_handled_twice", marks=pytest.mark.long),
        (ends_twice, "request_ended_twice"),
    ],
)
def test_audit_finds_a_broken_switch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutate: Callable[[pytest.MonkeyPatch], None], finding: str
) -> None:
    mutate(monkeypatch)
    monkeypatch.setattr(History, "fail", lambda _history, _problem: None)  # the tape goes on after the first problem
    found = (findings_of(recorded_history(tmp_path / str(seed), seed)[1]) for seed in range(1, 20))
    assert any(finding in each for each in found)


PROGRAM = """
import asyncio, sys
import broadloom
from broadloom.switch import Switch

async def main():
    switch = Switch(await broadloom.connect(sys.argv[1], tls=False), session="anna")

    @switch.handle("wait")
    async def wait(request):
        print("accepted", flush=True)
        await asyncio.sleep(100)

    await asyncio.sleep(100)

asyncio.run(main())
"""


async def test_tape_of_real_programs_has_a_killed_handler_and_every_other_end(tmp_path: Path) -> None:
    name, tape = unique_name(), Tape(tmp_path)
    async with connected_channels(2, name=name, tape=tape) as (here, there):
        sender, program = Switch(here, session="anna"), Switch(there, session="anna")
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, name], stdout=subprocess.PIPE)  # noqa: ASYNC220
        try:
            saved: list[bytes] = []

            @program.handle("save")
            def save(request: HandledRequest) -> bytes | None:
                if request.data == b"no":
                    raise DeclinedError("not me")
                saved.append(request.data)
                return None if request.is_notice else b"saved"

            @program.handle("stay")
            async def stay(_request: HandledRequest) -> bytes:
                saved.append(b"stay")
                await asyncio.Event().wait()  # until it is cancelled
                return b""

            await sender.wait_for_handler("wait", timeout_s=TIMEOUT_S)
            await sender.wait_for_handler("save", timeout_s=TIMEOUT_S)
            waiting = asyncio.ensure_future(sender.request("wait", timeout_s=100))
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"accepted\n"
            process.kill()
            with pytest.raises(RequestFailedError) as failed:
                await waiting
            assert failed.value.reason is FailureReason.HANDLER_DIED
            await sender.request("save", b"text", file="notes", timeout_s=TIMEOUT_S)
            with pytest.raises(RequestFailedError):
                await sender.request("save", b"no", timeout_s=TIMEOUT_S)
            await sender.notify("save", b"note")
            staying = asyncio.ensure_future(sender.request("stay", timeout_s=100))
            await eventually(lambda: saved == [b"text", b"note", b"stay"])
            await here.leave()
            with pytest.raises(RequestFailedError):
                await staying
        finally:
            process.kill()
            process.communicate()
        peers = f"{here.peer_id:016x}", f"{there.peer_id:016x}"
    tape.close()
    built = build_in_memory(read(tmp_path), "requests", "audit_findings")
    columns = ("sequence", "operation", "scope", "file_name", "is_notice", "status", "reason")
    rows = built["requests"].sort("sequence")
    assert rows.select(columns).rows() == [
        (1, "wait", "session", None, False, "failed", "handler_died"),
        (2, "save", "file", "notes", False, "handled", None),
        (3, "save", "session", None, False, "failed", "all_declined"),
        (4, "save", "session", None, True, "handled", None),
        (5, "stay", "session", None, False, "failed", "disconnected"),
    ]
    assert set(rows["sender"]) == {peers[0]}
    assert rows["handler"].to_list()[1:] == [peers[1], None, peers[1], peers[1]]
    assert rows["handler_count"].to_list()[:4] == [0, 1, 0, 1]
    assert rows["handler"][0] == f"{failed.value.reply.handler:016x}"
    assert rows["handler"][0] not in peers
    assert rows["timeout_ms"][0] == 100_000.0
    assert (rows["latency_ms"] > 0).all()
    assert rows["handling_ms"].is_not_null().to_list()[:4] == [False, True, False, True]
    assert built["audit_findings"].filter(pl.col("finding").str.starts_with("request")).height == 0
