"""The synchronous classes have the public names and parameters of the asynchronous ones. Found by introspection."""

import inspect
import re

import pytest

import broadloom.groups.sync
import broadloom.mailboxes.sync
import broadloom.order.sync
import broadloom.switch.sync
import broadloom.sync
from broadloom import Channel, Layer, Order, Subscription, ordered
from broadloom.groups import Group, Groups
from broadloom.mailboxes import Mailbox, Mailboxes, Watch
from broadloom.switch import Observer, Switch

SYNC_NAMES = {"aclose": "close", "__aiter__": "__iter__", "__aenter__": "__enter__", "__aexit__": "__exit__"}
TWINS = [
    (Channel, broadloom.sync.Channel),
    (Subscription, broadloom.sync.Subscription),
    (Layer, broadloom.sync.Layer),
    (Groups, broadloom.groups.sync.Groups),
    (Group, broadloom.groups.sync.Group),
    (Mailboxes, broadloom.mailboxes.sync.Mailboxes),
    (Mailbox, broadloom.mailboxes.sync.Mailbox),
    (Watch, broadloom.mailboxes.sync.Watch),
    (Switch, broadloom.switch.sync.Switch),
    (Observer, broadloom.switch.sync.Observer),
    (Order, broadloom.order.sync.Order),
]


def public_names(kind: type) -> set[str]:
    """Methods, properties, and the attributes that are set on `self`."""
    attributes = re.findall(r"^ +self\.([a-z]\w*)(?:: .*)? \+?= ", inspect.getsource(kind), re.MULTILINE)
    protocols = {*SYNC_NAMES, *SYNC_NAMES.values()} & set(dir(kind))
    return {name for name in dir(kind) if name[0] != "_"} | set(attributes) | protocols


def parameters(method: object) -> list[tuple[str, object, object]]:
    assert callable(method)
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_synchronous_class_has_the_names_of_the_asynchronous_one(asynchronous: type, synchronous: type) -> None:
    assert public_names(synchronous) == {SYNC_NAMES.get(name, name) for name in public_names(asynchronous)}


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_methods_have_the_same_parameters_and_do_not_have_to_be_awaited(asynchronous: type, synchronous: type) -> None:
    methods = {name for name in public_names(asynchronous) if callable(getattr(asynchronous, name, None))}
    for name in methods:
        method = getattr(synchronous, SYNC_NAMES.get(name, name))
        assert not inspect.iscoroutinefunction(method)
        assert not inspect.isasyncgenfunction(method)
        if not name.startswith("__"):
            assert parameters(method) == parameters(getattr(asynchronous, name)), name


def test_objects_are_made_with_the_same_parameters() -> None:
    assert parameters(broadloom.sync.connect) == parameters(broadloom.connect)
    assert parameters(broadloom.groups.sync.Groups) == parameters(Groups)
    assert parameters(broadloom.mailboxes.sync.Mailboxes) == parameters(Mailboxes)
    assert parameters(broadloom.switch.sync.Switch) == parameters(Switch)
    assert parameters(broadloom.order.sync.ordered) == parameters(ordered)


def test_attributes_are_read_only() -> None:
    twin = broadloom.sync.Channel.__new__(broadloom.sync.Channel)
    with pytest.raises(AttributeError, match="missed_count is read-only"):
        twin.missed_count = 3
