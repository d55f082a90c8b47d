"""`broadloom topics` and `broadloom meter`."""

import json
import signal
import tomllib
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from broadloom import Authority, Role
from broadloom.cli.main import app
from broadloom.protocol import ChannelName
from broadloom.record import summarize
from tests.cli.harness import run, running_command


@pytest.fixture
def service(tmp_path: Path) -> str:
    """A new service; the tickets of its members are in `tmp_path`."""
    name = f"delivery/{uuid4().hex}"
    authority = Authority.generate(ChannelName.parse(name).id)
    authority.save(tmp_path / "authority")
    for member in ("ann", "bob", "meter"):
        ticket = authority.issue_ticket(member, Role.CONSUMER, datetime.now(UTC) + timedelta(hours=1))
        ticket.save(tmp_path / f"{member}.ticket")
    return name


def test_topic_is_created_listed_metered_published_and_closed(service: str, tmp_path: Path) -> None:
    def topics(verb: str, *words: str, by: str = "ann") -> tuple[int, str, str]:
        return run("topics", verb, service, *words, "--ticket", str(tmp_path / f"{by}.ticket"))

    (tmp_path / "paid.txt").write_text("bob  # since May\n")
    options = ["--store", str(tmp_path / "news.db"), "--creator", "ann", "--qualification", f"paid={tmp_path}/paid.txt"]
    tapes = str(tmp_path / "tapes")
    serve = ("topics", "serve", service, "--authority", str(tmp_path / "authority"), *options)
    path = "weather/berlin"
    with ExitStack() as running:
        running.enter_context(running_command(*serve)).wait_for_output("0 topics\n")
        created = topics("create", path, "--producer", "ann", "--plan", "visitor", "--qualification", "paid")
        assert created == (0, "created weather/berlin\n", "")
        metered = ("meter", service, "--out", tapes, "--ticket", str(tmp_path / "meter.ticket"))
        meter = running.enter_context(running_command(*metered))
        meter.wait_for_output("metering")
        code, out, _ = topics("list", "--search", "BERLIN", "--json", by="bob")
        listed = json.loads(out)
        assert (code, listed["path"], listed["producers"], listed["plans"]) == (0, path, ["ann"], ["visitor"])
        code, out, err = topics("subscribe", path, "--plan", "visitor")
        assert (code, out) == (1, "")
        assert "you do not have the qualification 'paid'" in err
        (tmp_path / "out.rules").write_text('IF { text("secret") } THEN { refuse "confidential" }')
        code, _, err = topics("publish", path, "a secret", "--rules", str(tmp_path / "out.rules"))
        assert (code, "confidential" in err) == (1, True), err
        subscribe = ("subscribe", service, "weather", "--plan", "visitor", "--count", "1", "--json")
        with running_command("topics", *subscribe, "--ticket", str(tmp_path / "bob.ticket")) as reader:
            while not reader.out:
                assert reader.process.poll() is None, reader.err
                code, out, err = topics("publish", path, "Rain", "--json")
                assert (code, err) == (0, "")
            item = json.loads(reader.out)
            assert (item["topic"], item["producer"], item["text"], item["advert"]) == (path, "ann", "Rain", None)
            assert reader.wait().code == 0
        code, out, _ = run("topics", "subscribers", service, "--authority", str(tmp_path / "authority"))
        (listed,) = tomllib.loads(out)["subscribers"]
        assert (code, listed["name"], listed["topic"], listed["plan"]) == (0, "bob", path, "visitor")
        assert topics("close", path, "--text", "over") == (0, "closed weather/berlin\n", "")
        meter.signal(signal.SIGINT)
        assert meter.wait().code == 0
    (summary,) = summarize(tapes)
    assert summary.kinds["identification"]


@pytest.mark.parametrize("verb", ["serve", "subscribers"])
def test_desk_commands_read_the_bootstrap_variable(verb: str, service: str, tmp_path: Path) -> None:
    args = ["topics", verb, service, "--authority", str(tmp_path / "authority")]
    result = CliRunner().invoke(app, args, env={"BROADLOOM_BOOTSTRAP": "127.0.0.1, beta:0"})
    assert result.exit_code == 2
    assert "'beta:0'" in result.stderr


def test_ticket_is_required() -> None:
    code, _, err = run("topics", "list", "delivery/news")
    assert code == 2
    assert "--ticket" in err
