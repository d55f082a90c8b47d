"""`broadloom auction`."""

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from broadloom import Ticket
from broadloom.apps.auction.statements import Action
from broadloom.cli.auction import _sale_fields
from broadloom.cli.main import app
from broadloom.order import OrderSettings
from broadloom.security import revoke_tickets
from tests.apps.auction.ledgers import HandLedger
from tests.apps.auction.saleroom import NOTARIES, Saleroom, lot
from tests.apps.tapes import change_lines
from tests.cli.harness import run, running_command


async def test_lot_is_opened_sold_exported_and_verified(tmp_path: Path) -> None:
    log, tapes, receipt = tmp_path / "auction.log", tmp_path / "tapes", tmp_path / "receipt"
    async with Saleroom(tmp_path) as saleroom:
        for name in ("anna", "sam", "notary-3"):
            saleroom.ticket(name).save(tmp_path / f"{name}.ticket")

        async def auction(verb: str, *words: str, by: str = "anna") -> tuple[int, str, str]:
            ticket = ("--ticket", str(tmp_path / f"{by}.ticket"))
            return await asyncio.to_thread(run, "auction", verb, saleroom.name, *words, *ticket)

        for name in NOTARIES[:2]:
            await saleroom.open(name)
        store = ("--store", str(tmp_path / "notary-3.db"), "--ticket", str(tmp_path / "notary-3.ticket"))
        with running_command("auction", "serve", saleroom.name, *store) as serving:
            # A Dutch lot is sold as soon as somebody bids, however busy the machine is.
            opened = await auction("open", "lot-1", "--kind", "dutch", "--start", "12.50", by="sam")
            assert opened == (0, "lot-1 is open: entry 1\n", "")
            code, _, err = await auction("bid", "lot-1", "20", "--receipt", str(tmp_path / "missing" / "receipt"))
            assert (code, "No such file" in err) == (2, True)
            code, out, err = await auction("bid", "lot-1", "20", "--wait", "--receipt", str(receipt))
            assert (code, err) == (0, "")
            assert "sold to anna for 12.50" in out
            assert (await auction("export", str(log)))[0] == 0
            missing = str(tmp_path / "missing" / "file")
            assert (await auction("serve", "--store", missing, by="notary-3"))[0] == 2
            assert (await auction("watch", "--tape", str(tapes), "--count", "3"))[0] == 0
            await asyncio.to_thread(serving.wait_for_output, "sold to anna for 12.50")
    ticket = ("--ticket", str(tmp_path / "sam.ticket"))
    for path in (log, tapes):
        result = CliRunner().invoke(app, ["auction", "verify", str(path), "--receipt", str(receipt), *ticket, "--json"])
        verified = json.loads(result.output)
        assert (result.exit_code, verified["lots"][0]["winner"], verified["is_authority_checked"]) == (0, "anna", True)
    for words, code, problem in (
        (("--receipt", str(log)), 2, f"{log} is not a receipt"),
        (("--receipt", str(tmp_path / "missing")), 2, "missing: No such file"),
        (("--number", "3"), 1, "is the log of one auction"),
    ):
        result = CliRunner().invoke(app, ["auction", "verify", str(log), *words, *ticket])
        assert (result.exit_code, problem in result.output) == (code, True), result.output
    change_lines(tapes, lambda rows: rows[1:])
    result = CliRunner().invoke(app, ["auction", "verify", str(tapes), *ticket])
    assert (result.exit_code, "line 1 of this auction is not on the tape" in result.output) == (1, True), result.output
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], *lines[2:]]))
    result = CliRunner().invoke(app, ["auction", "verify", str(log), *ticket])
    assert (result.exit_code, "was altered" in result.output) == (1, True), result.output


def test_lot_whose_bids_are_revealed_has_no_minimum_bid() -> None:
    ledger = HandLedger()
    ledger.open("sealed")
    assert _sale_fields(ledger.sale("lot-1"))["minimum_bid"] == "10"
    ledger.seal("anna", 20)
    ledger.call(Action.UNSEAL)
    assert _sale_fields(ledger.sale("lot-1"))["minimum_bid"] == ""


async def test_room_that_fails_ends_the_command_with_the_reason(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        saleroom.ticket("anna").save(tmp_path / "anna.ticket")
        for name in NOTARIES:
            await saleroom.open(name, order_settings=OrderSettings(stall_s=1.0, log_entries_max=2))
        sam = await saleroom.open("sam")
        for number in range(4):
            await sam.open_lot(lot("english", f"lot-{number}"))
        await sam.leave()
        ticket = ("--ticket", str(tmp_path / "anna.ticket"))
        code, _, err = await asyncio.to_thread(run, "auction", "watch", saleroom.name, *ticket)
        assert (code, "of this auction are gone" in err) == (1, True), err


async def test_member_whose_ticket_is_revoked_learns_why_watching_ends(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        saleroom.ticket("anna").save(tmp_path / "anna.ticket")
        notaries = await saleroom.notaries()
        sam = await saleroom.open("sam")
        await sam.open_lot(lot("english"))
        with running_command("auction", "watch", saleroom.name, "--ticket", str(tmp_path / "anna.ticket")) as watching:
            await asyncio.to_thread(watching.wait_for_output, "opened by sam")
            revoke_tickets(saleroom.authority, tmp_path / "revoked.pem", [Ticket.load(tmp_path / "anna.ticket").serial])
            await notaries[0].channel.publish(tmp_path / "revoked.pem")
            code, _, err = await asyncio.to_thread(watching.wait)
            assert (code, "revoked" in err) == (1, True), err


def test_usage_errors_name_the_remedy(tmp_path: Path) -> None:
    saleroom = Saleroom(tmp_path)
    saleroom.ticket("sam").save(tmp_path / "sam.ticket")
    ticket = ("--ticket", str(tmp_path / "sam.ticket"))
    for words, problem in (
        (("list", saleroom.name), "needs a ticket"),
        (("open", saleroom.name, "lot-1", "--start", "ten", *ticket), "is not an amount"),
        (("open", saleroom.name, "lot-1", "--start", "1", "--kind", "silent", *ticket), "must be one of"),
        (("verify", str(tmp_path / "sam.ticket")), "damaged"),
    ):
        result = CliRunner().invoke(app, ["auction", *words])
        assert (result.exit_code in (1, 2), problem in result.output) == (True, True), result.output
