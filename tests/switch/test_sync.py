"""The switch in synchronous programs."""

import threading

import pytest

import broadloom.sync
from broadloom.switch import FailureReason, HandledRequest, MessageState, RequestFailedError, SwitchMessage
from broadloom.switch.sync import Switch
from tests.channel.joined import QUICK, unique_name
from tests.support import TIMEOUT_S, wait_until


def test_synchronous_programs_request_handle_observe_and_follow() -> None:
    name = unique_name()
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as here,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as there,
        Switch(here, session="anna") as sender,
        Switch(there, session="anna", program="editor") as program,
    ):
        observed: list[SwitchMessage] = []
        threads: list[str] = []

        @program.handle("reverse", file="alpha")
        def reverse(request: HandledRequest) -> bytes:
            threads.append(threading.current_thread().name)
            return request.data[::-1]

        observer = program.observe("reverse", state="handled")
        program.observe("reverse", observed.append, state="sent")
        sender.wait_for_handler("reverse", file="alpha", timeout_s=TIMEOUT_S)
        assert sender.request("reverse", b"abc", file="alpha", timeout_s=TIMEOUT_S).data == b"cba"
        assert threads == ["broadloom"]
        wait_until(lambda: observed)
        assert observer.receive(TIMEOUT_S).reply == b"cba"
        states = [step.state for step in sender.follow("reverse", b"abc", file="alpha", timeout_s=TIMEOUT_S)]
        assert states == [MessageState.SENT, MessageState.ACCEPTED, MessageState.HANDLED]
        assert [each.data for each in sender.request_all("reverse", b"12", file="alpha")] == [b"21"]
        assert sender.notify("reverse", file="alpha") is MessageState.HANDLED
        assert [each.session for each in sender.joins("alpha")] == ["anna"]
        program.unregister(reverse)
        wait_until(lambda: not sender.has_handler("reverse", file="alpha"))
        with pytest.raises(RequestFailedError) as failed:
            sender.request("reverse", file="alpha")
        assert failed.value.reason is FailureReason.NO_HANDLER
        assert program.status().program == "editor"
        observer.close()
