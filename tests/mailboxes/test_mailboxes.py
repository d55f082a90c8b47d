"""The public API, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom import NotAStoreError, StoreLockedError
from broadloom.errors import NotConnectedError, NotPermittedError, PeerGoneError
from broadloom.mailboxes import (
    CLASSES,
    OPERATIONS,
    AmbiguousMailboxError,
    ChangeKind,
    GoneReason,
    Letter,
    Mailbox,
    Mailboxes,
    MailboxFullError,
    NotValidError,
    Operation,
    Posted,
    UnboundError,
    Undelivered,
    Value,
    WrongClassError,
)
from broadloom.mailboxes import outbox as outbox_module
from tests.channel.joined import QUICK, unique_name
from tests.mailboxes.harness import QUICK_MAILBOXES
from tests.support import eventually


@asynccontextmanager
async def programs(*owners: str, **options: Any) -> AsyncIterator[list[Mailboxes]]:
    """Members of one channel with mailboxes."""
    name = options.pop("name", unique_name())
    opened: list[Mailboxes] = []
    try:
        for owner in owners:
            channel = await broadloom.connect(name, tls=False, settings=QUICK, name=owner)
            opened.append(Mailboxes(channel, settings=QUICK_MAILBOXES, **options))
            await opened[-1].wait_until_synced()
        yield opened
    finally:
        for boxes in opened:
            await boxes.aclose()
            boxes.channel.abort()


async def has(boxes: Mailboxes, name: str) -> None:
    await eventually(lambda: boxes._office.table.named(name), f"mailbox {name} is known")


async def test_mb_13_all_functions_of_a_mailbox() -> None:
    async with programs("anna", "ben") as (anna, ben):
        temperature = await anna.bind("sensors/temperature")
        assert (temperature.mailbox_class.number, temperature.is_bound, anna.owner) == (8, True, "anna")
        with pytest.raises(NotValidError):
            temperature.get()
        first = await temperature.put(b"21")
        await has(ben, "sensors/temperature")
        async with await ben.watch("sensors/*") as news:
            change = await news.receive(20)
            assert change.value == await ben.fetch("sensors/temperature", fresh=True)
            assert temperature.get() == change.value
            assert await temperature.put(b"22", if_revision=first) == first + 1
            change = await news.receive(20)
            assert (change.kind, change.value.text, change.value.json()) == (ChangeKind.PUT, "22", 22)
            await temperature.invalidate()
            change = await news.receive(20)
            assert (change.kind, change.reason) == (ChangeKind.GONE, GoneReason.INVALIDATED)
        await anna.rebind("sensors/temperature", keep="queue", receive="polled")
        await eventually(lambda: ben._office.table.named("sensors/temperature")[0].class_number == 5)
        await ben.post("anna", "sensors/temperature", b"hello")
        letter = temperature.receive_nowait()
        assert isinstance(letter, Letter)
        assert (letter.sender, letter.text) == (ben.channel.peer_id, "hello")
        (info,) = await ben.list_mailboxes()
        assert (info.name, info.owner, info.mailbox_class, info.while_here) == (
            "sensors/temperature", "anna", CLASSES[5], True
        )  # fmt: skip
        await temperature.unbind()
        await eventually(lambda: not ben._office.table.named("sensors/temperature"))
        with pytest.raises(UnboundError):
            temperature.receive_nowait()
        with pytest.raises(UnboundError):
            await ben.fetch("sensors/temperature")


async def test_mb_14_task_is_divided_among_members_and_results_come_back() -> None:
    async with programs("host", "one", "two") as (host, *workers):
        results = await host.bind("results", keep="queue", receive="through")
        for worker in workers:

            def work(portion: Letter, worker: Mailboxes = worker) -> None:
                asyncio.get_running_loop().create_task(
                    worker.post(portion.sender, "results", b"%d" % sum(portion.data))
                )

            await worker.bind("portions", keep="queue", receive="through", then=work)
        for number in range(10):
            await eventually(lambda: len(host._office.table.named("portions")) == 2)
            await host.post(("one", "two")[number % 2], "portions", bytes([number, number]))
        assert sum([int((await results.receive(20)).data) for _ in range(10)]) == 90


async def test_mb_4_every_operation_on_every_class_over_sockets(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        channel = unique_name()
        for number in range(2):  # `_try` asks for two copies
            store = tmp_path / f"keeper {number}.db"
            await stack.enter_async_context(programs(f"keeper {number}", name=channel, store=store))
        anna, ben = await stack.enter_async_context(programs("anna", "ben", name=channel))
        for number in CLASSES:
            name = f"class {number}"
            box = await anna.bind(name, number)
            await has(ben, name)
            if Operation.PUT in OPERATIONS[number]:
                await box.put(b"value")
                await eventually(lambda name=name: ben._office.table.named(name)[0].is_valid)  # type: ignore[misc]
            for operation in Operation:
                if operation in OPERATIONS[number]:
                    await _try(operation, box, anna, ben)
                else:
                    with pytest.raises(WrongClassError):
                        await _try(operation, box, anna, ben)


async def _try(operation: Operation, box: Mailbox, anna: Mailboxes, ben: Mailboxes) -> None:
    async def wait() -> None:
        await ben.post("anna", box.name, b"letter") if box.mailbox_class.receive else None
        await box.receive(20)

    async def get() -> None:
        if box.mailbox_class.receive:
            await ben.post("anna", box.name, b"letter")
        assert isinstance(box.get(), Value | Letter)

    async def send() -> None:
        mine = f"from {box.name}"
        await ben.bind(mine, keep="queue", receive="through")
        await box.send(ben.channel.peer_id, mine, b"letter")
        letter = await ben._bound[mine].receive(20)
        assert letter.reply_to == box.name

    async def poll() -> None:
        box.receive_nowait()

    actions: dict[Operation, Callable[[], Awaitable[Any]]] = {
        Operation.POST: lambda: ben.post("anna", box.name, b"letter"),
        Operation.POLL: poll,
        Operation.WAIT: wait,
        Operation.SEND: send,
        Operation.PUT: lambda: box.put(b"value"),
        Operation.GET: get,
        Operation.FETCH: lambda: ben.fetch(box.name),
        Operation.KEEP: lambda: anna.rebind(box.name, box.mailbox_class, copies=2),
    }
    await actions[operation]()


async def test_mailboxes_of_several_owners_are_distinguished_by_owner() -> None:
    async with programs("anna", "ben", "carl") as (anna, ben, carl):
        for boxes in (anna, ben):
            box = await boxes.bind("plan", fetch=True)
            await box.put(boxes.owner.encode())
        await eventually(lambda: [each.is_valid for each in carl._office.table.named("plan")] == [True] * 2)
        with pytest.raises(AmbiguousMailboxError, match="'anna', 'ben'"):
            await carl.fetch("plan")
        assert (await carl.fetch("plan", of="ben")).data == b"ben"
        async with await carl.watch(of="anna") as news:
            assert [(await news.receive(20)).value.owner] == ["anna"]
            assert news.unread_count == 0


async def test_watch_begins_after_the_revision_that_the_program_knows() -> None:
    async with programs("anna", "ben") as (anna, ben):
        old, new = await anna.bind("old", fetch=True), await anna.bind("new", fetch=True)
        known = await old.put(b"1")
        await new.put(b"2")
        await eventually(lambda: len([each for each in ben._office.table.seen() if each.is_valid]) == 2)
        async with await ben.watch("*", after={"old": known}) as news:
            assert (await news.receive(20)).value.name == "new"
            assert news.receive_nowait() is None
            await old.put(b"3")
            assert (await news.receive(20)).value.data == b"3"
        with pytest.raises(NotConnectedError):
            await news.receive(1)


async def test_slow_watcher_keeps_the_last_change_of_each_mailbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broadloom.mailboxes.watch.WATCH_CHANGES_MAX", 10)
    async with programs("anna") as (anna,):
        news = await anna.watch()
        box = await anna.bind("counter", fetch=True)
        for number in range(25):
            await box.put(b"%d" % number)
        changes = [news.receive_nowait() for _ in range(news.unread_count)]
        assert changes[-1] is not None
        assert changes[-1].value.data == b"24"
        assert news.skipped_count == 25 - len(changes) > 0


async def test_letters_without_acknowledgement_are_reported_if_they_do_not_arrive() -> None:
    async with programs("anna", "ben") as (anna, ben):
        events: list[object] = []
        ben.on_event(events.append)
        await ben.post(anna.channel.peer_id, "nowhere", b"x", ack="none")
        await eventually(lambda: events)
        (event,) = events
        assert isinstance(event, Undelivered)
        assert isinstance(event.posted.error, UnboundError)
        posted: list[Posted] = []
        await anna.bind("jobs", keep="queue", receive="polled")
        await ben.post(anna.channel.peer_id, "jobs", b"y", ack="each", then=posted.append)
        await eventually(lambda: posted)
        assert posted[0].error is None
        with pytest.raises(ValueError, match="`then` is called with"):
            await ben.post(anna.channel.peer_id, "jobs", b"y", ack="each")


async def test_queue_to_a_mailbox_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "OUTBOX_LETTERS_MAX", 5)
    async with programs("anna", "ben") as (anna, ben):
        await anna.bind("jobs", keep="queue", receive="polled", room=1)
        for _ in range(5):
            await ben.post(anna.channel.peer_id, "jobs", b"x", ack="none")
        with pytest.raises(MailboxFullError, match="wait for them before you post more"):
            await ben.post(anna.channel.peer_id, "jobs", b"x", ack="none")


async def test_ring_has_no_data_and_a_priority() -> None:
    async with programs("anna", "ben") as (anna, ben):
        rings: list[Letter] = []
        await anna.bind("bell", keep="queue", receive="through", then=rings.append)
        await ben.ring(anna.channel.peer_id, "bell", priority=9)
        assert [(each.is_ring, each.priority, each.data) for each in rings] == [(True, 9, b"")]
        with pytest.raises(ValueError, match="priority=256"):
            await ben.ring(anna.channel.peer_id, "bell", priority=256)


async def test_program_without_a_name_owns_values_only_while_it_is_here() -> None:
    async with programs("", "ben") as (nameless, ben):
        assert nameless.owner == f"{nameless.channel.peer_id:016x}"
        box = await nameless.bind("temperature", fetch=True)
        await box.put(b"21")
        await has(ben, "temperature")
        await nameless.aclose()
        await eventually(lambda: not ben._office.table.named("temperature"))
        with pytest.raises(NotConnectedError):
            await nameless.fetch("temperature")


async def test_post_to_an_owner_that_is_gone_says_so() -> None:
    async with programs("anna", "ben") as (anna, ben):
        box = await anna.bind("plan", fetch=True)
        await box.put(b"1")
        await has(ben, "plan")
        with pytest.raises(WrongClassError):
            await ben.post("anna", "plan", b"x")
        with pytest.raises(UnboundError):
            await ben.post("anna", "jobs", b"x")
        anna.channel.abort()
        with pytest.raises(PeerGoneError):
            await ben.post(anna.channel.peer_id, "jobs", b"x")


async def test_wrong_arguments_are_rejected_before_anything_is_sent() -> None:
    async with programs("anna") as (anna,):
        for call in (
            lambda: anna.bind("a//b", fetch=True),
            lambda: anna.bind("a", keep="all"),
            lambda: anna.bind("a", receive="loud"),
            lambda: anna.bind("a", 3, room=0),
            lambda: anna.bind("a", 10, copies=0),
        ):
            with pytest.raises(ValueError, match=r"level is empty|keep='all'|receive='loud'|room=0|copies=0"):
                await call()
        with pytest.raises(WrongClassError):
            await anna.bind("a", 14)
        with pytest.raises(WrongClassError, match="but not keep"):
            await anna.bind("a", 8, copies=2)
        wrong: Any
        for wrong in (1.5, True, "5", None):
            with pytest.raises(TypeError, match="room must be a whole number"):
                await anna.bind("a", 3, room=wrong)
            with pytest.raises(TypeError, match="copies must be a whole number"):
                await anna.bind("a", 10, copies=wrong)
            with pytest.raises(TypeError, match="priority must be a whole number"):
                await anna.ring(anna.channel.peer_id, "a", priority=wrong)
            with pytest.raises(TypeError, match="after must be a revision"):
                await anna.watch(after=wrong)
            with pytest.raises(TypeError, match="after must be a revision"):
                await anna.watch(after={"a": wrong})
        for wrong in (True, 3.0, "3"):
            with pytest.raises(TypeError, match="the class of a mailbox is a number"):
                await anna.bind("a", wrong)
        with pytest.raises(ValueError, match="sender_room=0: must be at least 1"):
            await anna.bind("a", 3, sender_room=0)
        box = await anna.bind("a", fetch=True)
        for ttl_s in (0, -1, 1e18, float("inf"), float("nan"), 10**400):
            with pytest.raises(ValueError, match="ttl_s"):
                await box.put(b"x", ttl_s=ttl_s)
        assert await box.put(b"x", ttl_s=1e12) == 2
        with pytest.raises(ValueError, match="copies=0"):
            await anna.rebind("a", 10, copies=0)
        queue = await anna.bind("q", 3)
        with pytest.raises(ValueError, match="timeout_s is too large"):
            await queue.receive(timeout_s=10**400)
        with pytest.raises(ValueError, match="timeout_s is too large"):
            await anna.fetch("a", timeout_s=10**400)
        with pytest.raises(TypeError, match=r"a message is bytes, not str; use text.encode"):
            await box.put("text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at most 65,536"):
            await box.put(bytes(70_000))
        with pytest.raises(ValueError, match="already bound"):
            await anna.bind("a", fetch=True)


async def test_values_survive_in_the_store_of_a_keeper(tmp_path: Path) -> None:
    name, store = unique_name(), tmp_path / "values.db"
    async with programs("keeper", name=name, store=store) as (keeper,):
        box = await keeper.bind("plan", 10)
        revision = await box.put(b"v1")
        hidden = await keeper.bind("cursor", fetch=True, while_here=True)
        await hidden.put(b"gone")
        assert keeper.keepers == (keeper.channel.peer_id,)
        with pytest.raises(StoreLockedError):
            Mailboxes(keeper.channel, store=store)
    async with programs("keeper", name=name, store=store) as (keeper,):
        value = await keeper.fetch("plan")
        assert (value.data, value.revision, value.owner) == (b"v1", revision, "keeper")
        assert [each.name for each in await keeper.list_mailboxes()] == ["plan"]
    async with programs("keeper") as (other,):
        with pytest.raises(NotAStoreError, match="belongs to the channel"):
            Mailboxes(other.channel, store=store)


async def test_with_tickets_the_owner_is_the_name_on_the_ticket_and_values_are_proven() -> None:
    owner, tomorrow = broadloom.Authority.generate(), datetime.now(UTC) + timedelta(days=1)
    roles = {"anna": "producer", "ben": "producer", "carl": "consumer"}
    tickets = [owner.issue_ticket(name, broadloom.Role(role), tomorrow) for name, role in roles.items()]
    name = unique_name()
    async with (
        broadloom.connect(name, ticket=tickets[0], settings=QUICK) as one,
        broadloom.connect(name, ticket=tickets[1], settings=QUICK) as two,
        Mailboxes(one, settings=QUICK_MAILBOXES) as anna,
        Mailboxes(two, settings=QUICK_MAILBOXES) as ben,
    ):
        assert (anna.owner, ben.owner) == ("anna", "ben")
        with pytest.raises(ValueError, match="the name on the ticket, 'anna'"):
            Mailboxes(one, "ben")
        box = await anna.bind("plan", fetch=True)
        await box.put(b"v1")
        await eventually(lambda: ben._office.table.named("plan") and ben._office.table.named("plan")[0].is_valid)
        await anna.aclose()
        async with (
            broadloom.connect(name, ticket=tickets[2], settings=QUICK) as three,
            Mailboxes(three, settings=QUICK_MAILBOXES) as carl,
        ):
            assert (await carl.fetch("plan", of="anna")).data == b"v1", "passed on by ben, proven by anna's ticket"
            assert carl.rejected_count == 0
            with pytest.raises(NotPermittedError, match="consumer"):
                await carl.bind("mine", fetch=True)


async def test_calls_that_wait_end_when_the_mailboxes_are_closed() -> None:
    async with programs("anna", "ben") as (anna, ben):
        jobs = await anna.bind("jobs", keep="queue", receive="through", room=1)
        news = await anna.watch()
        await anna.bind("full", keep="queue", receive="polled", room=1)
        await ben.post(anna.channel.peer_id, "full", b"1")
        waiting = [
            asyncio.ensure_future(work)
            for work in (jobs.receive(), news.receive(), ben.post(anna.channel.peer_id, "full", b"2", timeout_s=30))
        ]
        await asyncio.sleep(0)
        await anna.aclose()
        await ben.aclose()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in results] == [UnboundError, NotConnectedError, NotConnectedError]


@pytest.mark.parametrize("number", [1, 3])
async def test_callback_set_late_begins_with_the_unread_letters(number: int) -> None:
    async with programs("anna", "ben") as (anna, ben):
        box = await anna.bind("q", number)
        got: list[Any] = []
        for text in (b"0", b"1", b"2"):
            await ben.post(anna.channel.peer_id, "q", text)
        box.on_letters(got.append)
        assert box.unread_count == 0
        await ben.post(anna.channel.peer_id, "q", b"3")
        calls = [[each.text for each in call] if isinstance(call, list) else call.text for call in got]
        assert calls == (["0", "1", "2", "3"] if number == 3 else [["0", "1", "2"], ["3"]])


async def test_callback_set_late_gets_the_unread_letter_of_a_mailbox_with_one_storage() -> None:
    async with programs("anna", "ben") as (anna, ben):
        box = await anna.bind("q", 12)
        got: list[str] = []
        for text in (b"0", b"1"):
            await ben.post(anna.channel.peer_id, "q", text)
        box.on_letters(lambda letter: got.append(letter.text))
        await ben.post(anna.channel.peer_id, "q", b"2")
        assert (got, box.unread_count) == (["1", "2"], 0)
        latest = box.get()
        assert latest.text == "2"


async def test_callback_that_removes_itself_leaves_the_rest_of_the_letters_unread() -> None:
    async with programs("anna", "ben") as (anna, ben):
        box = await anna.bind("q", 3)
        got: list[str] = []

        def once(letter: Letter) -> None:
            got.append(letter.text)
            box.on_letters(None)

        for text in (b"0", b"1"):
            await ben.post(anna.channel.peer_id, "q", text)
        box.on_letters(once)
        assert (got, box.unread_count) == (["0"], 1)
        assert (await box.receive(20)).text == "1"

        # In the middle of a block.
        box.on_letters(once)
        letters = [Letter("q", ben.channel.peer_id, "", text, 0, False) for text in (b"2", b"3", b"4")]
        assert box._binding.letterbox.accept(box.mailbox_class, ben.channel.peer_id, letters)[0] == 3
        assert (got, box.unread_count) == (["0", "2"], 2)
        assert [(await box.receive(20)).text for _ in range(2)] == ["3", "4"]


async def test_callback_may_replace_itself_for_every_unread_letter() -> None:
    async with programs("anna") as (anna,):
        box = await anna.bind("q", 3, sender_room=1000)
        got: list[str] = []

        def again(letter: Letter) -> None:
            got.append(letter.text)
            box.on_letters(again)

        me = anna.channel.peer_id
        letters = [Letter("q", me, "", str(number).encode(), 0, False) for number in range(1000)]
        box._binding.letterbox.accept(box.mailbox_class, me, letters)
        box.on_letters(again)
        assert got == [str(number) for number in range(1000)]


async def test_callback_for_letters_must_be_a_plain_function() -> None:
    async def later(_letter: Letter) -> None: ...

    async with programs("anna") as (anna,):
        box = await anna.bind("q", 3)
        for wrong in (later, 5):
            with pytest.raises(TypeError, match="a callback must be a"):
                box.on_letters(wrong)  # type: ignore[arg-type]
        await anna.post(anna.channel.peer_id, "q", b"waits")
        assert box.unread_count == 1
