"""The switch page: which programs handle and observe what, queues, and requests as they run."""

import time
from functools import partial

from nicegui import ui

from broadloom.switch import MessageId, MessageState
from broadloom.web.pages.layout import (
    button,
    data_table,
    empty_state,
    every,
    guarded,
    heading,
    keep_joining,
    paragraph,
    section,
)
from broadloom.web.seen_request import SeenRequest
from broadloom.web.sources import Sources
from broadloom.web.switch_client import SwitchClient

REFRESH_S = 0.5
QUEUES_REFRESH_S = 2.0
ROWS_MAX = 200
"""Lines of the table of programs."""
SHOWN_MAX = 50
"""Requests on the page."""
QUEUE_COLUMNS = ("Program", "Session", "Where", "Waiting")
COLUMNS = ("Operation", "Does", "Scope", "Program", "Session", "Where", "State")
FILTERS = {"all": "All", "open": "Running", "failed": "Failed"}
SIGNS = {MessageState.HANDLED: ("held", "✓ handled"), MessageState.FAILED: ("broken", "✗ failed")}


def build(sources: Sources) -> None:
    client = sources.switch_client
    if not client.is_available:
        heading("Switch")
        empty_state(
            "No channel is joined here.",
            "Start `broadloom demo` or join a channel: `broadloom web office/hq`.",
        )
        return
    heading("Switch", "Which programs handle and observe what, and their requests as they run.")
    client.start_joining()
    client.add_view(ui.context.client.id)
    ui.context.client.on_delete(partial(client.remove_view, ui.context.client.id))
    SwitchPage(sources, client)


class SwitchPage:
    def __init__(self, sources: Sources, client: SwitchClient) -> None:
        self._sources = sources
        self._client = client
        self._programs: list[tuple[str, ...]] | None = None
        self._queues: list[tuple[str, ...]] = []
        self._wait_label = paragraph("Joining the channel …", "bl-quiet")
        with ui.element("div").classes("bl-cluster bl-switch") as self._all:
            with ui.element("div").classes("bl-cluster-controls"):
                self._build_observing()
                self._build_sending()
                self._build_limits()
            with ui.element("div").classes("bl-cluster-view"):
                with section("Programs"):
                    self._complete = paragraph("", "bl-quiet bl-small")
                    self._complete.props("role=status")
                    self._program_table = ui.element("div")
                with section("Queues") as self._queue_section:
                    paragraph("Messages that wait for programs that do not run.", "bl-quiet bl-small")
                    self._queue_table = ui.element("div")
                with section("Requests and notices").classes("bl-request-section"):
                    self._requests = RequestList(client)
        self._queue_section.set_visibility(False)
        self._all.set_visibility(False)
        every(REFRESH_S, self._refresh)
        every(QUEUES_REFRESH_S, self._refresh_queues)

    def _build_observing(self) -> None:
        with section("Observed here"):
            self._observed = paragraph("", "bl-small bl-observed")
            self._observed.props("role=status")
            self._chips = ui.element("div").classes("bl-chips")
            with ui.element("div").classes("bl-do"):
                self._session = _field("Session", "Session to observe")
                button("Observe", self._observe_session, "observe-session")
            with ui.element("div").classes("bl-do"):
                self._file = _field("File", "File to observe")
                button("Add", self._observe_file, "observe-file")

    def _build_sending(self) -> None:
        with section("Send a request"):
            with ui.element("div").classes("bl-stack"):
                self._operation = _field("Operation")
                self._about = _field("About a file", "File that the request is about; empty: the session")
                self._data = ui.textarea("Data").props("outlined dense stack-label rows=2 maxlength=4000")
            with ui.element("div").classes("bl-do"):
                button("Send", self._send, "send-request", is_primary=True)

    def _build_limits(self) -> None:
        with ui.element("details").classes("bl-section bl-sees").props("open"):
            with ui.element("summary").classes("bl-guarantee"):
                ui.label("What this page can see")
            with ui.element("ul").classes("bl-list"):
                for text in (
                    "Programs: all of them. Every member knows all registrations.",
                    "Requests and notices: those of the observed session, and those about the observed files. Their "
                    "senders broadcast copies while this page is open, and every member can read them.",
                    "Not visible: other sessions, messages for handlers only, requests to all handlers, and what was "
                    "sent before.",
                    "Times are measured here, from copy to copy.",
                ):
                    with ui.element("li"):
                        ui.label(text)

    # -- actions

    async def _observe_session(self) -> None:
        if session := str(self._session.value or "").strip():
            await self._client.observe_session(session)
            self._session.set_value("")

    def _observe_file(self) -> None:
        if file := str(self._file.value or "").strip():
            self._client.observe_file(file)
            self._file.set_value("")

    async def _send(self) -> None:
        operation, file = (str(field.value or "").strip() for field in (self._operation, self._about))
        await self._client.send(operation, str(self._data.value or ""), file or None)

    # -- showing

    def _refresh(self) -> None:
        client = self._client
        self._sources.check_live()
        if client.switch is None:
            keep_joining(client, self._wait_label)
            return
        self._wait_label.set_visibility(False)
        self._all.set_visibility(True)
        self._show_observed(client.switch.session)
        self._show_programs(client.program_rows(), is_complete=client.switch.is_complete)
        self._requests.refresh()

    async def _refresh_queues(self) -> None:
        rows = await self._client.queue_rows()
        if rows != self._queues:
            self._queues = rows
            self._queue_section.set_visibility(bool(rows))
            self._queue_table.clear()
            with self._queue_table:
                data_table("Queues and their length", QUEUE_COLUMNS, rows[:ROWS_MAX])

    def _show_observed(self, session: str) -> None:
        files = list(self._client.files)
        about = f"file{'s' * (len(files) > 1)} {', '.join(files)}" if files else "no files"
        text = f"Session {session}, {about}."
        if text == self._observed.text:
            return
        self._observed.set_text(text)
        self._chips.clear()
        with self._chips:
            for file in self._client.files:
                chip = ui.element("button").props("type=button").classes("bl-chip")
                chip.props["aria-label"] = f"Stop observing the file {file}"
                with chip:
                    ui.label(f"{file} ×")
                chip.on("click", guarded(partial(self._client.ignore_file, file)))

    def _show_programs(self, rows: list[tuple[str, ...]], *, is_complete: bool) -> None:
        known = "The registrations of all programs are known." if is_complete else "Asking for registrations …"
        more = f" The first {ROWS_MAX} lines are shown." if len(rows) > ROWS_MAX else ""
        self._complete.set_text(f"{known}{more}")
        if rows == self._programs or not (rows or is_complete):
            return
        self._programs = rows
        for field, names in zip((self._operation, self._session), self._client.known_names(), strict=True):
            field.set_autocomplete(names)
        self._program_table.clear()
        with self._program_table:
            if rows:
                data_table("Programs and what they handle and observe", COLUMNS, rows[:ROWS_MAX])
            else:
                options = self._client.own_peer.join_options()
                assert self._client.switch is not None
                name = self._client.switch.channel.name
                empty_state(
                    "No program has registered anything.",
                    f"Try it from another terminal: `broadloom switch handle {name}{options} upper -- tr a-z A-Z`",
                )


