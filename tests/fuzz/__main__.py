"""`python -m tests.fuzz --minutes 10`: send random, corrupted and implausible bytes to real peers.

Exit status 1 if something was found; the last attacks are then in a file that `--replay` sends again.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import Campaign
from tests.fuzz.scripts import read_scripts

PROGRESS_INTERVAL_S = 10.0


def main() -> int:
    options = _parse_options()
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
    console = Console(quiet=options.json, stderr=True)
    campaign = Campaign(seed, false_claims=options.false_claims)
    console.print(f"fuzzing for {options.minutes:g} minutes with seed {seed}")
    asyncio.run(
        campaign.run(
            options.minutes * 60, _progress_printer(console), read_scripts(options.replay) if options.replay else None
        )
    )
    if campaign.findings:
        campaign.script_log.write(options.file)
    if options.json:
        print(json.dumps(campaign.summary(), indent=2))
    else:
        _print(campaign, Console(), options.file)
    return 1 if campaign.findings else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="determines what is sent, not when it arrives")
    parser.add_argument("--json", action="store_true", help="print only the summary, as JSON")
    parser.add_argument("--file", type=Path, default=Path("fuzz-last.jsonl"), help="where to write the last attacks")
    parser.add_argument("--replay", type=Path, help="send the attacks in such a file again")
    parser.add_argument("--false-claims", action="store_true", help="also make false claims about honest authors")
    return parser.parse_args()


def _progress_printer(console: Console):
    started_at = last = time.monotonic()

    def print_progress(campaign: Campaign) -> None:
        nonlocal last
        if time.monotonic() - last < PROGRESS_INTERVAL_S:
            return
        last = time.monotonic()
        results = ", ".join(
            f"{each.monitor.mode}: {each.monitor.last.get('delivered', 0)} delivered, "
            f"{each.monitor.last.get('rss_kb', 0) >> 10} MiB, lag {each.monitor.lag_s:.2f} s"
            for each in campaign.victims
        )
        console.print(f"{last - started_at:5.0f} s  {campaign.script_counts.total()} attacks; {results}")

    return print_progress


def _print(campaign: Campaign, console: Console, file: Path) -> None:
    summary = campaign.summary()
    table = Table("", *summary["victims"], title=f"seed {campaign.seed}, {campaign.sent_bytes >> 10} KiB sent")
    layers = sorted({name.split()[1] for name in summary["scripts"]})
    for layer in layers:
        counts = (summary["scripts"].get(f"{mode} {layer}", 0) for mode in summary["victims"])
        table.add_row(f"attacks: {layer}", *(str(count) for count in counts))
    table.add_section()
    for row in ("delivered", "late_s_max", "lag_s_max", "rss_mib_first_max_last"):
        table.add_row(row, *(str(results[row]) for results in summary["victims"].values()))
    table.add_section()
    names = sorted({name for results in summary["victims"].values() for name in results["counters"]})
    for name in names:
        table.add_row(name, *(str(results["counters"].get(name, 0)) for results in summary["victims"].values()))
    console.print(table)
    for finding in campaign.findings:
        console.print(f"[red]found[/red]: {finding}", soft_wrap=True)
    if campaign.findings:
        console.print(f"last attacks: {file}; replay: python -m tests.fuzz --replay {file}", soft_wrap=True)
    else:
        console.print("nothing found")


if __name__ == "__main__":
    sys.exit(main())
