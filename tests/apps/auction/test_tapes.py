"""Winner and price from the tape of any one member, with payloads."""

import base64
import json
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest

from broadloom import Authority
from broadloom.apps import auction
from broadloom.apps.auction import log_file
from tests.apps.auction.histories import AUTHORITY, History
from tests.apps.auction.saleroom import Saleroom, lot
from tests.apps.auction.sim_signer import verify
from tests.apps.tapes import change_lines, payload_tape, simulated_tape
from tests.histories import run_history
from tests.support import eventually

Rows = list[dict[str, Any]]


def altered(rows: Rows) -> Rows:
    """The second entry with another amount."""
    line = json.loads(rows[2]["payload"])
    data = base64.b64decode(line["entry"])
    assert b"15.50" in data
    line["entry"] = base64.b64encode(data.replace(b"15.50", b"95.50")).decode()
    rows[2]["payload"] = json.dumps(line).encode()
    return rows


def without_a_bid(rows: Rows) -> Rows:
    """The numbers of the following rows are changed, so that no row seems to be missing."""
    del rows[2]
    return [row | {"sequence": place} for place, row in enumerate(rows, 1)]


async def test_tapes_of_two_bidders_name_the_same_winner_and_a_changed_one_is_rejected(tmp_path: Path) -> None:
    names = ("anna", "ben")
    tapes = {name: payload_tape(tmp_path / name) for name in names}
    async with Saleroom(tmp_path) as saleroom:
        await saleroom.notaries()
        anna, ben = [await saleroom.open(name, tape=tapes[name]) for name in names]
        seller = await saleroom.open("seller")
        await seller.open_lot(lot("english"))
        receipt = await ben.bid("lot-1", "15.50")
        await saleroom.hurry(anna, auction.Sold)
        await eventually(lambda: ben.ledger.chain == anna.ledger.chain, "both have the whole list")
        authority = saleroom.authority.certificate
    for tape in tapes.values():
        tape.close()
    for name in names:
        ledger, _ = auction.read_log(tmp_path / name, authority)
        assert ledger.results() == {"lot-1": ("ben", Decimal("15.50"))}
        assert ledger.chain == anna.ledger.chain
        receipt.check(ledger)
    other = Authority.generate(b"another channel").certificate
    with pytest.raises(auction.AlteredLogError, match="not of the authority"):
        auction.read_log(tmp_path / "anna", other)
    change_lines(tmp_path / "anna", without_a_bid)
    with pytest.raises(auction.AlteredLogError, match="was altered"):
        auction.read_log(tmp_path / "anna", authority)
    change_lines(tmp_path / "ben", altered)
    with pytest.raises(auction.AlteredLogError, match="was altered"):
        auction.read_log(tmp_path / "ben", authority)
    change_lines(tmp_path / "ben", lambda rows: rows[:2] + rows[3:])
    with pytest.raises(auction.AuctionError, match="line 3 of this auction is not on the tape"):
        auction.read_log(tmp_path / "ben", authority)


def run_taped_seed(seed: int) -> History:
    """Raises `AssertionError`."""
    with TemporaryDirectory() as folder, patch.object(log_file, "verifier", lambda *_arguments: verify):
        with simulated_tape(Path(folder)) as make:
            history = run_history(History(seed, tape_factory=make))
        results = history.alive[0].ledger.results()
        for number, program in enumerate(history.programs, 1):
            ledger, _ = auction.read_log(Path(folder), AUTHORITY.certificate, number=number)
            assert ledger.chain == program.ledger.chain
            assert ledger.results() == program.ledger.results()
            assert not program.node.is_alive or ledger.results() == results
    return history


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_every_tape_of_a_history_with_killed_auctioneers_names_the_same_winners(seed: int) -> None:
    assert run_taped_seed(seed).alive[0].ledger.results()
