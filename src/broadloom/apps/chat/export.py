"""Export a conversation from a store: Markdown, HTML or JSON.

Texts are exported as written, escaped for the format, so no message is taken for markup. In Markdown and HTML, control
characters and bidirectional overrides are spelled out, as on the screen.
"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC
from typing import Any, NamedTuple

from broadloom.apps.chat.display_names import DisplayNames
from broadloom.apps.chat.group_model import about_of, title_of
from broadloom.apps.chat.sanitize import decode_text
from broadloom.apps.chat.storage import ChatStoreError
from broadloom.apps.chat.thread_tree import ThreadNode, ThreadTree
from broadloom.groups import (
    GroupId,
    GroupInfo,
    GroupMessage,
    GroupNotFoundError,
    Member,
    RetentionPolicy,
    SqliteStore,
    resolve_group,
)
from broadloom.groups.store import StoredGroup

ROWS = 10_000
"""Messages read from the store at once."""
DEPTH_MAX = 12
"""Deeper replies are not indented further; no reader could display it."""


class ExportedGroup(NamedTuple):
    """One conversation, ready for export."""

    group_id: GroupId
    description: str
    tree: ThreadTree
    names: DisplayNames
    members: list[tuple[Member, bool]]
    """Members, and whether they are still in the group."""


class ExportEntry(NamedTuple):
    node: ThreadNode
    depth: int


def export_group(store: SqliteStore, name: str) -> ExportedGroup:
    stored = _find_group(store.groups(), name)
    group_id = stored.record.group
    history = store.history(group_id)
    me = store.member() or Member(0, "")
    tree, names = ThreadTree(shown_max=max(1, history.count)), DisplayNames(me)
    row, has_tickets = 0, store.has_verified_names
    while rows := history.scan(row, ROWS):
        row = rows[-1][0]
        for _, post in rows:
            name = history.names.get(post.author, "")
            message = GroupMessage.from_post(group_id, post, name, has_tickets=has_tickets)
            names.learn(Member(message.author, message.author_name))
            tree.add(message, unread=False)
    members = [(Member(stand.member, stand.name), stand.version % 2 == 1) for stand in stored.record.members]
    for member, _ in members:
        names.learn(member)
    return ExportedGroup(group_id, _description(stored), tree, names, members)


def _description(stored: StoredGroup) -> str:
    return stored.record.descriptor.description if stored.record.descriptor is not None else ""


def _find_group(groups: list[StoredGroup], name: str) -> StoredGroup:
    """By name or by the first digits of the ID."""
    infos = [
        GroupInfo(stored.record.group, title_of(_description(stored)), RetentionPolicy(), stored.is_joined, False, 0, 0)
        for stored in groups
    ]
    try:
        found = resolve_group(name.strip(), infos)
    except GroupNotFoundError as problem:
        raise ChatStoreError(f"in this store {problem}") from None
    return groups[infos.index(found)]


def _entries(tree: ThreadTree) -> Iterator[ExportEntry]:
    depths: dict[ThreadNode, int] = {}
    for node in tree:
        above = node.visible_parent
        depth = depths[node] = depths[above] + 1 if above is not None else 0
        yield ExportEntry(node, depth)


# -- formats


def as_json(exported: ExportedGroup) -> Iterator[str]:
    """Everything as written; binary data as base64."""
    head = {
        "group": f"{exported.group_id:016x}",
        "name": title_of(exported.description),
        "description": exported.description,
        "members": [
            {"id": f"{member.id:016x}", "name": member.name, "is_member": is_in} for member, is_in in exported.members
        ],
    }
    yield json.dumps(head, ensure_ascii=False, indent=2)[:-2] + ',\n  "messages": ['
    separator = "\n    "
    for node, depth in _entries(exported.tree):
        yield separator + json.dumps(_message_json(node, depth), ensure_ascii=False)
        separator = ",\n    "
    yield "\n  ]\n}\n"


def _message_json(node: ThreadNode, depth: int) -> dict[str, Any]:
    message = node.message
    fields: dict[str, Any] = {
        "id": str(message.id),
        "reply_to": str(message.parent_id) if message.parent_id is not None else None,
        "depth": depth,
        "author": f"{message.author:016x}",
        "name": message.author_name,
        "verified_name": message.verified_name,
        "is_unproven": message.is_unproven,
        "sent": _format_time(message),
    }
    if message.is_stripped:
        return {**fields, "text": None}
    try:
        return {**fields, "text": message.data.decode()}
    except UnicodeDecodeError:
        return {**fields, "data": base64.b64encode(message.data).decode()}


def as_markdown(exported: ExportedGroup) -> Iterator[str]:
    """Nested lists."""
    yield f"# {escape_markdown(escape_control_chars(title_of(exported.description)))}\n"
    if about := about_of(exported.description):
        yield f"\n{escape_markdown(escape_control_chars(about))}\n"
    yield "\n"
    for node, depth in _entries(exported.tree):
        indent = "  " * min(depth, DEPTH_MAX)
        name = escape_markdown(escape_control_chars(exported.names.author_label(node.message)))
        lines = [escape_markdown(escape_control_chars(line)) for line in _text(node).split("\n")]
        deeper = f" *(depth {depth})*" if depth > DEPTH_MAX else ""
        first = f"{indent}- **{name}** {_format_time(node.message)}{_missing_parent_note(node)}{deeper}  "
        yield "\n".join([first, *(f"{indent}  {line}  " for line in lines)]).rstrip() + "\n"


def as_html(exported: ExportedGroup) -> Iterator[str]:
    """One self-contained page. Depth is a number, not nested elements, so any depth can be shown."""
    title = html.escape(escape_control_chars(title_of(exported.description)))
    yield PAGE_HEAD.format(title=title)
    if about := about_of(exported.description):
        yield f'<p class="about">{html.escape(escape_control_chars(about))}</p>\n'
    for node, depth in _entries(exported.tree):
        message = node.message
        name = html.escape(escape_control_chars(exported.names.author_label(message)))
        text = html.escape("\n".join(map(escape_control_chars, _text(node).split("\n"))))
        yield (
            f'<article style="--depth:{min(depth, DEPTH_MAX)};--hue:{message.author % 360}">'
            f'<b dir="auto">{name}</b> <time>{_format_time(message)}</time>{_missing_parent_note(node)}'
            f'<p dir="auto">{text}</p></article>\n'
        )
    yield "</main>\n</html>\n"


FORMATS: dict[str, Callable[[ExportedGroup], Iterable[str]]] = {"md": as_markdown, "json": as_json, "html": as_html}

PAGE_HEAD = """<!doctype html>
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


def _missing_parent_note(node: ThreadNode) -> str:
    return " (reply to a message that is not available)" if node.has_missing_parent else ""


def _text(node: ThreadNode) -> str:
    return "(not stored)" if node.message.is_stripped else decode_text(node.message.data).replace("\r\n", "\n")


_CONTROL_CHARS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_control_chars(text: str) -> str:
    return _CONTROL_CHARS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&$])|^([-+=])|^(\d+)([.)])")


def escape_markdown(text: str) -> str:
    """Escape Markdown, and keep leading spaces."""
    stripped = text.lstrip(" ")
    escaped = _MARKDOWN.sub(lambda found: f"{found[3]}\\{found[4]}" if found[3] else f"\\{found[0]}", stripped)
    return "&nbsp;" * (len(text) - len(stripped)) + escaped or "&nbsp;"


def _format_time(message: GroupMessage) -> str:
    sent_at = message.sent_at
    return f"{sent_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if sent_at is not None else "at an unknown time"
