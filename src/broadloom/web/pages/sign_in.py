"""What the pages of a delivery service share: signing in with a ticket, and the links between them."""

from collections.abc import Callable
from functools import partial
from time import monotonic

from nicegui import ui

from broadloom.security import Ticket
from broadloom.web.auth import session_of
from broadloom.web.delivery_site import TICKET_CHARS_MAX, DeliverySite
from broadloom.web.pages.layout import button, empty_state, heading, paragraph, section
from broadloom.web.sources import Sources
from broadloom.web.visitor import Visitor

LINKS = {"/topics": "All topics", "/topics/mine": "My subscriptions", "/topics/operator": "Operator"}
READ_FILE = """async (event) => {
  const file = event.target.files[0];
  if (file) emit(await file.slice(0, %d).text());
  event.target.value = '';
}"""

BuildSignedIn = Callable[[DeliverySite, Visitor], object]


def signed_in(sources: Sources, path: str, title: str, sentence: str, build: BuildSignedIn) -> None:
    """Build a page for a visitor, or the sign-in page."""
    site = sources.delivery
    if site is None:
        heading("Topics")
        empty_state(
            "No delivery service is shown here.",
            "Start `broadloom demo`, or name its directory: `broadloom web --service delivery/news`.",
        )
        return
    client = ui.context.client
    session = session_of(client.request.headers, client.request.cookies)
    visitor = site.visitor(session)
    if visitor is None:
        SignIn(site, session)
        return
    visitor.pages += 1
    client.on_delete(partial(_on_closed, visitor))
    heading(title, sentence)
    with ui.element("div").classes("bl-account"):
        with ui.element("nav").props('aria-label="Delivery service"').classes("bl-nav"):
            for target, name in LINKS.items():
                link = ui.element("a").props(f"href={target}")
                if target == path:
                    link.props("aria-current=page")
                with link:
                    ui.label(name)
        ui.label(f"Signed in as {visitor.name}").classes("bl-quiet")
        button("Sign out", partial(_sign_out, site, session), "sign-out")
    build(site, visitor)


async def _sign_out(site: DeliverySite, session: str) -> None:
    await site.sign_out(session)
    ui.navigate.to("/topics")


def _on_closed(visitor: Visitor) -> None:
    visitor.pages -= 1
    visitor.left_at = monotonic()


class SignIn:
    def __init__(self, site: DeliverySite, session: str) -> None:
        self._site = site
        self._session = session
        heading("Topics", f"Sign in to {site.name} with the ticket that its operator gave you.")
        with section("Sign in").classes("bl-sign-in"):
            if site.tickets:
                paragraph("This server has tickets for:", "bl-quiet bl-small")
                with ui.element("div").classes("bl-do"):
                    for name, ticket in site.tickets.items():
                        button(name, partial(self._use, ticket), f"sign-in-{name}", is_primary=True)
                paragraph("Or use another one:", "bl-quiet bl-small")
            self._text = ui.textarea("Ticket").props(
                f'outlined dense stack-label rows=5 maxlength={TICKET_CHARS_MAX} spellcheck=false class="bl-code" '
                'placeholder="-----BEGIN CERTIFICATE-----"'
            )
            with ui.element("div").classes("bl-do"):
                button("Sign in", self._sign_in, "sign-in", is_primary=not site.tickets)
                with ui.element("label").classes("bl-open"):
                    ui.label("Open file …")
                    file_input = ui.element("input").props('type=file id=do-ticket aria-label="Ticket file"')
                    file_input.on(
                        "change",
                        lambda event: self._text.set_value(str(event.args)),
                        js_handler=READ_FILE % TICKET_CHARS_MAX,
                    )
            self._status = paragraph("", "bl-quiet")
            self._status.props("role=status")
            paragraph(
                "The ticket has your private key. This server acts under your name while you are signed in, forgets "
                "the ticket when you sign out, and stores it nowhere. Use a server that you trust.",
                "bl-quiet bl-small",
            )

    async def _use(self, ticket: Ticket) -> None:
        self._status.set_text(f"Joining {self._site.name} …")
        try:
            await self._site.sign_in(self._session, ticket)
        finally:
            self._status.set_text("")
        ui.navigate.reload()

    async def _sign_in(self) -> None:
        text, self._text.value = str(self._text.value or ""), ""
        self._status.set_text(f"Joining {self._site.name} …")
        try:
            await self._site.sign_in_with_text(self._session, text)
        finally:
            self._status.set_text("")
        ui.navigate.reload()
