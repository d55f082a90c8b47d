"""Meetings over real connections: what participants see of each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import broadloom
from broadloom import (
    Authority,
    BroadloomError,
    NotConnectedError,
    NotPermittedError,
    OrderTimeoutError,
    Role,
    ordered,
)
from broadloom.apps import conference, session
from broadloom.apps.conference import (
    ConferenceError,
    Done,
    FloorTimeoutError,
    Meeting,
    MeetingEvent,
    MeetingFullError,
    NotLeaderError,
    Pointed,
    Viewpoint,
    live,
    participation,
)
from broadloom.apps.conference.actions import LoadPart, Point, ReleaseFloor, SentAction, SetView, encode
from broadloom.apps.conference.transcript import describe
from broadloom.order.submissions import Submissions
from broadloom.wire import PeerId
from tests.channel.joined import QUICK, unique_name
from tests.support import TIMEOUT_S, eventually

FRONT = Viewpoint((1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
SIDE = Viewpoint((9.0, 0.0, 0.0), (0.0, 1.0, 0.0))


async def join(stack: AsyncExitStack, channel: str, **options: Any) -> Meeting:
    """At the end the channel is not left but aborted, which is faster."""
    joined = await broadloom.connect(channel, settings=QUICK, **options)
    meeting = await stack.enter_async_context(Meeting(joined))
    stack.callback(joined.abort)
    return meeting


@asynccontextmanager
async def meeting_of(*names: str) -> AsyncIterator[list[Meeting]]:
    channel = unique_name()
    async with AsyncExitStack() as stack:
        yield [await join(stack, channel, name=name, tls=False) for name in names]


async def agree(meetings: list[Meeting]) -> None:
    await eventually(lambda: all(each.state == meetings[0].state for each in meetings), "equal states")


async def test_participants_see_hands_and_the_queue_for_the_floor() -> None:
    async with meeting_of("Anna", "Ben", "Carla") as meetings:
        anna, ben, carla = meetings
        await anna.request_floor()
        await carla.request_floor()
        await ben.request_floor()
        await ben.raise_hand()
        await agree(meetings)
        found = [(each.name, each.is_leader, each.has_hand_up, each.queue_place) for each in anna.participants()]
        assert found == [("Anna", True, False, None), ("Ben", False, True, 2), ("Carla", False, False, 1)]
        assert [each.is_leader for each in meetings] == [True, False, False]
        await anna.release_floor()
        await eventually(lambda: carla.is_leader)
        await ben.release_floor()
        await ben.raise_hand(False)
        await agree(meetings)
        assert not ben.state.floor.queue
        assert not ben.state.hands


async def test_floor_is_handed_over_and_taken_back() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        with pytest.raises(NotLeaderError, match="request the floor"):
            await ben.show(FRONT)
        await anna.request_floor()
        await anna.hand_over(ben.me)
        await eventually(lambda: ben.is_leader)
        with pytest.raises(FloorTimeoutError, match="Ben has it"):
            async with anna.floor(timeout_s=0.05):
                pass
        await anna.take_back()
        await eventually(lambda: anna.is_leader)
        await eventually(lambda: not ben.is_leader)
        with pytest.raises(ConferenceError, match="only the participant that handed over"):
            await ben.take_back()


async def test_canceled_wait_for_the_floor_leaves_the_queue() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        await anna.request_floor()
        waiting = asyncio.create_task(ben.floor().__aenter__())
        await eventually(lambda: ben.me in anna.state.floor.queue)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await eventually(lambda: not anna.state.floor.queue)


async def test_tasks_of_one_program_lead_one_after_the_other() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        inside: list[int] = []

        async def lead(number: int) -> None:
            async with anna.floor(timeout_s=TIMEOUT_S):
                inside.append(number)
                await anna.annotate("rib-4", "I lead.")
                assert (inside[-1], anna.is_leader) == (number, True)

        await asyncio.gather(*map(lead, range(3)))
        assert inside == [0, 1, 2]
        async with anna.floor(timeout_s=TIMEOUT_S):
            with pytest.raises(FloorTimeoutError, match="this program has it already"):
                async with anna.floor(timeout_s=0.05):
                    pass
            assert anna.is_leader, "the wait that ended has not given the floor back"
        await eventually(lambda: ben.leader is None)


async def test_lists_that_are_one_text_or_have_equal_options_are_refused() -> None:
    async with meeting_of("Anna") as (anna,):
        for wrong in ("yes", [1, 2]):
            with pytest.raises(TypeError, match="options must be a list of strings"):
                await anna.open_poll("Release it?", wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="items must be a list of strings"):
                await anna.set_agenda(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="all of them different"):
            await anna.open_poll("Release it?", ["yes", "no", "yes"])
        assert not anna.state.polls
        assert not anna.state.agenda


@pytest.mark.parametrize("wrong", [(1.0, 2.0, float("nan")), (1.0, 2.0), (1.0, 2.0, 1e12), "abc", 7, (1, 2, 10**400)])
async def test_invalid_point_is_named_in_the_error(wrong: Any) -> None:
    async with meeting_of("Anna") as (anna,):
        with pytest.raises(ValueError, match="a point has three numbers between -1e\\+12 and 1e\\+12, not"):
            await anna.point(wrong)


async def test_meeting_whose_reader_has_failed_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna") as (anna,):

        def fail(*_arguments: Any) -> None:
            raise RuntimeError("a fault")

        monkeypatch.setattr(anna._core, "on_entry", fail)
        with pytest.raises(ConferenceError, match="a fault"):
            await anna.load("rib-4")
        with pytest.raises(ConferenceError, match="a fault"):
            await anna.raise_hand()


async def test_floor_is_free_after_its_holder_died() -> None:
    async with meeting_of("Anna", "Ben", "Carla") as (anna, ben, carla):
        await ben.request_floor()
        await carla.request_floor()
        ben.channel.abort()
        await eventually(lambda: carla.is_leader)
        assert carla.state.floor.term == 2
        await eventually(lambda: anna.leader == carla.me)


async def raise_fault() -> None:
    raise BroadloomError("a fault")


async def test_program_whose_meeting_failed_neither_leads_nor_orders_entries_any_longer() -> None:
    async with meeting_of("Anna", "Ben", "Carla") as (anna, ben, carla):
        await anna.request_floor()
        await eventually(lambda: ben.leader == anna.me)
        assert anna._order.is_sequencer
        anna._start(raise_fault)
        await eventually(lambda: ben.leader is None and carla.leader is None, "the floor is free")
        assert anna.channel.is_connected
        await eventually(lambda: [each.name for each in ben.participants()] == ["Ben", "Carla"])
        async with ben.floor(timeout_s=TIMEOUT_S):
            await ben.load("rib-4")


async def test_submission_under_way_ends_with_the_reason_of_the_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna") as (anna,):
        monkeypatch.setattr(anna._order._replica, "submit", lambda *_arguments: 1)
        loading = asyncio.create_task(anna.load("rib-4"))
        await eventually(lambda: anna._order._waiting)
        anna._start(raise_fault)
        with pytest.raises(BroadloomError, match="a fault"):
            await loading


async def test_participant_that_joins_again_on_the_same_channel_is_heard() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        first = await ben.annotate("rib-4", "one")
        await ben.request_floor()
        ben._start(raise_fault)
        await eventually(lambda: ben.is_ended)
        await ben.leave()
        async with Meeting(ben.channel) as again:
            assert not again.is_leader, "it has arrived anew"
            assert list(again.state.notes) == [first]
            second = await again.annotate("rib-4", "two")
            await eventually(lambda: list(anna.state.notes) == [first, second])
            assert [each.name for each in anna.participants()] == ["Anna", "Ben"]


async def test_meeting_continues_although_the_viewpoint_cannot_be_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        await anna.request_floor()
        attempts: list[bool] = []
        order_view = anna._order_view

        async def attempt(*arguments: float) -> None:
            try:
                await order_view(*arguments)
            finally:
                attempts.append(True)

        monkeypatch.setattr(anna, "_order_view", attempt)
        with monkeypatch.context() as full:
            full.setattr(participation, "ENTRIES_MAX", 0)
            await anna.show(FRONT)
            await eventually(lambda: attempts, "the leader has come to rest")
            assert anna.is_leader
            assert anna.viewpoint == FRONT
        await anna.release_floor()
        await agree([anna, ben])
        assert (ben.leader, ben.state.viewpoint) == (None, FRONT)


async def test_floor_is_given_back_although_the_viewpoint_cannot_be_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        await anna.request_floor()
        monkeypatch.setattr(participation, "ENTRIES_MAX", 0)
        await anna.show(FRONT)
        await anna.release_floor()
        await eventually(lambda: ben.leader is None)


async def test_full_meeting_can_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        await anna.request_floor()
        await ben.request_floor()
        monkeypatch.setattr(participation, "ENTRIES_MAX", 0)
        await anna.leave()
        await eventually(lambda: ben.is_leader)
        await ben.release_floor()
        assert ben.leader is None


async def test_time_to_get_the_floor_is_limited_although_the_order_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna") as (anna,):
        monkeypatch.setattr(anna._order._replica, "submit", lambda *_arguments: 1)
        started_at = anna.now()
        with pytest.raises(FloorTimeoutError, match="the order does not answer"):
            async with anna.floor(timeout_s=0.1):
                pass
        assert anna.now() - started_at < session.TIMEOUT_S / 2


async def test_leader_whose_release_was_not_sent_still_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna") as (anna,):
        await anna.request_floor()
        with monkeypatch.context() as crowded:
            crowded.setattr(Submissions, "has_room", False)
            with pytest.raises(OrderTimeoutError, match="not sent"):
                await anna._do(ReleaseFloor(), timeout_s=0.05)
            assert anna.is_leader
            releasing = asyncio.create_task(anna.release_floor())
            await eventually(lambda: not anna.is_leader)
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing
        assert anna.is_leader
        await anna.release_floor()
        assert anna.leader is None


async def test_viewpoint_of_the_leader_is_followed_until_detached() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        async with anna.floor():
            await anna.show(FRONT)
            await eventually(lambda: ben.viewpoint == FRONT)
            ben.detach(SIDE)
            await anna.show(Viewpoint((5.0, 5.0, 5.0)))
            await eventually(lambda: ben.shared_viewpoint == Viewpoint((5.0, 5.0, 5.0)))
            assert ben.viewpoint == SIDE
            ben.attach()
            assert ben.viewpoint == anna.viewpoint == Viewpoint((5.0, 5.0, 5.0))
        assert anna.leader is None
        await agree([anna, ben])
        assert ben.viewpoint == Viewpoint((5.0, 5.0, 5.0)), "it stays when the floor is free"
        async with ben.floor():
            await ben.show(FRONT)
            await eventually(lambda: anna.viewpoint == FRONT, "who has led follows")


async def test_pointer_expires() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        seen: list[dict[PeerId, Point]] = []
        pointed = asyncio.Event()

        def on_event(event: MeetingEvent) -> None:
            if isinstance(event, Pointed):
                seen.append(ben.pointers())
                pointed.set()

        ben.on_event(on_event)
        async with asyncio.timeout(TIMEOUT_S):
            while not seen:  # on a machine that is too busy it expires on its way
                await anna.point((1.0, 2.0, 3.0))
                with suppress(TimeoutError):
                    await asyncio.wait_for(pointed.wait(), 0.2)
        assert seen[0] == {anna.me: (1.0, 2.0, 3.0)}
        await eventually(lambda: not ben.pointers())


async def test_late_joiner_gets_everything() -> None:
    channel = unique_name()
    async with AsyncExitStack() as stack:
        anna = await join(stack, channel, name="Anna", tls=False)
        await anna.set_agenda(["rib 4", "next steps"])
        await anna.load("rib-4")
        note = await anna.annotate("rib-4", "A crack?", at=(1.0, 0.0, 0.0))
        await asyncio.gather(*(anna.annotate("rib-4", f"note {number}") for number in range(500)))
        await anna.measure("rib-4", (0.0, 0.0, 0.0), (3.0, 4.0, 0.0))
        await anna.publish("stress", "rib-4", {"max_mpa": 212.5, "load_case": "gust"})
        poll = await anna.open_poll("Release it?", ["yes", "no"])
        await anna.request_floor()
        await anna.show(FRONT)
        await eventually(lambda: anna.state.viewpoint == FRONT, "the leader has come to rest")
        ben = await join(stack, channel, name="Ben", tls=False)
        assert len(ben.state.notes) == 501, "at once, without waiting"
        assert [each.distance for each in ben.state.measurements.values()] == [5.0]
        (result,) = ben.state.results.values()
        assert (result.kind, result.part, result.values["max_mpa"]) == ("stress", "rib-4", 212.5)
        assert ben.state.agenda == ("rib 4", "next steps")
        assert ben.viewpoint == FRONT
        await ben.annotate("rib-4", "No, dust.", reply_to=note)
        await ben.vote(poll, 1)
        await agree([anna, ben])
        assert anna.state.polls[poll].counts == (0, 1)
        assert [each.text for each in anna.state.replies()[note]] == ["No, dust."]
        with pytest.raises(ConferenceError, match="only the participant that opened"):
            await ben.close_poll(poll)
        await anna.close_poll(poll)
        await eventually(lambda: not ben.state.polls[poll].is_open)
        with pytest.raises(ConferenceError, match="closed"):
            await ben.vote(poll, 0)


async def test_names_are_those_of_tickets_and_listeners_only_listen() -> None:
    authority, channel = Authority.generate(), unique_name()
    expires = datetime.now(UTC) + timedelta(hours=1)
    async with AsyncExitStack() as stack:
        anna = await join(stack, channel, ticket=authority.issue_ticket("Anna", Role.PRODUCER, expires))
        ben = await join(stack, channel, ticket=authority.issue_ticket("Ben", Role.CONSUMER, expires))
        await anna.load("rib-4")
        await eventually(lambda: list(ben.state.parts) == ["rib-4"])
        assert [(each.name, each.is_proven) for each in ben.participants()] == [("Anna", True)]
        with pytest.raises(NotPermittedError):
            await ben.raise_hand()
        with pytest.raises(ConferenceError, match="only participants can vote"):
            await ben.vote(await anna.open_poll("Release it?", ["yes", "no"]), 0)
        with pytest.raises(ConferenceError, match="only participants can lead"):
            await ben.request_floor()


async def test_participant_that_leaves_gives_the_floor_back() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben):
        await anna.request_floor()
        await anna.raise_hand()
        await anna.leave()
        await eventually(lambda: ben.leader is None and not ben.state.hands)
        assert [each.name for each in ben.participants()] == ["Ben"], "Anna is still on the channel"
        with pytest.raises(NotConnectedError):
            await anna.request_floor()


async def test_transcript_describes_each_item_although_others_follow() -> None:
    async with meeting_of("Anna") as (anna,):
        for part, x in (("rib", 3.0), ("spar", 4.0)):
            await anna.annotate(part, "thin")
            await anna.measure(part, (0.0, 0.0, 0.0), (x, 0.0, 0.0))
            await anna.open_poll(f"Release the {part}?", ["yes", "no"])
        texts = [describe(each, anna) for each in iter(anna.receive_nowait, None) if isinstance(each, Done)]
    assert texts == [
        "Anna joins",
        "Anna notes at rib [1]: thin",
        "Anna measures 3.0 at rib",
        "Anna asks [1]: Release the rib? (1 yes, 2 no)",
        "Anna notes at spar [2]: thin",
        "Anna measures 4.0 at spar",
        "Anna asks [2]: Release the spar? (1 yes, 2 no)",
    ]


async def test_join_connects_and_leaves() -> None:
    async with conference.join(unique_name(), name="Anna", tls=False, settings=QUICK) as meeting:
        assert [each.name for each in meeting.participants()] == ["Anna"]
    assert not meeting.channel.is_connected


async def test_meeting_with_as_many_entries_as_members_keep_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    async with meeting_of("Anna") as (anna,):
        monkeypatch.setattr(participation, "ENTRIES_MAX", 2)
        await anna.load("rib-1")
        with pytest.raises(MeetingFullError, match="start another one"):
            await anna.load("rib-2")


async def test_what_a_hostile_member_sends_is_ignored() -> None:
    async with meeting_of("Anna", "Ben") as (anna, ben), AsyncExitStack() as stack:
        channel = await broadloom.connect(anna.channel.name, name="Eve", tls=False, settings=QUICK)
        stack.callback(channel.abort)
        eve = await stack.enter_async_context(ordered(channel, participation.CONVERSATION, mode="available"))
        await anna.request_floor()
        view = encode(SentAction(1, 0, SetView((6.0, 6.0, 6.0), (0.0, 0.0, 0.0))))
        for data in (b"", b"[]", b"\xff" * 100, b'[1, 2, "load", {"part": 7}]', b"[" * 5000, view):
            await eve.submit(data)
        layer = channel.layer(live.LAYER)
        await layer.broadcast(b"[" * 900)
        await layer.broadcast(live.encode(live.LiveView(anna.state.floor.term, SIDE)))
        await eve.submit(encode(SentAction(2, 0, LoadPart("rib-1"))))
        await eventually(lambda: all(list(each.state.parts) == ["rib-1"] for each in (anna, ben)), "what is permitted")
        await agree([anna, ben])
        assert ben.viewpoint is None, "not of a participant that does not lead"
        assert anna.is_leader
