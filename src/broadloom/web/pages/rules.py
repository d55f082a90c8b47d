"""The rules page: rules and a message, tried step by step. Nothing is sent, stored or run."""

import asyncio
from functools import partial
from itertools import groupby

from nicegui import ui
from nicegui.events import GenericEventArguments

from broadloom.rules import Mistake, Outgoing, Preview, Rules, RulesSyntaxError, Step, Way, format_rules, parse
from broadloom.web.pages.layout import button, call_soon, guarded, heading, paragraph, section, subheading
from broadloom.web.pages.server_rules import ServerRules
from broadloom.web.rule_preview import (
    PRIORITY_NAMES,
    SIZE_BYTES_MAX,
    SOURCE_CHARS_MAX,
    TEXT_CHARS_MAX,
    PreviewError,
    message_data,
    parse_headers,
    priority_text,
    step_outcome,
    try_rules,
)
from broadloom.web.sources import Sources
from broadloom.wire.broadcast_frame import Priority

SHOWN_CHARS_MAX = 2_000
"""Characters of the message that would leave."""
EXAMPLE = """\
# Nothing secret leaves.
RULE "no keys" IF { matches(/BEGIN [A-Z ]*PRIVATE KEY/) }
THEN { refuse "a private key" }

RULE "partners"
IF { to("com") AND size > 1MB AND NOT content-type("image/*") }
THEN {
  copy "backup/"
  compress
  IF { subject("crypto") } THEN { encrypt for "com.pub" }
}
ELSE { redact card-numbers }
"""
EXAMPLE_TEXT = "Plan B costs 4,000, to be paid with the card 4111 1111 1111 1111 before Friday."
READ_FILE = """async (event) => {
  const file = event.target.files[0];
  if (file) emit(await file.slice(0, %d).text());
  event.target.value = '';
}"""
GO_TO = """const field = document.querySelector('.bl-editor textarea');
field.focus(); field.setSelectionRange(%d, %d); field.scrollIntoView({block: 'nearest'});"""
SHOW_RESULT = "if (innerWidth <= 900) document.querySelector('.bl-result').scrollIntoView({behavior: 'smooth'})"
SIGNS = {"true": "✓ true", "false": "✗ false"}


def build(sources: Sources) -> None:
    heading(
        "Rules",
        "Try rules on a message that leaves. Nothing is sent, stored or run here, and no file is read.",
    )
    RuleEditor(sources.rules)
    if sources.rules is not None:
        ServerRules(sources.rules)


