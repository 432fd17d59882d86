"""The checkpoints of a session: what they hold of it, and that training goes on where one cannot be written."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from heterotp_api.policy import BalancingSettings

from heterotp_trainer.boundary.heartbeat import Heartbeat
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.iteration_report import IterationStatistics
from heterotp_trainer.checkpoint.errors import NotFiniteError, WriteError
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.reporting.log_line import log
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.watched import Watched


class SessionCheckpoints:
    """Writes and reads the checkpoints of a session; keeper: when one is due."""

    def __init__(
        self,
        environment: RankEnvironment,
        group: dist.ProcessGroup,
        heartbeat: Heartbeat,
        where: Whereabouts,
        injector: Injector,
        statistics: IterationStatistics,
        reporter: Callable[[], NullReporter],
    ) -> None:
        """reporter: returns that of now. Raises CheckpointError on all ranks together, see CheckpointKeeper."""
        self._rank, self._heartbeat, self._where = environment.rank, heartbeat, where
        self._injector, self._statistics, self._reporter = injector, statistics, reporter
        self.keeper = CheckpointKeeper(environment, group, show=self._show_storage)

    def _show_storage(self, text: str) -> None:
        self._where.reason = text
        self._reporter().storing(text)

    def save(self, watched: Watched, iteration: int) -> None:
        """Write a checkpoint of `iteration`, which just ended, see Session.save (all ranks)."""
        watched.compare_replicas(iteration)
        facts = {"injections": self._injector.state(), **watched.state()}
        with self._where.busy("a checkpoint"):
            seconds = self.keeper.save(iteration, watched.contents, watched.tp, facts)
        if seconds is not None:
            self._statistics.leave_out()
            self._reporter().saved(iteration, seconds)

    def save_or_go_on(self, watched: Watched, iteration: int, *, best: bool = False) -> None:
        """Write a checkpoint, and keep it as the best; where it cannot be written, say so and go on (all ranks)."""
        try:
            self.save(watched, iteration)
            if best:
                self.keeper.keep_best(iteration)
        except WriteError as error:  # on all ranks; the last checkpoint, in `finish`, must succeed
            said = isinstance(error, NotFiniteError) and error.again
            if self._rank == 0 and not said:
                log(iteration, f"{error}; training goes on")
            self._statistics.leave_out()
            self._reporter().not_saved(str(error))

    def restore(self, watched: Watched, policy: BalancingSettings) -> int:
        """Continue from the newest whole checkpoint, see Session.restore (all ranks); return its iteration, else 0.

        policy: of the newest control document.
        """

        def prepare(facts: dict[str, Any]) -> None:
            if "balancing" in facts:
                watched.balancer.prepare(facts["balancing"], policy)

        with self._where.busy("the checkpoint is read"):
            iteration, facts = self.keeper.restore(watched.contents, watched.tp, prepare)
        self._heartbeat.progress()
        watched.resume(facts)
        self._statistics.started = self._where.iteration = iteration
        self._injector.resume(facts.get("injections", {}))
        if iteration:
            self._reporter().resumed(iteration)
        return iteration

    def close(self) -> None:
        """Give up the group; no checkpoint can be written or read any more."""
        self.keeper.close()
