"""The synchronous twin, over real sockets."""

import broadloom.sync
from broadloom.mailboxes import ChangeKind, Letter, Value
from broadloom.mailboxes.sync import Mailboxes
from tests.channel.joined import QUICK, unique_name
from tests.mailboxes.harness import QUICK_MAILBOXES
from tests.support import wait_until


def test_sync_mailboxes_hold_values_and_letters() -> None:
    name = unique_name()
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK, name="anna") as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK, name="ben") as two,
        Mailboxes(one, settings=QUICK_MAILBOXES) as anna,
        Mailboxes(two, settings=QUICK_MAILBOXES) as ben,
    ):
        events: list[object] = []
        unsubscribe = ben.on_event(events.append)
        temperature = anna.bind("temperature")
        with ben.watch("temperature") as news:
            revision = temperature.put(b"21")
            change = news.receive(timeout_s=20)
            assert (change.kind, change.value.revision) == (ChangeKind.PUT, revision)
            assert isinstance(temperature.get(), Value)
        assert ben.fetch("temperature", fresh=True).text == "21"
        letters: list[Letter] = []
        jobs = anna.bind("jobs", keep="queue", receive="through", then=letters.append)
        wait_until(lambda: len(ben.list_mailboxes()) == 2)
        ben.post("anna", "jobs", b"hello")
        assert [letter.text for letter in letters] == ["hello"]
        jobs.unbind()
        assert not jobs.is_bound
        assert (anna.owner, anna.keepers, anna.rejected_count) == ("anna", (), 0)
        unsubscribe()
