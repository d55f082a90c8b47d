"""Rules are tried without effects, and every mistake has its place."""

import itertools
import json
from pathlib import Path

import pytest

from broadloom.rules import Outgoing
from broadloom.web.rule_preview import (
    SIZE_BYTES_MAX,
    PreviewError,
    message_data,
    parse_headers,
    priority_text,
    step_outcome,
    try_rules,
)


def test_mistakes_of_syntax_and_of_names_have_lines() -> None:
    syntax = try_rules('IF { size > } THEN { stop }\n\nIF { to("x") } DO { stop }', Outgoing(b""))
    assert [each.line for each in syntax.mistakes] == [1, 3]
    assert syntax.mistakes[1].column == 16
    unknown = try_rules("IF { true } THEN { stop }\nIF { true } THEN { crypto_prg $ }", Outgoing(b""))
    [mistake] = unknown.mistakes
    assert mistake.line == 2
    assert mistake.text.startswith("there is no action `crypto_prg`")


def test_preview_runs_no_program_and_reads_no_file(tmp_path: Path) -> None:
    program = f"touch {tmp_path}/ran"
    source = (
        f'IF {{ office }} THEN {{ copy "{tmp_path}/copies"\n {program}\n encrypt for "/missing.pub"\n send "anna" }}'
    )
    result = try_rules(source, Outgoing(b"Plan B", headers={"to": "com"}), ["touch", "office"])
    assert result.preview is not None
    assert result.preview.out is not None
    assert result.preview.out.encodings == ("x25519",)
    assert result.preview.deliveries == ("anna",)
    assert "not run here; the data stays as it is" in [step_outcome(each) for each in result.preview.steps]
    assert list(tmp_path.iterdir()) == []


def test_priorities_without_a_name_are_shown_as_numbers() -> None:
    result = try_rules("IF { true } THEN { set priority 7 }", Outgoing(b""))
    assert result.preview is not None
    assert result.preview.out is not None
    assert [priority_text(each) for each in (0, 1, 2, result.preview.out.priority)] == ["low", "normal", "high", "7"]


def test_endless_preview_is_stopped() -> None:
    clock = itertools.count(step=1.0)
    result = try_rules("IF { size > 5 } THEN { stop }\n" * 50, Outgoing(b""), clock=lambda: next(clock))
    assert result.preview is not None
    assert "take more than 5 s" in result.preview.reason


def test_message_is_filled_up_to_its_size_and_stays_json() -> None:
    data = message_data('{"price": 7}', 1000)
    assert len(data) == 1000
    assert json.loads(data) == {"price": 7}
    assert message_data("Plan B", None) == b"Plan B"
    for size in (1, SIZE_BYTES_MAX + 1):
        with pytest.raises(PreviewError, match="the text has 6 bytes"):
            message_data("Plan B", size)


def test_headers_are_lines_with_a_name() -> None:
    assert parse_headers("origin: hq\n\nRef:a:b ") == {"origin": "hq", "Ref": "a:b"}
    with pytest.raises(PreviewError, match="line 2 of the headers"):
        parse_headers("origin: hq\nnonsense")
