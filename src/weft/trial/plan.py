"""What a trial is asked to do, checked before a single process is started."""

import math
import resource
from dataclasses import dataclass, replace

from weft.channel.large import PART_BYTES
from weft.fabric import Settings
from weft.trial.payload import SIZE_MIN_BYTES

RATE_PER_S = 50.0
DELIVERIES_PER_S = 2_000.0
"""The default rate makes not more than this: it leaves two cores some room for repair (with TLS, a delivery costs a
process of its own about 0.3 ms)."""
SPARE_FILES = 200


class WrongUse(ValueError):
    """The words of the command line do not fit; says what would."""


@dataclass(frozen=True, slots=True)
class Plan:
    peers: int
    processes: int = 0
    """0: one for each peer."""
    hit: int = 0
    """Peers that are killed or frozen."""
    newcomers: int = 0
    per_min: float = 0.0
    """Arrivals, and as many departures, a minute."""
    seconds: float = 0.0
    """How long the fault lasts: churn, freeze, partition."""
    rate_per_s: float = 0.0
    """Messages of all peers together; 0: chosen by the number of peers."""
    size_bytes: int = 100
    degree: int = 4
    within_s: float = 60.0
    """For the fabric to become one regular graph again."""
    plain: bool = False
    tape: str = ""

    @property
    def per_process(self) -> int:
        return self.peers // self.processes

    @property
    def processes_hit(self) -> int:
        return self.hit // self.per_process

    def checked(self) -> "Plan":
        """With all that was left open filled in."""
        if self.peers < 2:
            raise WrongUse("--peers: a channel of fewer than two proves nothing")
        plan = replace(
            self,
            processes=self.processes or self.peers,
            rate_per_s=self.rate_per_s or min(RATE_PER_S, DELIVERIES_PER_S / self.peers),
        )
        if plan.peers % plan.processes:
            raise WrongUse(f"--processes: {plan.peers} peers cannot be shared out evenly among {plan.processes}")
        if plan.hit % plan.per_process:
            raise WrongUse(f"each process has {plan.per_process} peers, which live and die together: hit a multiple")
        if plan.hit > plan.peers - 2:
            raise WrongUse(f"{plan.hit} of {plan.peers} peers: at least two must be left, or there is nothing to audit")
        if plan.size_bytes < SIZE_MIN_BYTES:
            raise WrongUse(f"--size: at least {SIZE_MIN_BYTES} bytes, for who says what, and when")
        if plan.size_bytes > PART_BYTES:
            raise WrongUse(f"--size: at most {PART_BYTES} bytes; larger messages go in parts, which are not audited")
        if not math.isfinite(plan.rate_per_s) or plan.rate_per_s < 0 or plan.seconds < 0:
            raise WrongUse("--rate and --seconds are not negative")
        try:
            Settings(degree=plan.degree)
        except ValueError as problem:
            raise WrongUse(str(problem)) from None
        _raise_file_limit(plan)
        return plan


def _raise_file_limit(plan: Plan) -> None:
    """Each peer listens and holds its links and calls; the coordinator holds one socket for each process."""
    needed = max(plan.per_process * (plan.degree + 12), plan.processes + plan.newcomers) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise WrongUse(f"a process may open {hard} files here, {needed} are needed: use more or fewer --processes")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
