"""What actions do, in their order, and that nothing is sent if one of them fails."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.channel.encodings import undo_encodings
from broadloom.channel.outgoing import Outgoing, Way, pack_data
from broadloom.errors import HeldError, NotSentError, RulesError
from broadloom.rules import (
    Compress,
    Constant,
    Copy,
    Encrypt,
    Rule,
    Rules,
    SealingPrivateKey,
    Test,
    action,
    parse,
)
from broadloom.security.sealing import seal, unseal
from broadloom.wire.file_payload import decode_file
from broadloom.wire.message_headers import split_headers
from tests.rules.recording import LIMITS, Recorder, applied, message

ALWAYS = "IF {{ true }} THEN {{ {} }}"


def always(actions: str, **options: object) -> Rules:
    return Rules(parse(ALWAYS.format(actions)), **options)  # type: ignore[arg-type]


async def test_set_changes_headers_topic_priority_and_ttl() -> None:
    rules = always(
        'set topic "a/b"; set content-type "x/y"; set priority high; set ttl 2min; set Subject "s"; set to ""'
    )
    out = await applied(rules, message(headers={"subject": "old", "To": "com", "kept": "1"}))
    assert (out.topic, out.content_type, out.priority, out.ttl_s) == ("a/b", "x/y", 2, 120)
    assert out.headers == {"Subject": "s", "kept": "1"}


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("card-numbers", "pay 4111 1111-1111 1111 now", "pay [redacted] now"),
        ("card-numbers", "order 4111111111111112, 41111111111111111111111", None),
        ("emails", "write to anna.b+c@mail.example.com.", "write to [redacted]."),
        ("emails", "a@b is none", None),
        ("/[Ss]ecret( plan)?/", "my secret plan, Secret", "my [redacted], [redacted]"),
        ("/é+/", "caféé", "caf[redacted]"),
    ],
)
async def test_redact_replaces_what_it_finds(what: str, before: str, after: str | None) -> None:
    given_out = message(before.encode())
    out = await applied(always(f"redact {what}"), given_out)
    if after is None:
        assert out is given_out
    else:
        assert out.data.decode() == after


async def test_redact_works_on_data_that_is_not_text() -> None:
    out = await applied(always("redact /key=[a-z]+/"), message(b"\xff\x00key=abc\xfe"))
    assert out.data == b"\xff\x00[redacted]\xfe"


async def test_rules_act_in_order_and_stop_ends_them() -> None:
    text = """
    IF { text("a") } THEN { set step "1" }
    IF { header.step("1") } THEN {
      set step "2"
      IF { header.step("1") } THEN { refuse "stale" } ELSE { set inner "yes" }
    }
    IF { header.step("2") } THEN { stop }
    IF { true } THEN { refuse "not reached" }
    """
    out = await applied(Rules(parse(text)), message(b"a"))
    assert out.headers == {"step": "2", "inner": "yes"}


async def test_refusal_names_the_rule_and_the_reason() -> None:
    rules = Rules(parse('IF { false } THEN { stop }\n\nRULE "no plans" IF { true } THEN { refuse "plans stay here" }'))
    with pytest.raises(NotSentError, match=r'rule "no plans" \(line 3\): plans stay here; the message was not sent'):
        await applied(rules, message())
    first, second = rules.counts()
    assert (first.hits, first.refused) == (0, 0)
    assert (second.rule, second.hits, second.refused) == ('rule "no plans" (line 3)', 1, 1)


# -- actions in Python


async def test_action_in_python_changes_the_message() -> None:
    @action("stamp")
    def stamp(out: Outgoing, *words: str) -> Outgoing:
        out.data += b"!"  # a copy: changing it in place is fine
        return replace(out, headers={**out.headers, "stamp": " ".join(words)})

    given_out = message(b"data")
    out = await applied(always('stamp red "and blue"'), given_out)
    assert (out.data, out.headers, given_out.data) == (b"data!", {"stamp": "red and blue"}, b"data")


@pytest.mark.parametrize("result", [None, "text", message("text")])  # type: ignore[arg-type]
async def test_action_in_python_that_returns_something_else_fails_closed(result: object) -> None:
    action("odd")(lambda _out: result)
    with pytest.raises(NotSentError, match="did not return a message"):
        await applied(always("odd"), message())


async def test_action_in_python_that_raises_fails_closed() -> None:
    action("broken")(lambda _out: 1 / 0)
    with pytest.raises(NotSentError, match="ZeroDivisionError"):
        await applied(always("broken"), message())


async def test_action_in_python_cannot_pretend_to_have_encoded() -> None:
    """Receivers would undo what was not done."""
    action("pretend")(lambda out: replace(out, encodings=("zlib",), forwarded_from=("x",), way=Way.FILE, data=b"x"))
    out = await applied(always("pretend"), message())
    assert (out.encodings, out.forwarded_from, out.way, out.data) == ((), (), Way.BROADCAST, b"x")


# -- encodings


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SealingPrivateKey]]:
    directory = tmp_path_factory.mktemp("keys")
    private = [SealingPrivateKey.generate() for _ in range(2)]
    for name, key in zip("ab", private, strict=True):
        key.public.save(directory / f"{name}.pub")
    return directory, private


def received(out: Outgoing, keys: list[SealingPrivateKey]) -> tuple[bytes, tuple[str, ...]]:
    """The data that a receiver with these keys gets, and the encodings that remain."""
    data, has_headers = pack_data(out)
    if not has_headers:
        return data, ()
    envelope, body = undo_encodings(*split_headers(data), keys, 1 << 20)
    return body, envelope.remaining


CHAIN = st.lists(st.sampled_from([Compress(), Encrypt(("a.pub",)), Encrypt(("b.pub", "a.pub"))]), max_size=6)


@given(CHAIN, st.binary(max_size=300) | st.binary(min_size=1, max_size=3).map(lambda data: data * 3000), st.booleans())
def test_every_chain_of_encodings_is_undone_by_the_receiver(
    keys: tuple[Path, list[SealingPrivateKey]], chain: list[Compress | Encrypt], data: bytes, is_file: bool
) -> None:
    rules = Rules([Rule(Constant(True), tuple(chain))], directory=keys[0])
    way = Way.FILE if is_file else Way.BROADCAST
    out = rules.apply_nowait(message(data, way=way, file_name="plan" if is_file else ""), _Nowhere())  # type: ignore[arg-type]
    body, remaining = received(out, keys[1])
    assert not remaining
    assert (decode_file(body) == ("plan", data)) if is_file else (body == data)
    if out.encodings and out.encodings[-1] == "x25519":
        assert received(out, [])[1] == out.encodings


class _Nowhere:
    name = "office/hq"
    _observer = None


def test_receiver_with_another_key_cannot_read() -> None:
    key, other = SealingPrivateKey.generate(), SealingPrivateKey.generate()
    assert unseal(seal(b"data", [key.public]), [other]) is None
    assert unseal(seal(b"data", [key.public, other.public]), [other]) == b"data"


async def test_compressing_what_would_not_become_smaller_is_skipped() -> None:
    assert (await applied(always("compress"), message(b"abc"))).encodings == ()
    too_small = bytes(10_000_000)  # receivers would reject a growth by a factor of 1,000
    assert (await applied(always("compress"), message(too_small))).encodings == ()


async def test_program_after_an_encoding_makes_it_opaque(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ["crypto_prg"])
    rules = always("compress\n crypto_prg $", programs=recorder.programs, limits=LIMITS)
    out = await applied(rules, message(b"a" * 1000))
    assert out.encodings == ("zlib", "program crypto_prg")
    assert received(out, [])[1] == ("zlib", "program crypto_prg")


@pytest.mark.parametrize("way", [Way.POST, Way.REPLY])
@pytest.mark.parametrize("actions", ["compress", 'set subject "x"', 'set topic "x"'])
async def test_what_has_no_headers_is_not_sent_with_encodings_or_headers(way: Way, actions: str) -> None:
    with pytest.raises(NotSentError, match=f"a {way} cannot"):
        pack_data(await applied(always(actions), message(b"a" * 500, way=way, has_envelope=False)))


async def test_redacting_encoded_data_fails_closed() -> None:
    with pytest.raises(NotSentError, match="redact it first"):
        await applied(always("compress; redact emails"), message(b"a" * 1000))


# -- copies and held messages


async def test_copies_are_complete_private_files_and_never_overwritten(tmp_path: Path) -> None:
    rules = Rules([Rule(Constant(True), (Copy("backup"), Copy("backup")))], directory=tmp_path)
    for _ in range(3):
        await applied(rules, message(b"plan"))
    files = sorted((tmp_path / "backup").iterdir())
    assert [file.read_bytes() for file in files] == [b"plan"] * 6
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


async def test_held_message_is_stored_as_it_was_and_can_be_dropped(tmp_path: Path) -> None:
    rules = always('set subject "changed"; hold "ask Anna"; refuse "not reached"', held=tmp_path / "held")
    given_out = message(b"\xffplan", headers={"subject": "s"}, topic="a/b", ttl_s=5.0, forwarded_from=("x/y",))
    with pytest.raises(HeldError, match=r"held as .*ask Anna") as held:
        await applied(rules, given_out)
    assert rules.held is not None
    [entry] = rules.held.list()
    assert (entry.id, entry.rule, entry.reason) == (held.value.held_id, "rule 1 (line 1)", "ask Anna")
    assert entry.out == given_out
    rules.held.drop(entry.id)
    assert rules.held.list() == []
    for bad in (entry.id, "", "../x", ".hidden"):
        with pytest.raises(RulesError, match="held"):
            rules.held.drop(bad)


async def test_damaged_held_message_does_not_hide_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = always("hold", held=tmp_path / "held")
    ids = []
    for data in (b"one", b"two"):
        with pytest.raises(HeldError) as held:
            await applied(rules, message(data))
        ids.append(held.value.held_id)
    [damaged] = (tmp_path / "held").glob(f"{ids[0]}*")
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert rules.held is not None
    assert [each.id for each in rules.held.list()] == ids[1:]
    assert "is not a held message" in caplog.text


async def test_request_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(NotSentError, match="a request cannot be held"):
        await applied(always("hold", held=tmp_path), message(way=Way.REQUEST, receiver=("ff",)))


def test_damaged_held_message_is_reported(tmp_path: Path) -> None:
    rules = always("hold", held=tmp_path)
    assert rules.held is not None
    for number, content in enumerate(["", "[]", '{"message": {"way": "x"}, "data": ""}', json.dumps({"message": 5})]):
        (tmp_path / f"{number}.held").write_text(content)
        with pytest.raises(RulesError, match="is not a held message"):
            rules.held.get(str(number))


# -- trying


async def test_trying_shows_each_step_and_does_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ["mail_prg"])
    text = 'IF { to("com") AND size > 3 } THEN { copy "backup" mail_prg x\n send "anna" hold } ELSE { stop }'
    rules = Rules(parse(text), programs=recorder.programs, held=tmp_path / "held", directory=tmp_path)
    preview = rules.preview(message(headers={"to": "com"}))
    assert [(each.text, each.outcome, each.found) for each in preview.steps][:3] == [
        ('to("com") AND size > 3', "true", ""),
        ('to("com")', "true", "to is 'com'"),
        ("size > 3", "true", "size is '4'"),
    ]
    assert preview.out is None
    assert "held" in preview.reason
    assert not recorder.calls
    assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "held").exists()
    assert preview.is_held
    other = rules.preview(message())
    assert [(each.outcome, each.found) for each in other.steps][:2] == [("false", ""), ("false", "to is empty")]
    assert other.out is not None
    assert other.steps[-1].text == "stop"
    assert all(each.hits == 0 for each in rules.counts())


async def test_dry_run_sends_everything_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broadloom")
    rules = Rules([Rule(Test("text", "contains", ("plan",)), parse(ALWAYS.format('refuse "no"')))], dry_run=True)
    out = message(b"plan")
    assert await applied(rules, out) is out
    assert rules.apply_nowait(out, _Nowhere()) is out  # type: ignore[arg-type]
    assert "rule 1: no" in caplog.text
