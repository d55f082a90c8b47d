"""What all pages share: header, navigation, theme, and a banner for errors.

An error inside a page is shown on that page in one sentence; the rest of the page keeps working.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import isawaitable

from nicegui import ui

from broadloom.web.error_messages import describe_error
from broadloom.web.own_peer import PageClient
from broadloom.web.sources import Sources

Act = Callable[[], Awaitable[object] | object]
Build = Callable[[Sources], None]
"""Builds the content of a page. Slow work runs in a timer afterwards, so the layout appears at once."""

HEAD = """
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="/static/broadloom.css">
<script src="/static/theme.js"></script>
"""


@dataclass(frozen=True, slots=True)
class PageSpec:
    path: str
    name: str
    build: Build
    is_application: bool = False
    """Applications are a group of their own in the header."""
    parent: str = ""
    """Path of the page that the header shows as the current one; pages with a parent are not in the header."""


def register(page: PageSpec, pages: tuple[PageSpec, ...], sources: Sources) -> None:
    def show() -> None:
        ui.add_head_html(HEAD)
        with ui.element("div").classes("bl-page"):
            _header(page, pages)
            with ui.element("main").props("id=main tabindex=-1") as main:
                banner = _banners[ui.context.client.id] = ErrorBanner()
                ui.context.client.on_delete(lambda named=ui.context.client.id: _banners.pop(named, None))
                ui.on_exception(banner.show)
                ui.skip_link(target=main)
                try:
                    page.build(sources)
                except Exception as error:
                    banner.show(error)

    ui.page(page.path, title=f"{page.name} · Broadloom")(show)


_banners: "dict[str, ErrorBanner]" = {}
"""The banner of each open page, by client."""


class ErrorBanner:
    """Errors, at the top of a page."""

    def __init__(self) -> None:
        self._shown = ""
        self._act: Act | None = None
        self._bar = ui.element("div").classes("bl-problem").props("role=alert")
        self._bar.set_visibility(False)
        with self._bar:
            self._text = ui.element("p")
            with self._text:
                self._label = ui.label()
            button = ui.element("button").props('type=button aria-label="Close this message"').classes("bl-close")
            with button:
                ui.label("×").props("aria-hidden=true")
            button.on("click", lambda: self._bar.set_visibility(False))

    def show(self, error: Exception, act: Act | None = None) -> None:
        self._act = act
        if repr(error) != self._shown:  # a failing timer is reported once
            self._shown = repr(error)
            self._label.set_text(describe_error(error))
            self._bar.set_visibility(True)

    def clear(self, act: Act) -> None:
        """This action succeeded, so its error no longer applies."""
        if self._act is act:
            self._shown, self._act = "", None
            self._bar.set_visibility(False)


def guarded(act: Act) -> Callable[..., Awaitable[None]]:
    """Wrap a callback so that its errors appear on the page where it was created."""
    banner = _banners[ui.context.client.id]

    async def run(*_args: object) -> None:
        try:
            done = act()
            if isawaitable(done):
                await done
        except Exception as error:
            banner.show(error, act)
        else:
            banner.clear(act)

    return run


def every(seconds: float, act: Act) -> None:
    """Run now and then periodically while the page is open."""
    ui.timer(seconds, guarded(act))


def call_soon(act: Act) -> None:
    """Run once, after the page is shown."""
    ui.timer(0.0, guarded(act), once=True)


def _header(page: PageSpec, pages: tuple[PageSpec, ...]) -> None:
    with ui.element("header").classes("bl-head"):
        with ui.element("a").props('href=/ aria-label="Broadloom, home"').classes("bl-name"):
            ui.label("Broadloom")
        with ui.element("nav").props('aria-label="Pages"').classes("bl-nav"):
            for label, is_application in (("Channel", False), ("Applications", True)):
                with ui.element("div").props(f"role=group aria-label={label}").classes("bl-nav-group"):
                    for each in pages:
                        if each.is_application == is_application and not each.parent:
                            _link(each, is_current=each.path == (page.parent or page.path))
        with ui.element("button").props("type=button id=bl-theme").classes("bl-theme") as button:
            ui.label("Theme")
        button.on("click", js_handler="() => broadloomTheme.next()")


def _link(page: PageSpec, *, is_current: bool) -> None:
    link = ui.element("a").props(f"href={page.path}")
    if is_current:
        link.props("aria-current=page")
    with link:
        ui.label(page.name)


def heading(text: str, sentence: str = "") -> None:
    """Title and one sentence."""
    with ui.element("div").classes("bl-title"):
        with ui.element("h1"):
            ui.label(text)
        if sentence:
            with ui.element("p"):
                ui.label(sentence)


def section(text: str) -> ui.element:
    """A titled section, to be filled."""
    with ui.element("section").classes("bl-section") as part, ui.element("h2"):
        ui.label(text)
    return part


def subheading(text: str) -> None:
    """Inside a section."""
    with ui.element("h3").classes("bl-subheading"):
        ui.label(text)


def paragraph(text: str, classes: str = "") -> ui.label:
    with ui.element("p").classes(classes):
        return ui.label(text)


def empty_state(sentence: str, hint: str) -> None:
    """What to show when there is nothing to show: a sentence and a way out, with commands in backticks."""
    with ui.element("div").classes("bl-empty"):
        paragraph(sentence)
        hint_paragraph(hint)


def hint_paragraph(text: str, classes: str = "") -> None:
    """A quiet paragraph in which the parts in backticks are code."""
    with ui.element("p").classes(f"bl-quiet bl-hint {classes}"):
        for number, part in enumerate(text.split("`")):
            with ui.element("code" if number % 2 else "span").classes("bl-code" if number % 2 else ""):
                ui.label(part)


def keep_joining(client: PageClient, label: ui.label) -> None:
    """Show why joining failed, and try again."""
    if client.problem:
        label.set_text(f"{client.problem}. Retrying …")
    client.start_joining()


def data_table(label: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> ui.element:
    """A table of texts; on a phone, each row is a card."""
    with ui.element("div").classes("bl-scroll bl-cards").props("role=region tabindex=0") as container:
        container.props["aria-label"] = label
        with ui.element("table"):
            with ui.element("thead"), ui.element("tr"):
                for name in columns:
                    with ui.element("th").props("scope=col"):
                        ui.label(name)
            with ui.element("tbody"):
                for row in rows:
                    with ui.element("tr"):
                        for name, text in zip(columns, row, strict=True):
                            with ui.element("td") as cell:
                                ui.label(text)
                            cell.props["data-label"] = name
    return container


def button(text: str, act: Act, name: str, *, is_destructive: bool = False, is_primary: bool = False) -> ui.button:
    """A button that is disabled while its action runs."""
    run = guarded(act)

    async def press() -> None:
        pressed.disable()
        try:
            await run()
        finally:
            pressed.enable()

    pressed = ui.button(text, on_click=press, color=None).props(f"unelevated no-caps id=do-{name}")
    return pressed.classes("bl-button" + " bl-destructive" * is_destructive + " bl-main" * is_primary)
