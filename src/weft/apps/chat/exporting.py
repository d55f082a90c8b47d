"""A conversation from a store as a file: Markdown and HTML for people, JSON for programs.

Texts go out as they were written, escaped by the rules of the format: what a member wrote is never taken for markup. In
Markdown and HTML, signs that steer a terminal or turn the direction of writing round are spelled out, as on the screen.
"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from weft.apps.chat.naming import Names
from weft.apps.chat.safe import text_of
from weft.apps.chat.stores import NotUsable
from weft.apps.chat.talk import about_of, message_of, title_of
from weft.apps.chat.tree import Node, Tree
from weft.groups import GroupId, GroupInfo, Keep, Member, NoSuchGroup, SqliteStore, meant
from weft.groups.history import KeptGroup

ROWS = 10_000
"""Read from the store in one go."""
DEPTH_MAX = 12
"""Deeper answers are not indented further: no reader and no page could show it."""


class Exported(NamedTuple):
    """One conversation, ready to be written down."""

    group: GroupId
    description: str
    tree: Tree
    names: Names
    members: list[tuple[Member, bool]]
    """And whether they are still members."""


class Entry(NamedTuple):
    node: Node
    depth: int


def exported(store: SqliteStore, wanted: str) -> Exported:
    kept = _the_group(store.groups(), wanted)
    group = kept.roster.group
    history = store.history(group)
    me = store.member() or Member(0, "")
    tree, names = Tree(shown_max=max(1, history.count)), Names(me)
    row = 0
    while rows := history.scan(row, ROWS):
        row = rows[-1][0]
        for _, post in rows:
            message = message_of(group, post, history.names)
            names.learn(Member(message.author, message.name))
            tree.add(message, unread=False)
    members = [(Member(stand.member, stand.name), stand.step % 2 == 1) for stand in kept.roster.stands]
    for member, _ in members:
        names.learn(member)
    return Exported(group, _description(kept), tree, names, members)


def _description(kept: KeptGroup) -> str:
    return kept.roster.charter.description if kept.roster.charter is not None else ""


def _the_group(groups: list[KeptGroup], wanted: str) -> KeptGroup:
    """By its name, or the first digits of its id."""
    infos = [
        GroupInfo(kept.roster.group, title_of(_description(kept)), Keep(), kept.joined, False, 0, 0) for kept in groups
    ]
    try:
        found = meant(wanted.strip(), infos)
    except NoSuchGroup as problem:
        raise NotUsable(f"in this store {problem}") from None
    return groups[infos.index(found)]


def _entries(tree: Tree) -> Iterator[Entry]:
    depths: dict[Node, int] = {}
    for node in tree:
        above = node.above
        depth = depths[node] = depths[above] + 1 if above is not None else 0
        yield Entry(node, depth)


# -- the formats


def as_json(told: Exported) -> Iterator[str]:
    """All of it, as it was written; what is no text is in base64."""
    head = {
        "group": f"{told.group:016x}",
        "name": title_of(told.description),
        "description": told.description,
        "members": [
            {"id": f"{member.id:016x}", "name": member.name, "is_member": is_in} for member, is_in in told.members
        ],
    }
    yield json.dumps(head, ensure_ascii=False, indent=2)[:-2] + ',\n  "messages": ['
    separator = "\n    "
    for node, depth in _entries(told.tree):
        yield separator + json.dumps(_json_of(node, depth), ensure_ascii=False)
        separator = ",\n    "
    yield "\n  ]\n}\n"


def _json_of(node: Node, depth: int) -> dict[str, Any]:
    message = node.message
    made: dict[str, Any] = {
        "id": str(message.id),
        "answers": str(message.parent) if message.parent is not None else None,
        "depth": depth,
        "author": f"{message.author:016x}",
        "name": message.name,
        "proven": message.proven,
        "sent": _when(message.sent_ms),
    }
    if message.hollow:
        return {**made, "text": None}
    try:
        return {**made, "text": message.data.decode()}
    except UnicodeDecodeError:
        return {**made, "data": base64.b64encode(message.data).decode()}


def as_markdown(told: Exported) -> Iterator[str]:
    """A list in lists."""
    yield f"# {_md(_shown(title_of(told.description)))}\n"
    if about := about_of(told.description):
        yield f"\n{_md(_shown(about))}\n"
    yield "\n"
    for node, depth in _entries(told.tree):
        indent = "  " * min(depth, DEPTH_MAX)
        name = _md(_shown(told.names.said_by(node.message)))
        lines = [_md(_shown(line)) for line in _text(node).split("\n")]
        deeper = f" *(answer {depth} deep)*" if depth > DEPTH_MAX else ""
        first = f"{indent}- **{name}** {_when(node.message.sent_ms)}{_severed(node)}{deeper}  "
        yield "\n".join([first, *(f"{indent}  {line}  " for line in lines)]).rstrip() + "\n"


def as_html(told: Exported) -> Iterator[str]:
    """One page that needs nothing else. Depth is a number in it, not nested elements, so any depth can be shown."""
    title = html.escape(_shown(title_of(told.description)))
    yield _PAGE_HEAD.format(title=title)
    if about := about_of(told.description):
        yield f'<p class="about">{html.escape(_shown(about))}</p>\n'
    for node, depth in _entries(told.tree):
        message = node.message
        name = html.escape(_shown(told.names.said_by(message)))
        text = html.escape("\n".join(map(_shown, _text(node).split("\n"))))
        yield (
            f'<article style="--depth:{min(depth, DEPTH_MAX)};--hue:{message.author % 360}">'
            f'<b dir="auto">{name}</b> <time>{_when(message.sent_ms)}</time>{_severed(node)}'
            f'<p dir="auto">{text}</p></article>\n'
        )
    yield "</main>\n</html>\n"


FORMATS: dict[str, Callable[[Exported], Iterable[str]]] = {"md": as_markdown, "json": as_json, "html": as_html}

_PAGE_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }}
article {{ margin: .35rem 0 .35rem calc(var(--depth) * 1.4rem); padding-left: .7rem;
  border-left: 3px solid hsl(var(--hue) 55% 55%); }}
article p {{ margin: .1rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }}
time, .about, small {{ opacity: .65; font-size: .85em; }}
</style>
<main>
<h1>{title}</h1>
"""


def _severed(node: Node) -> str:
    return " (answers a message that is not here)" if node.is_severed else ""


def _text(node: Node) -> str:
    return "(not kept)" if node.message.hollow else text_of(node.message.data).replace("\r\n", "\n")


_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _shown(text: str) -> str:
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&$])|^([-+=])|^(\d+)([.)])")


def _md(text: str) -> str:
    """Signs that mean something in Markdown lose their meaning, and spaces at the beginning keep their place."""
    words = text.lstrip(" ")
    escaped = _MARKDOWN.sub(lambda found: f"{found[3]}\\{found[4]}" if found[3] else f"\\{found[0]}", words)
    return "&nbsp;" * (len(text) - len(words)) + escaped or "&nbsp;"


def _when(sent_ms: int) -> str:
    try:
        return datetime.fromtimestamp(sent_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
