"""What `weft demo` does: from its words to an exit code."""

import json as json_module
import sys

from weft.commands.ending import End, hint, run
from weft.commands.errors import FAILED, FINE, Mistake
from weft.demo.options import Options, WrongUse
from weft.demo.summary import Summary
from weft.lab.plan import WrongPlan


def demo(options: Options, *, is_once: bool, json: bool) -> int:
    async def work(end: End) -> int:
        try:
            with options.checked().place() as place:
                if is_once:
                    from weft.demo.once import once

                    summary = await once(options, place, (lambda _text: None) if json else hint)
                    _print(summary, json=json)
                    return FINE if summary.held else FAILED
                from weft.demo.show import show

                end.by_hand_is_fine = True
                await show(options, place)
                return FINE
        except (WrongPlan, WrongUse) as problem:
            raise Mistake(str(problem)) from None

    return run("demo", work)


def _print(summary: Summary, *, json: bool) -> None:
    if json:
        print(json_module.dumps(summary.as_dict(), default=str), flush=True)
        return
    lines = summary.lines()
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")
    for problem in summary.problems:
        print(problem, file=sys.stderr)
    if summary.held:
        print(f"nothing was lost ({summary.audited_by})", flush=True)
    else:
        print("it did NOT go as promised", flush=True)