class RequestList:
    """The newest messages on top. Only what has changed is sent to the browser."""

    def __init__(self, client: SwitchClient) -> None:
        self._client = client
        self._version = -1
        self._shown: dict[MessageId, tuple[ui.element, int]] = {}
        with ui.element("div").classes("bl-row"):
            self._filter = ui.select(FILTERS, value="all", label="Show").props("outlined dense options-dense")
            self._filter.classes("bl-select").on_value_change(guarded(self._restart))
            self._count = paragraph("", "bl-quiet bl-small")
        # Not read aloud as it grows: there may be many.
        self._list = ui.element("ol").classes("bl-requests").props('aria-label="Requests and notices"')

    def _restart(self) -> None:
        self._version = -1
        self.refresh()

    def refresh(self) -> None:
        client = self._client
        if client.version == self._version:
            return
        self._version = client.version
        chosen = [each for each in client.requests.values() if self._is_chosen(each)][-SHOWN_MAX:]
        ids = {each.message.id for each in chosen}
        for gone in [each for each in self._shown if each not in ids]:
            self._shown.pop(gone)[0].delete()
        for position, each in enumerate(reversed(chosen)):
            element, version = self._shown.get(each.message.id, (None, -1))
            if element is None:
                with self._list:
                    element = ui.element("li").classes("bl-request")
                element.move(target_index=position)
            if version != each.version:
                element.clear()
                with element:
                    self._show(each, element)
                self._shown[each.message.id] = (element, each.version)
        total = len(client.requests)
        self._count.set_text(
            f"{len(chosen)} of {total} shown." if total else "None yet. Messages appear when programs send them."
        )

    def _is_chosen(self, seen: SeenRequest) -> bool:
        match self._filter.value:
            case "open":
                return not seen.is_ended
            case "failed":
                return seen.state is MessageState.FAILED
        return True

    def _show(self, seen: SeenRequest, element: ui.element) -> None:
        message, client = seen.message, self._client
        verdict, sign = SIGNS.get(seen.state, ("unsettled", f"… {seen.state.name.lower()}"))
        element.props(f"data-verdict={verdict} data-state={seen.state.name.lower()}")
        with ui.element("div").classes("bl-who"):
            ui.label(sign).classes("bl-outcome")
            kind = "notice " if seen.is_notice else ""
            about = f" about {message.file}" if message.file else ""
            ui.label(f"{kind}{message.operation}{about}").classes("bl-guarantee")
            if seen.took_s is not None:
                ui.label(duration_text(seen.took_s)).classes("bl-took")
        with ui.element("div"):
            sender = client.program_name(message.sender, message.sender_program)
            handler = client.program_name(seen.handler, seen.handler_program) if seen.handler is not None else ""
            at = time.strftime("%H:%M:%S", time.localtime(seen.seen_at))
            ui.label(f"{at} · {sender}{f' → {handler}' if handler else ''}").classes("bl-quiet bl-small")
            with ui.element("ol").classes("bl-states").props('aria-label="States"'):
                for step in seen.steps:
                    with ui.element("li"):
                        ui.label(step.state.name.lower())
                        if step.after_s:
                            ui.label(f"+{duration_text(step.after_s)}").classes("bl-quiet")
        with ui.element("div"):
            if seen.text:
                ui.label(f"data: {seen.text}").classes("bl-code bl-text")
            if seen.state is MessageState.FAILED and seen.reason is not None:
                reason = seen.reason.name.lower().replace("_", " ")
                ui.label(f"{reason}: {seen.reply}" if seen.reply else reason).classes("bl-text bl-mistake-text")
            elif seen.reply:
                ui.label(f"reply: {seen.reply}").classes("bl-code bl-text")


def duration_text(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _field(label: str, about: str = "") -> ui.input:
    field = ui.input(label, autocomplete=[]).props("outlined dense stack-label maxlength=256")
    field.props["aria-label"] = about or label
    return field.classes("bl-line")
