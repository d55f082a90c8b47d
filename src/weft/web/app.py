"""The application behind the server: data, downloads, our own files, and the pages of NiceGUI, all behind the gate."""

from pathlib import Path

from fastapi import FastAPI
from nicegui import ui
from starlette.staticfiles import StaticFiles

from weft.web.data import data_routes
from weft.web.downloads import download_routes
from weft.web.gate import App, Gate
from weft.web.pages import register
from weft.web.sources import Sources

RECONNECT_S = 20.0
"""A page that was out of reach for so long goes on where it was; after that it is built anew."""
STATIC = Path(__file__).parent / "static"


def make_app(sources: Sources, *, password: str | None, only_here: bool) -> App:
    """Once in a process: NiceGUI keeps its pages in one place."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes.extend([*data_routes(sources), *download_routes(sources)])
    app.mount("/static", StaticFiles(directory=STATIC))
    register(sources)
    # Without Tailwind: it compiles styles in the browser, at every load; ours are in one small file.
    ui.run_with(
        app,
        title="Weft",
        favicon=STATIC / "icon.svg",
        dark=None,
        language="en-US",
        tailwind=False,
        reconnect_timeout=RECONNECT_S,
        show_welcome_message=False,
    )
    return Gate(app, password=password, only_here=only_here)
