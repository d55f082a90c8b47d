"""The worked examples of the document (SW-T1 to SW-T7), over the simulator and over sockets."""

from broadloom.switch.model import Disposition, FailureReason, MessageState, Pattern, Recipient, Scope
from broadloom.switch.program_types import ProgramType
from tests.switch.harness import Program, SwitchHarness, settle

NO_HANDLER = FailureReason.NO_HANDLER


async def figure_3a(harness: SwitchHarness) -> tuple[Program, Program]:
    sender, program = await harness.add("anna"), await harness.add("anna")
    program.handle("Create Obj", message_class="request", scope="session")
    program.handle("Put_Contents", message_class="request", scope="file", file="Alpha")
    program.observe(["LinkChgd", "NodeChgd"], state="handled")
    await settle(harness)
    return sender, program


async def test_sw_t1_registration_of_figure_3a(harness: SwitchHarness) -> None:
    sender, program = await figure_3a(harness)
    created, put = sender.request("Create Obj"), sender.request("Put_Contents", file="Alpha")
    misses = [
        sender.request("Create Obj", file="Alpha"),
        sender.request("Put_Contents", file="Beta"),
        sender.request("Put_Contents"),
    ]
    sender.handle(["LinkChgd", "NodeChgd"])
    changes = [sender.notify("LinkChgd"), sender.notify("NodeChgd", file="Gamma"), sender.request("LinkChgd")]
    await harness.until(lambda: all(each.end for each in [created, put, *misses, *changes]))
    await harness.until(lambda: len(program.observed) == 3)
    assert (created.reason, put.reason) == (None, None)
    assert [each.reason for each in misses] == [NO_HANDLER] * 3
    assert [(each.operation, each.state) for each in program.observed] == [
        ("LinkChgd", MessageState.HANDLED), ("NodeChgd", MessageState.HANDLED), ("LinkChgd", MessageState.HANDLED),
    ]  # fmt: skip


async def test_sw_t2_add_beta_delete_alpha(harness: SwitchHarness) -> None:
    sender, program = await figure_3a(harness)
    program.core.add_file("Beta")
    program.core.remove_file("Alpha")
    await settle(harness)
    beta, alpha = sender.request("Put_Contents", file="Beta"), sender.request("Put_Contents", file="Alpha")
    await harness.until(lambda: beta.end and alpha.end)
    assert (beta.reason, alpha.reason) == (None, NO_HANDLER)
    assert [each.file for each in program.handled] == ["Beta"]


async def test_sw_t3_starcalc_gets_all_that_was_queued_in_order_once(harness: SwitchHarness) -> None:
    handles = (Pattern(True, ("calc",), program="Starcalc", disposition=Disposition.QUEUE),)
    host = await harness.add(programs={"Starcalc": ProgramType("Starcalc", handles=handles)})
    sender = await harness.add()
    await settle(harness)
    sent = [sender.request("calc", b"%d" % number, timeout_s=100.0) for number in range(10)]
    await harness.until(lambda: len(host.core.host.queued()) == 10)
    starcalc = await harness.add("anna", "Starcalc")
    starcalc.handle("calc")
    await harness.until(lambda: all(each.end for each in sent))
    assert [each.data for each in starcalc.handled] == [b"%d" % number for number in range(10)]
    again = await harness.add("anna", "Starcalc")
    again.handle("calc")
    await settle(harness)
    assert not again.handled


async def test_sw_t4_viewers_of_one_file_in_several_sessions_redraw(harness: SwitchHarness) -> None:
    editor = await harness.add("anna")
    viewers = [await harness.add(session) for session in ("anna", "ben", "cleo")]
    others = [await harness.add(session) for session in ("anna", "ben")]
    for viewer in viewers:
        viewer.observe("changed", file="drawing")
    for other in others:
        other.observe("changed", file="another drawing")
        other.observe("done", file="drawing")
    await settle(harness)
    editor.notify("changed", file="drawing")
    editor.notify("done", file="drawing")
    await harness.until(lambda: all(viewer.observed for viewer in viewers))
    await harness.until(lambda: all(other.observed for other in others))
    assert [len(viewer.observed) for viewer in viewers] == [1, 1, 1]
    assert [[each.operation for each in other.observed] for other in others] == [["done"], ["done"]]


