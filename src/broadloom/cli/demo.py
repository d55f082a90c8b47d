"""What `broadloom demo` does: from its words to an exit code."""

import json as json_module
import sys

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError
from broadloom.cli.runner import StopSignal, hint, run
from broadloom.testing.cluster.demo_run import DemoConfig, DemoSummary, run_demo
from broadloom.testing.errors import ConfigError


def demo(options: DemoConfig, *, is_headless: bool, json: bool) -> int:
    async def work(end: StopSignal) -> int:
        try:
            with options.validated().working_directory() as place:
                if is_headless:
                    from broadloom.pipeline.sidecar_client import require_spark, start_tape_audit

                    if options.spark:
                        require_spark()
                    start_audit = start_tape_audit if options.spark else None
                    summary = await run_demo(options, place, (lambda _text: None) if json else hint, start_audit)
                    _print(summary, json=json)
                    return SUCCESS if summary.passed else FAILURE
                from broadloom.web.demo import serve_demo

                end.interrupt_is_success = True
                await serve_demo(options, place)
                return SUCCESS
        except ConfigError as problem:
            raise UsageError(str(problem)) from None

    return run("demo", work)


def _print(summary: DemoSummary, *, json: bool) -> None:
    if json:
        print(json_module.dumps(summary.as_dict(), default=str), flush=True)
        return
    lines = summary.rows()
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")
    for problem in summary.problems:
        print(problem, file=sys.stderr)
    if summary.passed:
        print(f"nothing was lost ({summary.audited_by})", flush=True)
    else:
        print("it did NOT go as promised", flush=True)
