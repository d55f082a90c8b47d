"""`broadloom rules`: check, try and format rules on outgoing messages; keys; messages that rules hold."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from broadloom.cli.exit_codes import FAILURE, SUCCESS, USAGE_ERROR, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import (
    ChannelArgument,
    JoinOptions,
    JsonOption,
    ProgramsOption,
    argument,
    command_group,
    named_values,
    option,
    parse_programs,
)
from broadloom.cli.output import print_json, print_result, print_rows
from broadloom.cli.runner import StopSignal, command, joined_channel
from broadloom.cli.send import HeaderOption, wait_for_peers
from broadloom.rules import (
    HeldMessages,
    Outgoing,
    Preview,
    Rules,
    RulesSyntaxError,
    SealingPrivateKey,
    Way,
    action,
    condition,
    format_rules,
    parse,
)
from broadloom.rules.rules import read_source
from broadloom.security.pem import replace_public

rules = command_group(
    "Check, try and format rules on outgoing messages.\n\nExamples:\n\n- `broadloom rules check out.rules`"
)
held = command_group(
    "List, release and drop messages that rules hold.\n\nExamples:\n\n- `broadloom rules held list out.rules.held`"
)
rules.add_typer(held, name="held")

RulesArgument = Annotated[Path, argument("The file with the rules.", "FILE")]
HeldArgument = Annotated[Path, argument("Directory of the held messages, `FILE.held` by default.", "DIR")]
HeldIdArgument = Annotated[str, argument("The message, as in `broadloom rules held list`.", "ID")]
NamesOption = Annotated[
    list[str] | None, option("Name of an action or condition written in Python; repeatable.", "NAME", "--python")
]


def _load(file: Path, programs: list[str] | None, names: list[str] | None = None) -> Rules:
    for name in names or ():
        action(name)(lambda out, *_arguments: out)
        condition(name)(lambda _out: True)
    return Rules.load(file, programs=parse_programs(programs))


@command("rules check", rules)
def check(
    file: RulesArgument, program: ProgramsOption = None, names: NamesOption = None, json: JsonOption = False
) -> int:
    """Check a file of rules and list its mistakes with line and column.

    Exit status 2 if there are any.

    Examples:

    - `broadloom rules check out.rules`
    - `broadloom rules check out.rules --rule-program crypto_prg=/usr/bin/seal --python stamp`
    """
    try:
        loaded = _load(file, program, names)
    except RulesSyntaxError as problem:
        if not json:
            raise
        mistakes = [{"line": each.line, "column": each.column, "text": each.text} for each in problem.mistakes]
        print_json({"file": str(file), "rules": None, "mistakes": mistakes})
        return USAGE_ERROR
    count = len(loaded.counts())
    print_result({"file": str(file), "rules": count, "mistakes": []}, f"{file}: {count} rules, no mistakes", json=json)
    return SUCCESS


@command("rules format", rules)
def format_file(
    file: RulesArgument,
    write: Annotated[bool, option("Replace the file.")] = False,
    check: Annotated[bool, option("Print nothing; exit status 1 if the file would change.")] = False,
    json: JsonOption = False,
) -> int:
    """Print rules in the standard format, with their comments.

    Examples:

    - `broadloom rules format --write out.rules`
    """
    source = read_source(file)
    text = format_rules(parse(source, str(file)))
    is_changed = text != source
    if write and is_changed:
        replace_public(file, text.encode())
    if json:
        print_json({"file": str(file), "changed": is_changed, "text": text})
    elif not write and not check:
        sys.stdout.write(text)
    return FAILURE if check and is_changed else SUCCESS


@command("rules try", rules)
def try_message(
    file: RulesArgument,
    text: Annotated[list[str] | None, argument("The message. Default: the input.", "[TEXT]...")] = None,
    subject: Annotated[str | None, option("The header `subject`.")] = None,
    to: Annotated[str | None, option("The header `to`.")] = None,
    header: HeaderOption = None,
    topic: Annotated[str | None, option("Topic.")] = None,
    channel: Annotated[str, option("Name of the channel.")] = "office/hq",
    way: Annotated[str, option("How it would be sent.", "|".join(Way))] = "broadcast",
    program: ProgramsOption = None,
    names: NamesOption = None,
    json: JsonOption = False,
) -> int:
    """Show step by step what rules would do with a message.

    Nothing is sent, copied or held, and no program runs. Exit status 1 if the message would not be sent.

    Examples:

    - `broadloom rules try out.rules --subject "plans (crypto)" --to com Plan B`
    - `broadloom rules try out.rules --json < message`
    """
    headers = named_values(header, "--header")
    headers |= {name: value for name, value in (("subject", subject), ("to", to)) if value is not None}
    if way not in [each.value for each in Way]:
        raise UsageError(f"--way {way}: must be one of {', '.join(Way)}")
    data = " ".join(text).encode(errors="surrogateescape") if text else sys.stdin.buffer.read()
    out = Outgoing(data, Way(way), channel, topic=topic, headers=headers, has_envelope=Way(way).has_envelope)
    preview = _load(file, program, names).preview(out)
    if json:
        print_json(preview_fields(preview))
    else:
        for line in preview_lines(preview):
            print(escape_control_chars(line))
    return FAILURE if preview.out is None else SUCCESS


def preview_fields(preview: Preview) -> dict[str, object]:
    steps = [
        {
            "rule": each.rule,
            "depth": each.depth,
            "text": each.text,
            "outcome": each.outcome,
            "found": each.found,
            "condition": each.is_condition,
        }
        for each in preview.steps
    ]
    sent = preview.out
    message = None
    if sent is not None:
        message = {
            "bytes": len(sent.data), "topic": sent.topic, "content_type": sent.content_type,
            "headers": dict(sent.headers), "encodings": list(sent.encodings), "priority": sent.priority,
        }  # fmt: skip
    return {"steps": steps, "sent": message, "reason": preview.reason, "copies": list(preview.deliveries)}


def preview_lines(preview: Preview) -> list[str]:
    lines, rule = [], ""
    for each in preview.steps:
        if each.rule != rule:
            rule = each.rule
            lines.append(rule)
        indent = "  " * (each.depth + 1)
        found = f" ({each.found})" if each.found else ""
        lines.append(
            f"{indent}{'IF ' if each.is_condition and not each.is_part else ''}{each.text}  → {each.outcome}{found}"
        )
    if preview.out is None:
        return [*lines, f"not sent: {preview.reason}"]
    encodings = f", {', '.join(preview.out.encodings)}" if preview.out.encodings else ""
    copies = f"; copies to {', '.join(preview.deliveries)}" if preview.deliveries else ""
    return [*lines, f"sent: {len(preview.out.data):,} bytes{encodings}{copies}"]


@command("rules key", rules)
def key(
    out: Annotated[Path, option("Name of the two files, without suffix.", "NAME", "--out", "-o")],
    json: JsonOption = False,
) -> None:
    """Create a key pair for `encrypt for`: NAME.key for the reader, NAME.pub for rules.

    Examples:

    - `broadloom rules key --out com`
    """
    private = SealingPrivateKey.generate()
    private_file, public_file = out.with_name(out.name + ".key"), out.with_name(out.name + ".pub")
    private.save(private_file)
    private.public.save(public_file)
    text = f"{private_file}: the private key. Keep it secret.\n{public_file}: the public key, for `encrypt for`."
    print_result({"private": str(private_file), "public": str(public_file)}, text, json=json)


@command("rules held list", held)
def held_list(directory: HeldArgument, json: JsonOption = False) -> None:
    """List the messages that rules hold.

    Examples:

    - `broadloom rules held list out.rules.held`
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory of held messages")
    print_rows(
        (
            {
                "id": each.id,
                "state": "sending" if each.is_sending else "held",
                "channel": each.out.channel,
                "bytes": len(each.out.data),
                "subject": escape_control_chars(each.out.headers.get("subject", "")),
                "rule": each.rule,
                "reason": each.reason,
            }
            for each in HeldMessages(directory).list()
        ),
        json=json,
    )


