"""One measurement of each kind. Each takes a system, a case and the plan, and returns rows: one for each repeat."""

from bench.child_process import MeasurementError
from bench.plan import Case, Plan
from bench.result_row import Row
from bench.systems import System
from bench.workloads.broadcast import broadcast
from bench.workloads.frozen import frozen
from bench.workloads.join import join
from bench.workloads.request import request

_BY_WORKLOAD = {"join": join, "frozen": frozen, "request": request, "switch": request, "mailbox": request}

PORT_TAKEN = "Address already in use"
START_ATTEMPTS = 3
"""Another program may take a free port before the process that it was found for listens."""


async def measure(system: System, case: Case, plan: Plan) -> list[Row]:
    """Whatever goes wrong is a row as well: one broken system must not end the others' run."""
    row = Row(system=system.name, kind=system.kind, encrypted=system.encrypted)
    row |= {"workload": case.workload, "receivers": case.receivers, "size_bytes": case.size_bytes}
    if reason := system.missing() or system.unable(case):
        return [row | {"error": reason}]
    case = system.fitted(case)
    row |= {"messages": case.messages, "rate_per_s": case.rate_per_s}
    run = _BY_WORKLOAD.get(case.workload, broadcast)
    try:
        for attempt in range(START_ATTEMPTS):
            try:
                return [row | measured for measured in await run(system, case, plan)]
            except MeasurementError as problem:
                if PORT_TAKEN not in str(problem) or attempt == START_ATTEMPTS - 1:
                    return [row | {"error": str(problem)}]
    except (OSError, ValueError, EOFError) as problem:
        return [row | {"error": f"{type(problem).__name__}: {problem}"}]
    raise AssertionError
