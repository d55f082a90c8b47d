"""`Joining`: making the log of a sequencer ours, when something is missing or another one leads."""

from typing import TYPE_CHECKING

from broadloom.order.catch_up import FetchedLog
from broadloom.order.log import fork_index
from broadloom.order.messages import Submit
from broadloom.order.model import Epoch, SequencerChanged
from broadloom.order.policy import SafePolicy
from broadloom.order.settings import LINEAGE_MAX

if TYPE_CHECKING:
    from broadloom.order.replica import Replica


class Joining:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._target: tuple[Epoch, bool] | None = None
        """An epoch whose log is being fetched, and whether its decision is binding for us."""

    def fetch_from_sequencer(self) -> None:
        """Something of the log that we follow is missing."""
        replica = self._replica
        if replica.is_following and not replica.catch_up.is_running:
            replica.catch_up.start(replica.log.epoch.sequencer, self._on_fetched)

    def join(self, epoch: Epoch, *, is_binding: bool) -> None:
        """Follow this epoch; unless it is binding, only if its log continues ours."""
        if self._target is None or self._target[0] < epoch:
            self._target = epoch, is_binding
            self._replica.catch_up.start(epoch.sequencer, self._on_fetched)

    def cancel(self) -> None:
        self._target = None
        self._replica.catch_up.cancel()

    def tick(self) -> None:
        """A fetch that failed is tried again."""
        replica = self._replica
        if self._target is not None and not replica.catch_up.is_running:
            epoch = self._target[0]
            if epoch <= replica.log.epoch or epoch < replica.fence or not replica.runtime.is_present(epoch.sequencer):
                self._target = None
            else:
                replica.catch_up.start(epoch.sequencer, self._on_fetched)

    def _on_fetched(self, fetched: FetchedLog | None) -> None:
        replica = self._replica
        if fetched is None or fetched.epoch < replica.fence or fetched.source != fetched.epoch.sequencer:
            return
        if replica.is_sequencing and fetched.epoch == replica.log.epoch:
            return
        is_binding = replica.policy.is_final or self._target == (fetched.epoch, True)
        if fetched.epoch == replica.log.epoch or is_binding or self._continues_ours(fetched):
            self._target = None
            replica.adopt(fetched)
        else:
            self._target = None
            replica.elections.merge()

    def _continues_ours(self, fetched: FetchedLog) -> bool:
        log = self._replica.log
        return fork_index(log.lineage, log.end, fetched.lineage, fetched.end) == log.end

    def replace_log(self, fetched: FetchedLog) -> bool:
        """Returns False if this would revoke final entries."""
        replica, log = self._replica, self._replica.log
        is_new = fetched.epoch != log.epoch
        if not replica.delivery.prepare_rewind(self._fork(fetched)):
            return False
        fence = max(replica.fence, fetched.epoch)
        if replica.store is not None:
            snapshot = None if fetched.snapshot is None else (fetched.chain_before, fetched.snapshot)
            replica.store.replace(
                fetched.fork, fetched.entries, fetched.lineage[-LINEAGE_MAX:], fence, fetched.enrolled, snapshot
            )
        if fetched.snapshot is not None:
            removed = log.restart(fetched.fork, fetched.chain_before, fetched.snapshot)
        else:
            removed = log.truncate(fetched.fork)
        for entry in fetched.entries:
            log.append(entry)
        log.set_lineage(fetched.lineage)
        replica.fence = fence
        if isinstance(replica.policy, SafePolicy):
            replica.policy.enrolled = fetched.enrolled
        replica.submissions.put_back_own(removed, replica.clock.now())
        replica.submissions.drop_outdated()
        replica.delivery.start(log.end)
        replica.delivery.on_restart()
        if is_new:
            replica.runtime.emit(SequencerChanged(fetched.epoch))
        for number in [entry.number for entry in removed if entry.author == replica.me]:
            submission = replica.submissions.own.get(number)
            if submission is not None:
                replica.broadcast(Submit(replica.id, number, submission.key, submission.data))
        return True

    def _fork(self, fetched: FetchedLog) -> int:
        """The last index that stays as it is."""
        if fetched.snapshot is None:
            return fetched.fork
        if self._replica.policy.is_final:
            return self._replica.delivery.position  # what was delivered is in every later log
        log = self._replica.log
        return min(fetched.fork, fork_index(log.lineage, log.end, fetched.lineage, fetched.end))