@command("rules held drop", held)
def held_drop(directory: HeldArgument, held_id: HeldIdArgument, json: JsonOption = False) -> None:
    """Delete a held message without sending it.

    Examples:

    - `broadloom rules held drop out.rules.held 20261117T093000.000000Z-0`
    """
    HeldMessages(directory).drop(held_id)
    print_result({"id": held_id}, f"{held_id}: dropped", json=json)


@command("rules held release", held)
async def held_release(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    directory: HeldArgument,
    held_id: HeldIdArgument,
    json: JsonOption = False,
) -> None:
    """Send a held message. It passes the rules again, except for `hold`.

    Examples:

    - `broadloom rules held release office/hq out.rules.held 20261117T093000.000000Z-0 --rules out.rules`
    """
    loaded = join_options.loaded_rules(held=directory)
    if loaded is None:
        raise UsageError("a released message passes the rules again: use --rules")
    with usage_errors():
        HeldMessages(directory).get(held_id)
    deadline = asyncio.get_running_loop().time() + join_options.timeout
    async with joined_channel(channel, join_options, stop) as joined:
        await wait_for_peers(joined, deadline, join_options)
        sequence = await loaded.release(held_id, joined)
    print_result({"channel": channel, "id": held_id, "sequence": sequence}, f"{held_id}: sent", json=json)
