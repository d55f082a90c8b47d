"""`python -m tests.fuzz --minutes 10`: random, spoilt and absurd bytes for real peers, which must not notice.

Ends with 1 if it found something; then what was sent last is in a file that `--replay` sends again.
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
    given = _arguments()
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(32)
    console = Console(quiet=given.json, stderr=True)
    campaign = Campaign(seed, false_claims=given.hearsay)
    console.print(f"fuzzing for {given.minutes:g} minutes with seed {seed}")
    asyncio.run(
        campaign.run(
            given.minutes * 60, _progress_printer(console), read_scripts(given.replay) if given.replay else None
        )
    )
    if campaign.findings:
        campaign.script_log.write(given.file)
    if given.json:
        print(json.dumps(campaign.summary(), indent=2))
    else:
        _print(campaign, Console(), given.file)
    return 1 if campaign.findings else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="what is sent is made from it; when it arrives is not")
    parser.add_argument("--json", action="store_true", help="nothing but the summary, for programs")
    parser.add_argument("--file", type=Path, default=Path("fuzz-last.jsonl"), help="for what was sent last")
    parser.add_argument("--replay", type=Path, help="send what is in such a file again")
    parser.add_argument("--hearsay", action="store_true", help="also tell tales of what honest authors said")
    return parser.parse_args()


def _progress_printer(console: Console):
    began = last = time.monotonic()

    def tell(campaign: Campaign) -> None:
        nonlocal last
        if time.monotonic() - last < PROGRESS_INTERVAL_S:
            return
        last = time.monotonic()
        fared = ", ".join(
            f"{each.monitor.mode}: {each.monitor.last.get('delivered', 0)} delivered, "
            f"{each.monitor.last.get('rss_kb', 0) >> 10} MiB, lag {each.monitor.lag_s:.2f} s"
            for each in campaign.victims
        )
        console.print(f"{last - began:5.0f} s  {campaign.script_counts.total()} attacks; {fared}")

    return tell


def _print(campaign: Campaign, console: Console, file: Path) -> None:
    summary = campaign.summary()
    table = Table("", *summary["victims"], title=f"seed {campaign.seed}, {campaign.sent_bytes >> 10} KiB sent")
    layers = sorted({name.split()[1] for name in summary["scripts"]})
    for layer in layers:
        counts = (summary["scripts"].get(f"{mode} {layer}", 0) for mode in summary["victims"])
        table.add_row(f"attacks: {layer}", *(str(count) for count in counts))
    table.add_section()
    for row in ("delivered", "late_s_max", "lag_s_max", "rss_mib_first_max_last"):
        table.add_row(row, *(str(fared[row]) for fared in summary["victims"].values()))
    table.add_section()
    names = sorted({name for fared in summary["victims"].values() for name in fared["counters"]})
    for name in names:
        table.add_row(name, *(str(fared["counters"].get(name, 0)) for fared in summary["victims"].values()))
    console.print(table)
    for finding in campaign.findings:
        console.print(f"[red]found[/red]: {finding}", soft_wrap=True)
    if campaign.findings:
        console.print(f"what was sent last: {file}; again: python -m tests.fuzz --replay {file}", soft_wrap=True)
    else:
        console.print("nothing found")


if __name__ == "__main__":
    sys.exit(main())
