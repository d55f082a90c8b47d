"""A lab of real peers: what is done to it happens, is seen, and is repaired; and a fault that is planted is found."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft
from tests.net.lines import play, until
from weft.groups import groups
from weft.lab.chatting import THREADS
from weft.lab.lab import Lab
from weft.lab.plan import SILENCE, LabPlan, Rates
from weft.lab.roster import NoSuchPeer
from weft.lab.staff import LabFailed
from weft.lab.story import Came, Change, Hop, LinkDown, LinkUp, Said, Told, Went
from weft.record import read

PEERS = 8
WITHIN_S = 60.0
"""Far more than is needed: these tests share their machine with others."""
LIVELY = Rates(chat_per_s=6, ticks_per_s=10, idents_per_s=2, adverts_per_s=1)


def links(lab: Lab) -> set[tuple[int, int]]:
    return {(min(peer, other), max(peer, other)) for peer, view in lab.now().items() for other in view.links}


def all_hold(lab: Lab) -> bool:
    return all(promise.holds and not promise.is_pending for promise in lab.promises())


def links_of_the_log(changes: list[Change]) -> set[tuple[int, int]]:
    """The links that stand when all that was told has happened."""
    standing: set[tuple[int, int]] = set()
    for change in changes:
        if isinstance(change, LinkUp):
            standing.add((change.a, change.b))
        elif isinstance(change, LinkDown):
            standing.remove((change.a, change.b))
    return standing


async def grown_and_disturbed(lab: Lab) -> None:
    await lab.grown(WITHIN_S)
    assert len(lab.now()) == lab.processes == PEERS
    assert all(len(view.links) == 4 and not view.holes for view in lab.now().values())

    killed = await lab.kill_some(2)
    assert not set(killed) & lab.now().keys()
    assert await lab.whole(WITHIN_S) is not None
    with pytest.raises(NoSuchPeer, match="was killed"):
        await lab.kill(killed[:1])

    frozen = next(iter(lab.now()))
    assert await lab.freeze(frozen) == [frozen]
    assert lab.now()[frozen].is_frozen
    with pytest.raises(LabFailed, match="thaw it first"):
        await lab.leave([frozen])
    assert await lab.whole(WITHIN_S) is not None  # the others go on without it
    assert not any(frozen in view.links for peer, view in lab.now().items() if peer != frozen)
    await lab.thaw(frozen)
    await lab.whole(WITHIN_S)
    assert len(lab.now()[frozen].links) == 4

    await lab.split()
    with pytest.raises(LabFailed, match="heal it first"):
        await lab.split()
    await until(lambda: "2 parts, of 3, 3 peers" in lab.promises()[-1].sentence, WITHIN_S)
    await lab.heal()
    await lab.whole(WITHIN_S)
    assert lab.promises()[-1].sentence == "all 6 peers can be reached from each other"

    newcomers = await lab.add(2)
    await lab.whole(WITHIN_S)
    assert newcomers[1] in lab.now()
    await lab.leave(newcomers[:1])
    await lab.whole(WITHIN_S)
    assert newcomers[0] not in lab.now()


def test_what_is_done_to_a_lab_happens_and_is_repaired(tmp_path: Path) -> None:
    async def main() -> None:
        async with Lab.start(LabPlan(peers=PEERS, tape=tmp_path, rates=LIVELY)) as lab:
            await grown_and_disturbed(lab)
            await until(lambda: all_hold(lab), WITHIN_S)
            # Somebody else takes part, and is answered.
            async with (
                weft.connect(lab.channel, portals=lab.portals()) as channel,
                groups(channel, "Visitor") as here,
            ):
                title = next(iter(THREADS))
                group = await here.create(title, identity=title)
                question = await group.send_text("Is anybody there?")
                await until(lambda: len(list(group.thread(question))) > 1, WITHIN_S)
                await until(lambda: all_hold(lab), WITHIN_S)
            await until(lambda: all_hold(lab), WITHIN_S)
            await lab.delivered(WITHIN_S)

            _, changes = lab.changes(0)
            assert links_of_the_log(changes) == links(lab)
            came = [change.peer for change in changes if isinstance(change, Came)]
            gone = {change.peer: change.how for change in changes if isinstance(change, Went)}
            assert len(came) == len(set(came)) == PEERS + 2
            assert sorted(gone.values()) == ["killed", "killed", "left"]
            assert lab.now().keys() == set(came) - gone.keys()
            said = {(change.author, change.sequence) for change in changes if isinstance(change, Said)}
            hops = [change for change in changes if isinstance(change, Hop)]
            followed = {(hop.author, hop.sequence) for hop in hops}
            assert len(followed & said) > len(followed) / 2 > 0  # those of the visitor, for example, nobody tells
            assert all(hop.source == hop.author for hop in hops if hop.hops == 1)
            assert any(isinstance(change, Told) and "were killed" in change.text for change in changes)

            samples = lab.figures()
            assert max(sample.latency_p99_ms for sample in samples) > 0
            assert max(sample.redundancy for sample in samples) > 1
            assert lab.totals.delivered > lab.totals.sent > 100
            assert (lab.verdict.wrong, lab.verdict.fault_count, lab.lost_rows) == (0, 0, 0)

    play(main)
    _check_tape(tmp_path)


def _check_tape(folder: Path) -> None:
    """What the tables read: conversations, subscribers, adverts."""
    rows = read(folder).to_pylist()
    sent = {(row["author"], row["sequence"]): row for row in rows if row["kind"] == "sent"}
    chat = [row for row in sent.values() if row["topic"] == "chat"]
    answers = [row for row in chat if row["parent_author"] is not None]
    assert {row["group"] for row in chat} <= THREADS.keys()
    assert answers
    known = [sent.get((row["parent_author"], row["parent_sequence"])) for row in answers]
    assert any(known)  # those of the visitor, and of who was killed, may be on no tape
    assert all(parent["group"] == row["group"] for parent, row in zip(known, answers, strict=True) if parent)
    kinds = {row["kind"] for row in rows}
    assert {"identification", "advert", "joined", "left", "delivered", "link_up", "link_down"} <= kinds


def test_a_delivery_that_is_withheld_is_found() -> None:
    async def main() -> None:
        async with Lab.start(LabPlan(peers=3, rates=Rates(ticks_per_s=20))) as lab:
            await lab.grown(WITHIN_S)
            await until(lambda: lab.totals.delivered > 50, WITHIN_S)
            assert lab.promises()[0].holds
            await lab.withhold(next(iter(lab.now())))
            await until(lambda: not lab.promises()[0].holds, WITHIN_S)
            assert "was given" in lab.promises()[0].sentence
            assert lab.verdict.wrong == 1

    play(main)


def test_what_is_lacking_at_the_end_is_found() -> None:
    """Nothing comes any more, so that no later message shows the gap."""

    async def main() -> None:
        async with Lab.start(LabPlan(peers=3, rates=SILENCE)) as lab:
            await lab.grown(WITHIN_S)
            await lab.delivered(WITHIN_S)
            await lab.withhold(next(iter(lab.now())), count=1_000_000)
            before = lab.totals.sent
            lab.traffic(Rates(ticks_per_s=20))
            await until(lambda: lab.totals.sent > before + 20, WITHIN_S)
            with pytest.raises(LabFailed, match=r"has not got|has nothing of"):
                await lab.delivered(within_s=1.0)
            assert not lab.promises()[1].holds

    play(main)


LONELY = """
import asyncio
from weft.lab.lab import Lab
from weft.lab.plan import LabPlan

async def main():
    async with Lab.start(LabPlan(peers=3)) as lab:
        await lab.grown(60)
        print(*(hand.pid for hand in lab._staff.hands), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_nobody_outlives_whoever_started_the_lab(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", LONELY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 3
        process.send_signal(how)
        process.wait(WITHIN_S)
    deadline = time.monotonic() + WITHIN_S
    while left := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < deadline, f"{left} are left behind"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
