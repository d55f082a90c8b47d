"""Settings and retention policies that cannot work are rejected at once."""

import math
from dataclasses import fields
from typing import Any

import pytest

from broadloom.groups import GroupSettings, RetentionPolicy

RETENTION_NUMBERS = ["messages_max", "age_max_s", "bytes_max"]


@pytest.mark.parametrize("name", [field.name for field in fields(GroupSettings)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 0, "5", True, [], 10**30])
def test_impossible_setting_is_rejected(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        GroupSettings(**{name: value})


@pytest.mark.parametrize("name", RETENTION_NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "5", True, 1.5, None, 10**30])
def test_impossible_retention_is_rejected(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        RetentionPolicy(**{name: value})


@pytest.mark.parametrize("value", [1, "yes", None])
def test_ids_only_is_true_or_false(value: Any) -> None:
    with pytest.raises(TypeError, match="ids_only"):
        RetentionPolicy(ids_only=value)


def test_largest_retention_fits_the_wire() -> None:
    from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, pack_group_records, unpack_group_records

    largest = RetentionPolicy((1 << 32) - 1, (1 << 32) - 1, (1 << 64) - 1, ids_only=True)
    records = (GroupRecord(1, GroupDescriptor(1, "all", largest), ()),)
    assert unpack_group_records(pack_group_records(records)) == records
    assert GroupSettings(orphan_timeout_s=None).orphan_timeout_s is None
