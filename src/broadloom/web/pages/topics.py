"""The topics page: the tree with search, prices and audiences; and one topic or category of it."""

from urllib.parse import quote

from nicegui import ui

from broadloom.apps.delivery import Topic
from broadloom.web.delivery_site import DeliverySite
from broadloom.web.pages.layout import call_soon, empty_state, every, guarded, paragraph
from broadloom.web.pages.sign_in import signed_in
from broadloom.web.pages.topic_panel import TopicPanel
from broadloom.web.sources import Sources
from broadloom.web.visitor import Visitor

REFRESH_S = 1.0
AUDIENCE_REFRESH_S = 3.0
ROWS_MAX = 250
"""Lines of the tree; searching finds the others."""
TOPIC_PARAMETER = "topic"


def build(sources: Sources) -> None:
    sentence = "What you can subscribe to. Items appear while you are connected; nothing is stored."
    signed_in(sources, "/topics", "Topics", sentence, TopicsPage)


def topic_link(path: str) -> str:
    return f"/topics?{TOPIC_PARAMETER}={quote(path)}"


def count_text(count: int | None) -> str:
    return "" if count is None else f"{count:,} here"


class TopicsPage:
    def __init__(self, site: DeliverySite, visitor: Visitor) -> None:
        self._visitor = visitor
        self._prices: dict[str, str] = {}
        self._shown: object = None
        self._counts: dict[str, ui.label] = {}
        self._chosen = ui.context.client.request.query_params.get(TOPIC_PARAMETER, "")
        with ui.element("div").classes("bl-talk bl-topics"):
            with ui.element("nav").props('aria-label="Topics"').classes("bl-section bl-directory"):
                self._search = ui.input("Search").props("outlined dense clearable debounce=200 maxlength=200")
                self._search.on_value_change(guarded(self._show_tree))
                self._found = paragraph("", "bl-quiet bl-small")
                self._found.props("role=status")
                self._list = ui.element("ul").classes("bl-topic-tree")
            with ui.element("section").classes("bl-section bl-topic").props('aria-label="Topic"'):
                if self._chosen:
                    TopicPanel(site, visitor, self._chosen)
                else:
                    empty_state(
                        "Choose a topic.", "A category stands for all topics below it, also for those created later."
                    )
        every(REFRESH_S, self._show_tree)
        every(AUDIENCE_REFRESH_S, self._show_audience)
        call_soon(self._load_prices)

    async def _load_prices(self) -> None:
        self._prices = await self._visitor.service.prices()
        self._shown = None
        self._show_tree()

    def _rows(self) -> list[tuple[int, str, str, Topic | None]]:
        """Depth, name, path and topic (None for a category)."""
        directory = self._visitor.service.directory
        words = str(self._search.value or "").strip()
        if words:
            return [(0, topic.path, topic.path, topic) for topic in directory.search(words)]
        rows: list[tuple[int, str, str, Topic | None]] = []
        levels: list[str] = []
        for depth, name, topic in directory.tree():
            levels[depth:] = [name]
            rows.append((depth, name, "/".join(levels), topic))
        return rows

    def _show_tree(self) -> None:
        rows = self._rows()
        subscribed = {topic.path for *_, topic in rows[:ROWS_MAX] if topic is not None and self._is_subscribed(topic)}
        if (rows, subscribed) == self._shown:
            return
        self._shown = (rows, subscribed)
        topics = sum(topic is not None for _, _, _, topic in rows)
        more = f"; the first {ROWS_MAX} lines are shown, search for the others" if len(rows) > ROWS_MAX else ""
        self._found.set_text(f"{topics:,} topic{'s' * (topics != 1)}{more}.")
        self._list.clear()
        self._counts = {}
        with self._list:
            for row in rows[:ROWS_MAX]:
                self._show_row(*row)
        self._set_counts(self._visitor.last_audience)

    def _show_row(self, depth: int, name: str, path: str, topic: Topic | None) -> None:
        with ui.element("li").style(f"--depth: {depth}"):
            link = ui.element("a").props(f'href="{topic_link(path)}"')
            if path == self._chosen:
                link.props("aria-current=page")
            link.classes("bl-category" if topic is None else "bl-leaf")
            with link:
                ui.label(name if topic is not None else f"{name}/").classes("bl-topic-name")
                if topic is None:
                    return
                self._counts[path] = ui.label("").classes("bl-quiet bl-here")
                plan = self._visitor.plan(topic)
                price = price_of(topic, self._prices) if plan is None else self._prices.get(plan, plan) or "free"
                mark = "✓ subscribed · " if plan is not None else ""
                ui.label(f"{mark}{price}").classes("bl-quiet bl-topic-price")

    def _is_subscribed(self, topic: Topic) -> bool:
        return self._visitor.plan(topic) is not None

    async def _show_audience(self) -> None:
        self._set_counts(await self._visitor.audience(tuple(self._counts)))

    def _set_counts(self, counts: dict[str, int]) -> None:
        for path, label in self._counts.items():
            label.set_text(count_text(counts.get(path)))


def price_of(topic: Topic, prices: dict[str, str]) -> str:
    """All plans, each as the operator describes it, else its name."""
    return " or ".join(prices.get(plan, plan) for plan in topic.entry.offer.plans) or "free"
