"""The words and help of `broadloom bench`: a part of `cli.py`, with no logic either."""

from typing import Annotated

import typer

from broadloom.cli.options import JsonOption


def _measures(incomplete: str) -> list[str]:
    names = ("all", "throughput", "latency", "all-to-all", "join")
    return [name for name in names if name.startswith(incomplete)]


def bench(
    measure: Annotated[
        str,
        typer.Argument(
            metavar="throughput|latency|all-to-all|join|all",
            help="What to measure: how many messages a second one can send; how long a message is under way; how many "
            "a second if all send; how long a newcomer takes to join. Or all of it.",
            autocompletion=_measures,
        ),
    ] = "all",
    receivers: Annotated[int, typer.Option(min=1, help="So many programs listen; one more speaks.")] = 8,
    size: Annotated[int, typer.Option(metavar="BYTES", help="Of one message; at least 24.")] = 100,
    messages: Annotated[
        int, typer.Option(min=1, help="At full speed: at most so many, of all who speak together.")
    ] = 50_000,
    rate: Annotated[float, typer.Option(metavar="PER_SECOND", help="For latency and join: messages a second.")] = 200.0,
    seconds: Annotated[float, typer.Option(help="At most so long for each; join takes as long as joining does.")] = 3.0,
    plain: Annotated[bool, typer.Option("--plain", help="Without encryption.")] = False,
    key: Annotated[
        bool, typer.Option("--key", help="With a key that all share, in place of one from the name.")
    ] = False,
    signed: Annotated[bool, typer.Option("--signed", help="Each message is signed by its author.")] = False,
    json: JsonOption = False,
) -> None:
    """Say how fast Broadloom is on this machine, with this kind of channel.

    Takes about 15 seconds. Starts real processes, one for each peer, which talk over loopback; for each measurement
    it says what the figures mean, and how much of the machine other programs took meanwhile. Without --plain, --key or
    --signed the channel is as `broadloom.connect` makes it by itself: TLS, with a key from its name. Nothing of it can
    be seen from other machines.

    Ends with 1 if a message was lost, repeated or out of order, 3 if this machine does not permit it (it needs Linux).

    Examples:

    - `broadloom bench`
    - `broadloom bench throughput --receivers 16 --size 1000`
    - `broadloom bench latency --rate 1000 --seconds 10 --plain`
    - `broadloom bench --signed --json | jq .benchmarks.latency.latency_ms`
    """
    from broadloom.cli.runner import run_reporting_errors
    from broadloom.testing.bench import command

    raise typer.Exit(
        run_reporting_errors(
            "bench",
            lambda: command.bench(
                measure,
                receivers=receivers,
                size=size,
                messages=messages,
                rate=rate,
                duration=seconds,
                no_tls=plain,
                shared_key=key,
                signed=signed,
                json=json,
            ),
        )
    )