class RuleEditor:
    """The rules, the message, and what would happen."""

    def __init__(self, own_rules: Rules | None) -> None:
        self._own_rules = own_rules
        with ui.element("div").classes("bl-rules"):
            with ui.element("div").classes("bl-rules-input") as inputs:
                self._build_editor()
                self._build_message()
            inputs.on("keydown.ctrl.enter", guarded(self._try))
            inputs.on("keydown.meta.enter", guarded(self._try))
            with section("Result").classes("bl-result"):
                with ui.element("div").classes("bl-do"):
                    button("Try", self._try_pressed, "try", is_primary=True)
                    ui.label("or press Ctrl+Enter").classes("bl-quiet bl-small bl-keys")
                self._verdict = ui.element("div").classes("bl-audit").props("role=status data-verdict=unjudged")
                with self._verdict:
                    self._outcome = ui.label("…").classes("bl-outcome")
                    self._sentence = ui.label("Try the rules to see what they do.")
                self._details = ui.element("div").classes("bl-rules-details")
        self._mark_lines(())
        call_soon(self._try)

    def _build_editor(self) -> None:
        with section("Rules"):
            with ui.element("div").classes("bl-editor"):
                self._gutter = ui.element("div").classes("bl-gutter").props("aria-hidden=true")
                self._source = ui.textarea(value=EXAMPLE, on_change=self._on_edited).props(
                    "borderless autogrow debounce=150 spellcheck=false autocapitalize=off wrap=off aria-label=Rules"
                )
            self._mistakes = ui.element("ul").classes("bl-mistakes").props('aria-label="Mistakes"')
            with ui.element("div").classes("bl-do"):
                with ui.element("label").classes("bl-open"):
                    ui.label("Open file …")
                    file_input = ui.element("input").props('type=file accept=".rules,text/plain" id=do-open')
                    file_input.on("change", self._on_opened, js_handler=READ_FILE % (SOURCE_CHARS_MAX + 1))
                button("Format", self._format, "format")
                if self._own_rules is not None:
                    button("Use the rules of this server", self._use_own, "own-rules")
            self._names = ui.input("Programs and Python functions that these rules may use").props(
                'outlined dense stack-label placeholder="crypto_prg, working hours" hint="Separated by commas. '
                'They are not run; a condition with such a name counts as true." maxlength=1000'
            )

    def _build_message(self) -> None:
        with section("Message"):
            with ui.element("div").classes("bl-fields"):
                self._topic = _text_field("Topic", "plans/2026")
                self._subject = _text_field("Subject", "plans (crypto)")
                self._to = _text_field("To", "com", "Recipients, separated by commas")
                self._size = ui.number("Size", value=2_000_000, min=0, max=SIZE_BYTES_MAX, step=1, precision=0).props(
                    'outlined dense stack-label clearable suffix=bytes placeholder="of the text" '
                    'aria-label="Size in bytes. Empty: the size of the text. Larger: filled up with white space"'
                )
            self._text = ui.textarea("Text or JSON", value=EXAMPLE_TEXT).props(
                f"outlined dense stack-label rows=3 maxlength={TEXT_CHARS_MAX}"
            )
            with ui.element("details").classes("bl-more"):
                with ui.element("summary"):
                    ui.label("Headers and other fields")
                with ui.element("div").classes("bl-fields"):
                    self._channel = _text_field("Channel", "office/hq")
                    ways = {each.value: each.value for each in Way}
                    self._way = _select("Sent as", ways, Way.BROADCAST.value)
                    self._priority = _select("Priority", PRIORITY_NAMES, Priority.NORMAL.value)
                    self._content_type = _text_field("Content type")
                    self._sender = _text_field("From", "", "Name of the program that sends")
                    self._name = _text_field("Name", "", "Of the file, group, mailbox, operation or conversation")
                self._headers = ui.textarea("Headers").props(
                    'outlined dense stack-label rows=2 placeholder="origin: hq" '
                    'aria-label="Further headers, one per line: name: value" maxlength=4000'
                )

    # -- the editor

    def _on_edited(self) -> None:
        self._mark_lines(())

    def _mark_lines(self, mistakes: tuple[Mistake, ...]) -> None:
        """Line numbers, with a mark at mistakes; and the mistakes, each with its line."""
        lines = str(self._source.value or "").split("\n")
        bad = {each.line for each in mistakes}
        self._gutter.clear()
        with self._gutter:
            for is_bad, numbers in groupby(range(1, len(lines) + 1), bad.__contains__):
                label = ui.label("\n".join(f"✗ {n}" if is_bad else str(n) for n in numbers))
                label.classes("bl-mistake-text" if is_bad else "")
        self._mistakes.clear()
        self._mistakes.set_visibility(bool(mistakes))
        with self._mistakes:
            for mistake in mistakes:
                line = lines[mistake.line - 1] if mistake.line <= len(lines) else ""
                position = sum(len(each) + 1 for each in lines[: mistake.line - 1]) + mistake.column - 1
                with ui.element("li"), ui.element("button").props("type=button").classes("bl-mistake") as entry:
                    ui.label(f"Line {mistake.line}, column {mistake.column}: {mistake.text}")
                    ui.label(f"{line}\n{' ' * (mistake.column - 1)}▲").classes("bl-caret").props("aria-hidden=true")
                entry.on("click", partial(ui.run_javascript, GO_TO % (position, position + 1)))

    def _on_opened(self, event: GenericEventArguments) -> None:
        self._source.set_value(str(event.args))

    def _use_own(self) -> None:
        assert self._own_rules is not None
        self._source.set_value(format_rules(self._own_rules.items))

    def _format(self) -> None:
        try:
            items = parse(str(self._source.value or "")[: SOURCE_CHARS_MAX + 1])
        except RulesSyntaxError as problem:
            self._show_mistakes(problem.mistakes)
        else:
            self._source.set_value(format_rules(items))

    # -- trying

    async def _try_pressed(self) -> None:
        await self._try()
        ui.run_javascript(SHOW_RESULT)

    async def _try(self) -> None:
        source, out = str(self._source.value or ""), self._message()
        names = [name.strip() for name in str(self._names.value or "").split(",") if name.strip()]
        async with _one_at_a_time:
            result = await asyncio.to_thread(try_rules, source, out, names)
        if result.preview is None:
            self._show_mistakes(result.mistakes)
        else:
            self._mark_lines(())
            self._show(result.preview)

    def _message(self) -> Outgoing:
        way = Way(str(self._way.value))
        headers = parse_headers(_value(self._headers))
        headers |= {name: text for name, text in (("subject", _value(self._subject)), ("to", _value(self._to))) if text}
        size = int(self._size.value) if self._size.value is not None else None
        if not way.has_envelope and (_value(self._topic) or _value(self._content_type) or headers):
            raise PreviewError(f"a {way} has no topic, content type or headers: empty these fields")
        return Outgoing(
            message_data(str(self._text.value or ""), size),
            way,
            _value(self._channel),
            topic=_value(self._topic) or None,
            content_type=_value(self._content_type) or None,
            headers=headers,
            priority=int(self._priority.value or 0),
            file_name=_value(self._name) if way is Way.FILE else "",
            name=_value(self._name) if way is not Way.FILE else "",
            sender=_value(self._sender),
            has_envelope=way.has_envelope,
        )

    # -- the result

    def _show_verdict(self, verdict: str, outcome: str, sentence: str) -> None:
        self._verdict.props(f"data-verdict={verdict}")
        self._outcome.set_text(outcome)
        self._sentence.set_text(sentence)

    def _show_mistakes(self, mistakes: tuple[Mistake, ...]) -> None:
        self._mark_lines(mistakes)
        self._details.clear()
        found = "There is a mistake" if len(mistakes) == 1 else f"There are {len(mistakes)} mistakes"
        self._show_verdict("broken", "✗ not tried", f"{found} in the rules, listed below them.")

    def _show(self, preview: Preview) -> None:
        self._details.clear()
        if preview.out is not None:
            copies = f" Copies go to {', '.join(preview.deliveries)}." if preview.deliveries else ""
            self._show_verdict("held", "✓ would be sent", f"{len(preview.out.data):,} bytes.{copies}")
        elif preview.is_held:
            self._show_verdict("unsettled", "… would be held", f"A person has to release it. {preview.reason}.")
        else:
            self._show_verdict("broken", "✗ would not be sent", f"{preview.reason}.")
        with self._details:
            self._show_steps(preview.steps)
            if preview.out is not None:
                _show_message(preview.out)

    def _show_steps(self, steps: tuple[Step, ...]) -> None:
        subheading("Steps")
        if not steps:
            paragraph("There are no rules: every message is sent as it is.", "bl-quiet")
        rule, container = "", None
        for step in steps:
            if step.rule != rule or container is None:
                rule = step.rule
                ui.label(rule[:1].upper() + rule[1:]).classes("bl-guarantee bl-step-rule")
                container = ui.element("ol").classes("bl-steps")
            with container:
                _show_step(step)


