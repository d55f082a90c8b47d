"""The words and help of `broadloom sim` and `broadloom trial`: a part of `cli.py`, with no logic either."""

from pathlib import Path
from typing import Annotated

import typer

DegreeOption = Annotated[int, typer.Option(help="Links per peer, if not as the scenario says.")]
SpreadOption = Annotated[
    str,
    typer.Option(
        help="How messages reach everyone: `flood` (over every link: fastest, most copies), `tree` (along trees that "
        "the fabric learns; names of everything over every link, what is lacking is pulled), `mixed` (small ones the "
        "first way, large ones the second, as Broadloom does by itself).",
        show_default="mixed",
    ),
]
TapeOption = Annotated[Path | None, typer.Option(help="Record it in this directory.", show_default=False)]


def sim(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario, or a TOML file. `list` shows what there is.")],
    peers: Annotated[str, typer.Option(help="How many peers; several sizes as 100,200,1000.")] = "",
    seeds: Annotated[str, typer.Option(help="Which histories: 7, or 1..20.")] = "1..3",
    jobs: Annotated[int, typer.Option(min=1, help="Histories played at the same time.")] = 2,
    degree: DegreeOption = 0,
    spread: SpreadOption = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object per history, for programs.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Tell everything that happens (one seed).")] = False,
    draw: Annotated[str, typer.Option(help="Draw the fabric at its end to a .svg or .png file (one seed).")] = "",
    tape: TapeOption = None,
) -> None:
    """Play a scenario in the simulator and check every promise.

    The same code that runs on sockets runs here on a virtual network and clock; a seed decides everything that
    happens. Ends with 1 if a promise was broken, and says how to replay that history. A tape (of one seed) is the same
    as that of real peers.

    Examples: `broadloom sim list`, `broadloom sim kill --peers 200 --seeds 1..100`,
    `broadloom sim grow --peers 100,1000 --draw g.svg`
    """
    from broadloom.cli import simulate

    raise typer.Exit(
        simulate.sim(
            scenario,
            tape,
            peers=peers,
            seeds=seeds,
            jobs=jobs,
            degree=degree,
            dissemination=spread,
            json=json,
            trace=trace,
            draw=draw,
        )
    )


def trial(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario. `list` shows what there is.")],
    peers: Annotated[int, typer.Option(help="How many peers.", show_default=False)] = 0,
    processes: Annotated[int, typer.Option(help="In how many processes; else one a peer.", show_default=False)] = 0,
    kill: Annotated[int, typer.Option(help="How many to kill at once (kill).", show_default=False)] = 0,
    freeze: Annotated[int, typer.Option(help="How many to stop for a while (freeze).", show_default=False)] = 0,
    newcomers: Annotated[int, typer.Option(help="How many join one after the other (join).", show_default=False)] = 0,
    per_min: Annotated[float, typer.Option(help="Arrivals a minute; as many go (churn).", show_default=False)] = 0.0,
    seconds: Annotated[float, typer.Option(help="How long the trouble lasts.", show_default=False)] = 0.0,
    rate: Annotated[float, typer.Option(help="Messages a second, of all peers together.", show_default=False)] = 0.0,
    size: Annotated[int, typer.Option(help="Bytes of a message.", show_default=False)] = 0,
    degree: DegreeOption = 0,
    within: Annotated[float, typer.Option(help="Seconds that repair may take.", show_default=False)] = 0.0,
    plain: Annotated[bool, typer.Option("--plain", help="Without TLS.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    tape: TapeOption = None,
) -> None:
    """Try it with real processes on this machine, and audit every delivery.

    Starts the peers, lets them talk, kills, stops or cuts off some of them, waits until the fabric is whole again, and
    checks that every peer got what it should, once and in order. Ends with 1 if a promise was broken, 3 if this machine
    does not permit it.

    Examples: `broadloom trial list`, `broadloom trial kill --peers 200 --kill 40`, `broadloom trial join --peers 200`
    """
    from broadloom.testing.chaos import command

    raise typer.Exit(
        command.chaos(
            scenario,
            peers=peers,
            processes=processes,
            kill=kill,
            pause=freeze,
            joiners=newcomers,
            churn_per_min=per_min,
            duration=seconds,
            rate=rate,
            size=size,
            degree=degree,
            repair_timeout=within,
            no_tls=plain,
            json=json,
            tape=str(tape or ""),
        )
    )
