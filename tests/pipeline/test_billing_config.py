"""The billing file: what is in it, and that every mistake is told with its place."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from broadloom.pipeline.billing import config, terms
from broadloom.pipeline.billing.config import Advertiser, BillingConfig, Subscriber
from broadloom.pipeline.billing.config_section import BillingConfigError
from broadloom.pipeline.billing.sales import SaleFees
from broadloom.pipeline.billing.terms import Plan

WHOLE = """
time_zone = "Europe/Berlin"
currency = "EUR"
digits = 2
rounding = "half-up"
issue_after_s = 3600
default_plan = "visitor"

[plans.reader]
kind = "flat"
month = 9.90

[plans.visitor]
kind = "hour"
hour = "0.4505"
unit_s = 60

[[subscribers]]
name = "alice"
plan = "reader"
channel = "6f430d6784a166fc"
first_month = "2027-01"
last_month = "2027-12"

[[advertisers]]
name = "acme"
ads = ["spring-*", "summer"]
broadcast_fee = 1
subscriber_fee = 0.0125

[sales]
percent = 2.5
lot_fee = "1.00"
"""


def test_complete_billing_file_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "billing.toml"
    path.write_text(WHOLE)
    assert config.load(path) == BillingConfig(
        time_zone="Europe/Berlin",
        currency="EUR",
        digits=2,
        rounding="half-up",
        issue_after_s=3600,
        default_plan="visitor",
        plans={
            "reader": Plan("reader", "flat", Decimal("9.90")),
            "visitor": Plan("visitor", "hour", Decimal("0.4505"), 60),
        },
        subscribers=(Subscriber("alice", "reader", "6f430d6784a166fc", "2027-01", "2027-12"),),
        advertisers=(Advertiser("acme", ("spring-*", "summer"), Decimal(1), Decimal("0.0125")),),
        sales=SaleFees(Decimal("2.5"), Decimal(1)),
    )


def test_json_and_toml_give_equal_exact_prices(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "billing.toml", tmp_path / "billing.json"
    toml.write_text('currency = "EUR"\n[plans.a]\nkind = "hour"\nhour = 0.1000\n')
    as_json.write_text('{"currency": "EUR", "plans": {"a": {"kind": "hour", "hour": 0.1000}}}')
    assert config.load(toml) == config.load(as_json)
    assert config.load(toml).plans["a"].price == Decimal("0.1")


def test_missing_billing_file_bills_nothing() -> None:
    assert config.load("") == BillingConfig() == config.parse({})


def test_example_in_docstring_is_valid() -> None:
    import tomllib

    assert config.__doc__ is not None
    shown = config.__doc__[config.__doc__.index("    time_zone =") :]
    parsed = config.parse(tomllib.loads(shown, parse_float=Decimal))
    assert set(parsed.plans) == {"reader", "visitor", "ticker", "bulk"}


A_PLAN = {"currency": "EUR", "plans": {"a": {"kind": "flat", "month": 5}}}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "the file must be a table"),
        ({"zome": "UTC"}, "unknown key 'zome'; keys: digits, "),
        ({"time_zone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"time_zone": 3}, "time_zone must be text, not 3"),
        ({"rounding": "fair"}, "one of half-even, half-up, down, up, not 'fair'"),
        ({"digits": 5}, "digits must be a whole number from 0 to 4"),
        ({"digits": True}, "digits must be a whole number"),
        ({"issue_after_s": -1}, "issue_after_s must be a whole number"),
        ({"plans": {"a": {"kind": "flat", "month": 5}}}, "no currency"),
        ({"plans": []}, r"plans must be tables, \[plans.NAME\]"),
        ({"plans": {"a": 5}}, "plan 'a' must be a table"),
        ({"plans": {"a": {"kind": "free"}}}, "plan 'a': kind must be one of flat, hour"),
        ({"plans": {"a": {"kind": "flat"}}}, "plan 'a': month must be a price such as 9.90, but is missing"),
        ({"plans": {"a": {"kind": "flat", "month": 5, "hour": 1}}}, "plan 'a': unknown key 'hour'"),
        ({"plans": {"a": {"kind": "flat", "month": Decimal("5.001")}}}, "more than 2 decimal places"),
        ({"plans": {"a": {"kind": "hour", "hour": Decimal("0.00001")}}}, "more than 4 decimal places"),
        ({"plans": {"a": {"kind": "hour", "hour": -1}}}, "from 0 to 100000"),
        ({"plans": {"a": {"kind": "hour", "hour": "NaN"}}}, "from 0 to 100000"),
        ({"plans": {"a": {"kind": "hour", "hour": "cheap"}}}, "price such as 9.90, not 'cheap'"),
        ({"plans": {"a": {"kind": "hour", "hour": 0.1}}}, "price such as 9.90"),
        ({"plans": {"a": {"kind": "hour", "hour": 1, "unit_s": 0}}}, "unit_s must be a whole number from 1"),
        ({**A_PLAN, "default_plan": "b"}, "default_plan is 'b', but the plans are: a"),
        ({"subscribers": {"ann": "a"}}, r"subscribers must be a list, \[\[subscribers\]\]"),
        ({"subscribers": [{"plan": "a"}]}, "subscriber 1: name must be text, but is missing"),
        ({"subscribers": [{"name": "ann"}]}, "subscriber 'ann': plan must be text"),
        ({"subscribers": [{"name": "ann", "plan": "a", "first_month": "2027-13"}]}, "month such as"),
        ({"subscribers": [{"name": "ann", "plan": "a", "channel": "chess"}]}, "16 hex digits"),
        (
            {"subscribers": [{"name": "ann", "plan": "a", "first_month": "2027-02", "last_month": "2027-01"}]},
            "is after last_month",
        ),
        ({"subscribers": [{"name": "ann", "plan": "a"}] * 2}, "listed twice"),
        ({"sales": {"percent": 5}}, "has prices but no currency"),
        ({"sales": {"percent": 101}, "currency": "EUR"}, "sales: percent must be from 0 to 100, not 101"),
        ({"sales": {"share": 5}, "currency": "EUR"}, "sales: unknown key 'share'; keys: percent, lot_fee"),
        ({"advertisers": [{"name": "acme"}]}, "advertiser 'acme': ads must be a list"),
        ({"advertisers": [{"name": "acme", "ads": ["a"]}] * 2, "currency": "EUR"}, "'acme' is listed twice"),
    ],
)
def test_invalid_billing_file_error_names_the_place(wrong: object, says: str) -> None:
    with pytest.raises(BillingConfigError, match=says):
        config.parse(wrong)


def test_plans_may_follow_each_other_and_differ_by_channel() -> None:
    ann = {"name": "ann", "plan": "a"}
    listed = [
        {**ann, "last_month": "2027-01"},
        {**ann, "first_month": "2027-02"},
        {**ann, "channel": "6f430d6784a166fc"},
    ]
    assert len(config.parse({**A_PLAN, "subscribers": listed}).subscribers) == 3


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.toml", "time_zone = ", "a.toml: not valid TOML"),
        ("a.json", "{", "a.json: not valid JSON"),
        ("a.yaml", "zone: UTC", "a.yaml: a billing file must be named .toml or .json"),
        ("a.json", json.dumps({"time_zone": "x"}), "a.json: unknown time zone"),
    ],
)
def test_invalid_file_is_named(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BillingConfigError, match=says):
        config.load(tmp_path / name)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BillingConfigError, match=r"none.toml: cannot be read: No such file"):
        config.load(tmp_path / "none.toml")


def test_exact_ad_name_takes_precedence_over_pattern() -> None:
    broad, exact = Advertiser("broad", ("*",)), Advertiser("exact", ("summer",))
    billing = BillingConfig(advertisers=(broad, exact))
    assert billing.advertiser("summer") is exact
    assert billing.advertiser("winter") is broad
    assert BillingConfig().advertiser("winter") is None


def test_terms_text_does_not_depend_on_price_notation() -> None:
    texts = {terms.terms_of(Plan("a", "hour", Decimal(price)), 2, "down").to_json() for price in ("1", "1.0", "1.0000")}
    assert len(texts) == 1
    assert terms.parse_terms(texts.pop()) == terms.BillingTerms("hour", Decimal(1), 1, 2, "down")