_one_at_a_time = asyncio.Lock()
"""For all open pages: a preview keeps a core busy."""


def _show_step(step: Step) -> None:
    kind = step.outcome if step.is_condition else "action"
    with ui.element("li").props(f"data-step={kind}") as row:
        row.style(f"--depth: {min(step.depth, 8)}")
        ui.label(SIGNS.get(step.outcome, "") if step.is_condition else "→ do").classes("bl-sign")
        with ui.element("div"):
            ui.label(f"IF {step.text}" if step.is_condition and not step.is_part else step.text).classes("bl-code")
            if detail := step_outcome(step):
                ui.label(detail).classes("bl-quiet bl-small")


def _show_message(out: Outgoing) -> None:
    subheading("What would leave")
    fields = {
        "Size": f"{len(out.data):,} bytes",
        "Encodings": ", then ".join(out.encodings) or "none",
        "Topic": out.topic or "none",
        "Content type": out.content_type or "none",
        "Priority": priority_text(out.priority),
        **({"Time to live": f"{out.ttl_s:g} s"} if out.ttl_s else {}),
        **{f"Header {name}": value for name, value in out.headers.items()},
    }
    with ui.element("dl").classes("bl-leaving"):
        for name, value in fields.items():
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                ui.label(value)
    if not out.encodings:
        text = out.data.decode(errors="replace").rstrip()
        more = " …" if len(text) > SHOWN_CHARS_MAX else ""
        ui.label(text[:SHOWN_CHARS_MAX] + more).classes("bl-text bl-code bl-leaving-text")


def _text_field(label: str, value: str = "", about: str = "") -> ui.input:
    field = ui.input(label, value=value).props("outlined dense stack-label maxlength=1000")
    field.props["aria-label"] = f"{label}: {about}" if about else label
    return field


def _select(label: str, options: dict[str, str] | dict[int, str], value: str | int) -> ui.select:
    return ui.select(options, value=value, label=label).props("outlined dense options-dense stack-label")


def _value(field: ui.input | ui.textarea) -> str:
    return str(field.value or "").strip()