async def test_sw_t5_figures_4a_and_4b_with_a_request(harness: SwitchHarness) -> None:
    sender, first, second = [await harness.add("anna") for _ in range(3)]
    remotes = [await harness.add(session) for session in ("ben", "cleo")]
    local = [first.handle("put", file="alpha", rank=1), second.handle("put", file="alpha", rank=2)]
    declining = remotes[0].handle("put", file="alpha", rank=2, behavior="decline")
    handling = remotes[1].handle("put", file="alpha", rank=1)
    observers = [first, *remotes]
    for observer in observers:
        observer.observe("put", file="alpha")
    await settle(harness)

    near = sender.request("put", file="alpha")
    await harness.until(lambda: near.end and all(len(each.observed) == 2 for each in observers))
    assert [len(each.handled) for each in (first, second, *remotes)] == [0, 1, 0, 0], "rank 2 beats 1"

    first.core.remove_handler(local[0])
    second.core.remove_handler(local[1])
    await settle(harness)
    far = sender.request("put", file="alpha")
    await harness.until(lambda: far.end and all(len(each.observed) == 4 for each in observers))
    assert far.end is not None
    assert far.end.handler == remotes[1].id, "the first one declined"
    for observer in observers:
        assert [each.state for each in observer.observed[2:]] == [MessageState.SENT, MessageState.HANDLED]

    remotes[1].core.remove_handler(handling)
    await settle(harness)
    failed = sender.request("put", file="alpha")
    await harness.until(lambda: failed.end and all(len(each.observed) == 6 for each in observers))
    assert failed.reason is FailureReason.ALL_DECLINED
    for observer in observers:
        assert [each.state for each in observer.observed[4:]] == [MessageState.SENT, MessageState.FAILED]
    assert declining.pattern.rank == 2


async def test_sw_t6_figures_5a_and_5b_with_a_notice(harness: SwitchHarness) -> None:
    sender, local, remote = await harness.add("anna"), await harness.add("anna"), await harness.add("ben")
    near = local.handle("saved", file="alpha")
    far = remote.handle("saved", file="alpha")
    await settle(harness)
    first = sender.notify("saved", file="alpha")
    await harness.until(lambda: first.end)
    assert (len(local.handled), len(remote.handled)) == (1, 0)
    local.core.remove_handler(near)
    await settle(harness)
    second = sender.notify("saved", file="alpha")
    await harness.until(lambda: second.end and remote.handled)
    assert second.end is not None
    assert (second.end.state, second.end.data) == (MessageState.HANDLED, b""), "no reply"
    remote.core.remove_handler(far)
    await settle(harness)
    third = sender.notify("saved", file="alpha")
    await harness.until(lambda: third.end)
    assert sender.core.sender.discarded_count == 1


async def test_sw_t7_file_in_session_stays_and_file_or_session_does_not(harness: SwitchHarness) -> None:
    sender, other = await harness.add("anna"), await harness.add("ben")
    other.handle("put", file="alpha")
    other.observe("put", file="alpha", state="sent")
    await settle(harness)
    inside = sender.request("put", file="alpha", scope=Scope.FILE_IN_SESSION)
    outside = sender.request("put", file="alpha", scope=Scope.FILE_OR_SESSION)
    await harness.until(lambda: inside.end and outside.end and other.observed)
    assert (inside.reason, outside.reason) == (NO_HANDLER, None)
    assert [each.scope for each in other.handled] == [Scope.FILE_OR_SESSION]
    assert [(each.scope, each.recipient) for each in other.observed] == [(Scope.FILE_OR_SESSION, Recipient.OBSERVERS)]
