"""Bills and revenue of the pages of a delivery service, from tables as the pipeline writes them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from broadloom.pipeline.tables import table
from broadloom.web.bills import Amount, Bills, total
from tests.web.news_site import SCORES, invoice_row
from tests.web.sample_data import write_tables

MANY = 20_001
NOW = datetime.now(UTC)
AD_ROW = dict.fromkeys(each.name for each in table("ad_broadcasts").columns)


def owed(subscriber: str, amount: str, topic: str = SCORES, currency: str = "EUR") -> dict[str, Any]:
    month = f"{datetime.now(UTC):%Y-%m}"
    return invoice_row(subscriber, month, "open", Decimal(1000), Decimal(amount), topic, currency)


def ad(name: str, age_s: int, topic: str = SCORES) -> dict[str, Any]:
    return AD_ROW | {"ad_name": name, "topic": topic, "broadcast_time": NOW - timedelta(seconds=age_s)}


def test_revenue_and_ads_count_all_rows_of_the_topics_however_many_others_there_are(tmp_path: Path) -> None:
    # The pages once read the first 20,000 rows of all operators.
    rows = [owed("ben", "1", "other")] * MANY + [owed("anna", "0.5"), owed("ben", "0.25")]
    ads = [ad("other", 0, "other"), ad("old", 9), ad("new", 1), ad("oldest", 99)]
    write_tables(tmp_path, {"invoices": rows, "ad_broadcasts": ads})
    bills = Bills(tmp_path)
    assert bills.revenue([SCORES]) == {SCORES: Amount(Decimal(2000), {"EUR": Decimal("0.75")})}
    assert [row["ad_name"] for row in bills.ads([SCORES], 2)] == ["new", "old"]
    assert [row["amount"] for row in bills.months("anna")] == [Decimal("0.5")]


def test_amounts_in_different_currencies_are_not_added(tmp_path: Path) -> None:
    write_tables(tmp_path, {"invoices": [owed("anna", "1"), owed("ben", "2", currency="USD"), owed("carl", "3")]})
    revenue = Bills(tmp_path).revenue([SCORES])
    assert revenue[SCORES].text == "4.00 EUR + 2.00 USD"
    assert total([*revenue.values(), Amount(money={"USD": Decimal(5)})]).text == "4.00 EUR + 7.00 USD"


def test_directory_without_tables_has_no_bills(tmp_path: Path) -> None:
    bills = Bills(tmp_path)
    assert (bills.revenue([SCORES]), bills.ads([SCORES], 9), bills.months("anna")) == ({}, [], [])
