"""The reports of a session: made of the iteration that ends, exchanged at its boundary, read one boundary later."""

import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.exchange import BoundaryExchange, Report, flags_of, hash_number, merge_reports
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.iteration_context import IterationContext
from heterotp_trainer.boundary.iteration_report import IterationStatistics, iteration_report
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.devices.device import Device, settled
from heterotp_trainer.devices.machine.watch import MachineWatch
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.tensor_parallel.unit_spec import owned_parts
from heterotp_trainer.watched import Watched


class Reports:
    """Makes this rank's reports, and exchanges them."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        where: Whereabouts,
        control: ControlChannel,
        injector: Injector,
        keeper: CheckpointKeeper,
        statistics: IterationStatistics,
        machine: MachineWatch,
        *,
        rank: int,
        ranks: int,
    ) -> None:
        """group: of the exchange alone, see Gang."""
        self._exchange = BoundaryExchange(group, ranks)
        self._where, self._control, self._injector = where, control, injector
        self._keeper, self._statistics, self._machine, self._leads = keeper, statistics, machine, rank == 0

    def make(
        self,
        watched: Watched,
        iteration: int,
        loss: Tensor | None,
        clock: Clock,
        device: Device,
        *,
        stop: bool,
        evaluate: bool,
        admit: bool = False,
        asked: bool = False,
        leave: bool = False,
    ) -> Report:
        """Return this rank's report of `iteration`, which ends now, and what it asks of all ranks.

        stop, evaluate: whether it asks for that; only rank 0's word counts for an evaluation. admit: whether a rank
        waits that came back, as only rank 0 knows. asked: whether this rank was asked to stop, where one alone leaves;
        leave: whether it does so, as only rank 0 decides.
        """
        balancer = watched.balancer
        spent, unslowed = settled(clock, device), self._injector.unslowed()
        context = IterationContext(False, balancer.plan.decision_id, balancer.full_work_factor, unslowed)
        return iteration_report(
            iteration=iteration,
            ran=self._statistics.end(iteration, clock.age, context),
            flags=self._flags(stop=stop, evaluate=evaluate, admit=admit, asked=asked, leave=leave),
            spent=spent,
            stages=clock.take_stages(),
            owned=owned_parts(watched.parameters.values()),
            control=self._control,
            ready=balancer.resharder.ready,
            pace_ratio=balancer.pace_probe.pace_ratio,
            plan=hash_number(watched.tp.unit_plan.hash) ^ hash_number(balancer.plan.hash),
            batch=watched.batch_hash.take(),
            loss=watched.told_loss.take(loss),
            machine=self._machine.newest,
        )

    def _flags(self, *, stop: bool, evaluate: bool, admit: bool, asked: bool, leave: bool) -> int:
        leads = self._leads
        return flags_of(
            stop=stop,
            checkpoint=leads and self._keeper.is_due(),
            evaluate=leads and evaluate,
            lease_over=leads and self._control.lease_is_over(),
            admit=leads and admit,
            asked=asked,
            leave=leads and leave,
        )

    def exchange(self, own: Report) -> tuple[Report, ...] | None:
        """Send this rank's report; return those of the boundary before, None at the first boundary (all ranks)."""
        with self._where.waiting("the reports of all ranks"):
            previous = self._exchange.collect()
        self._exchange.post(own)
        return previous

    def last(self, watched: Watched, iteration: int) -> tuple[Report, ...]:
        """Return the reports of the last boundary, compared as those before; none where there was none (all ranks)."""
        with self._where.waiting("the reports of all ranks"):
            last = self._exchange.collect()
            if last is None:
                return ()
            merge_reports(last, unlike=watched.unlike)
            if watched.batch_hash.late:  # what entered in the last iteration, and its loss, are not in its report
                batch, loss = watched.batch_hash.take(), watched.told_loss.take(None)
                self._exchange.post(
                    Report(iteration, batch=batch.hash, batch_norm=batch.norm, batch_signed=batch.signed, loss=loss)
                )
                merge_reports(self._exchange.collect() or (), unlike=watched.unlike)
        return last

    def close(self) -> None:
        """Give up the group; nothing can be exchanged any more."""
        self._exchange.close()
