"""What all pages have in common: head, ways to the other pages, light and dark, and a place for what went wrong.

The rule: whatever fails inside a page is told on that page, in a sentence, and the rest of it goes on.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable

from nicegui import ui

from broadloom.web.error_messages import describe_error
from broadloom.web.sources import Sources

Act = Callable[[], Awaitable[object] | object]
Build = Callable[[Sources], None]
"""What takes time is done after the page is there, by a timer: the frame is shown at once."""

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


def register(page: PageSpec, pages: tuple[PageSpec, ...], sources: Sources) -> None:
    def show() -> None:
        ui.add_head_html(HEAD)
        with ui.element("div").classes("w-page"):
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
"""Of each page that is open, by its client."""


class ErrorBanner:
    """The place for what went wrong, at the top of a page."""

    def __init__(self) -> None:
        self._shown = ""
        self._bar = ui.element("div").classes("w-problem").props("role=alert")
        self._bar.set_visibility(False)
        with self._bar:
            self._text = ui.element("p")
            with self._text:
                self._label = ui.label()
            button = ui.element("button").props('type=button aria-label="Close this message"').classes("w-close")
            with button:
                ui.label("×").props("aria-hidden=true")
            button.on("click", lambda: self._bar.set_visibility(False))

    def show(self, error: Exception) -> None:
        if self._bar.visible and repr(error) == self._shown:
            return  # a timer that fails again and again is told of once
        self._shown = repr(error)
        self._label.set_text(describe_error(error))
        self._bar.set_visibility(True)


def guarded(act: Act) -> Callable[..., Awaitable[None]]:
    """What fails in it is told on the page where this was made. For buttons, timers, and everything else that calls."""
    banner = _banners[ui.context.client.id]

    async def run(*_args: object) -> None:
        try:
            done = act()
            if isawaitable(done):
                await done
        except Exception as error:
            banner.show(error)

    return run


def every(seconds: float, act: Act) -> None:
    """Now, and again and again for as long as the page is open."""
    ui.timer(seconds, guarded(act))


def call_soon(act: Act) -> None:
    """As soon as the page is there."""
    ui.timer(0.0, guarded(act), once=True)


def _header(page: PageSpec, pages: tuple[PageSpec, ...]) -> None:
    with ui.element("header").classes("w-head"):
        with ui.element("a").props('href=/ aria-label="Broadloom, to the first page"').classes("w-name"):
            ui.label("Broadloom")
        with ui.element("nav").props('aria-label="Pages"').classes("w-nav"):
            for each in pages:
                link = ui.element("a").props(f"href={each.path}")
                if each is page:
                    link.props("aria-current=page")
                with link:
                    ui.label(each.name)
        with ui.element("button").props("type=button id=w-theme").classes("w-theme") as button:
            ui.label("Theme")
        button.on("click", js_handler="() => broadloomTheme.next()")


def heading(text: str, sentence: str = "") -> None:
    """The name of a page, and what it shows."""
    with ui.element("div").classes("w-title"):
        with ui.element("h1"):
            ui.label(text)
        if sentence:
            with ui.element("p"):
                ui.label(sentence)


def section(text: str) -> ui.element:
    """A part of a page with a name, to be filled."""
    with ui.element("section").classes("w-section") as part, ui.element("h2"):
        ui.label(text)
    return part


def paragraph(text: str, classes: str = "") -> ui.label:
    """A paragraph."""
    with ui.element("p").classes(classes):
        return ui.label(text)


def empty_state(sentence: str, hint: str) -> None:
    """A page that has nothing to show says so, and how that can be changed."""
    with ui.element("div").classes("w-empty"):
        paragraph(sentence)
        paragraph(hint, "w-quiet")


def button(text: str, act: Act, name: str, *, is_destructive: bool = False, is_primary: bool = False) -> ui.button:
    """It cannot be pressed again while it does what it says."""

    run = guarded(act)

    async def press() -> None:
        pressed.disable()
        try:
            await run()
        finally:
            pressed.enable()

    pressed = ui.button(text, on_click=press, color=None).props(f"unelevated no-caps id=do-{name}")
    return pressed.classes("w-button" + " w-harmful" * is_destructive + " w-main" * is_primary)
