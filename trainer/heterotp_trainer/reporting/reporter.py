"""Everything that a session shows and reads at its edges: metrics, status, run directory, control file.

Threads of its own serve and write; the training loop only hands over numbers.
"""

import threading
import time
from dataclasses import replace
from typing import Any

from heterotp_api.control import ControlDocument
from torch import Tensor

from heterotp_trainer.balancing.explanations import seconds_named, size_named
from heterotp_trainer.boundary.control_channel import ControlError, ControlFile
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.lease import Lease
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.rendezvous import Gang
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.http_server import StatusServer
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from heterotp_trainer.reporting.run_directory import RunDirectory, last_words
from heterotp_trainer.reporting.run_status import RunStatus, shares_of
from heterotp_trainer.resharding.resharder import CompletedMove


def work_owned(plan: UnitPlan, first: UnitPlan, rank: int, costs: Costs | None) -> float:
    """Return what a rank's units take over what those took that it began with: by the measured curves, where known.

    That is the measure of its work since half of the work is all that a device of half the speed should do. A rank that
    began with nothing is measured by an even share.
    """
    if not first.share(rank):
        return plan.share(rank) * plan.ranks
    now, then = (costs.owned_by(each).full_seconds(rank) if costs else each.share(rank) for each in (plan, first))
    return now / then if then else plan.share(rank) / first.share(rank)


class Reporter:
    """One rank's window to the outside; status, history and control are rank 0's."""

    def __init__(self, environment: RankEnvironment, gang: Gang, plan: UnitPlan) -> None:
        self._environment = environment
        self._first, self._owned = plan, 1.0
        self._whole_seconds = 0.0  # of the products of the last plain iteration, with nothing taken from the rank
        self._costs: Costs | None = None
        self.metrics = RankMetrics(environment.rank, environment.spec.metrics.level)
        devices = [fact.device for fact in gang.facts]
        self.run_status = RunStatus(
            environment.job,
            environment.attempt,
            devices,
            environment.groups,
            shares_of(plan),
            plan.hash,
            "emulated" in devices,
            first=plan,
            owned=plan,
        )
        leads = environment.rank == 0
        self.job = (
            JobMetrics(self.metrics.registry, environment.ranks, environment.attempt, gang.backend) if leads else None
        )
        directory = environment.control_dir
        self.control = (
            ControlFile(directory, environment.ranks, self._refused) if leads and directory is not None else None
        )
        self.lease = Lease()
        self._loss: Tensor | None = None
        self._stop = threading.Event()
        self._server: StatusServer | None = None
        self._run: RunDirectory | None = None

    def start(self) -> None:
        """Begin to serve and to watch; raises ValueError when the metrics port is taken."""
        environment = self._environment
        if environment.status_port is not None:
            self._server = StatusServer(environment.status_port, self._status, self.metrics.text, self.lease.renew)
            self._server.start()
        if environment.rank == 0 and environment.workdir is not None:
            self._run = RunDirectory(environment.workdir, self._status)
        if self.control is not None:
            self.control.check()
            threading.Thread(target=self.control.watch, args=(self._stop,), daemon=True).start()

    def _status(self) -> str:
        return self.run_status.status().model_dump_json(by_alias=True)

    def _refused(self, error: ControlError) -> None:
        print(f"control document refused: {error}", flush=True)
        if self.job is not None:
            self.job.control_errors.labels(error.reason).inc()

    # -- what the training loop hands over ----------------------------------------------------------------

    def iteration(
        self, own: Report, previous: tuple[Report, ...] | None, loss: Tensor | None, samples: int, epoch: int
    ) -> None:
        """Take the end of one iteration; a loss is read one iteration later, so that no device is waited for."""
        self.metrics.iteration(own.seconds, self._work(own), time.time())
        if self.job is None:
            return
        self._advance(own.iteration, epoch, samples)
        self._take(previous)
        self._loss = loss.detach() if loss is not None else None
        self.job.samples.inc(samples)
        self.job.epoch.set(epoch)

    def _work(self, own: Report) -> float:
        """Return the work of an iteration: its products' time over that of a plain one with nothing taken.

        An evaluation in between computes with everything, whatever is pruned: it counts by its time.
        """
        if own.measured or not self._whole_seconds:
            self._whole_seconds = own.full
        return self._owned * own.seconds["matmul"] / self._whole_seconds if self._whole_seconds else 0.0

    def _advance(self, iteration: int, epoch: int, samples: int) -> None:
        """Show an iteration's number and the loss that was read then at once: others read them at any time."""
        news: dict[str, Any] = {"iteration": iteration, "epoch": epoch, "samples_per_iteration": samples}
        if self.control is not None:
            document = self.control.document
            news |= {"control_error": self.control.error, "control_generation": document.generation if document else 0}
        # from the first boundary on the iteration is true, also after a restore
        self.run_status.progress = replace(self.run_status.progress, state="running", loss=self._read_loss(), **news)

    def _read_loss(self) -> float | None:
        """Return the loss of the iteration before, the one known so far where there is none."""
        return float(self._loss) if self._loss is not None else self.run_status.progress.loss

    def _take(self, reports: tuple[Report, ...] | None) -> None:
        """Take all ranks' reports of the iteration before."""
        if reports is None or self.job is None:
            return
        self.run_status.take(reports)
        if self.run_status.progress.loss is not None:
            self.job.loss.labels("train").set(self.run_status.progress.loss)
        if reports[0].measured:
            self.job.stepped(sum(reports[0].seconds.values()), reports[0].iteration)
        if reports[0].iteration % self.run_status.window == 0:
            self.job.limit.set(self.run_status.status().limit_iteration_seconds or 0.0)
        if self._run is not None:
            progress = self.run_status.progress
            self._run.append(self.run_status.history_line(reports, progress.loss, progress.accuracy))

    def evaluated(self, loss: float, accuracy: float, epoch: int) -> None:
        """Take the result of an evaluation on the test set."""
        self.run_status.progress.accuracy, self.run_status.progress.epoch = accuracy, epoch
        if self.job is not None:
            self.job.loss.labels("eval").set(loss)
            self.job.accuracy.labels("eval").set(accuracy)

    def applied(self, document: ControlDocument, iteration: int) -> None:
        """Take the control document that is in force from this iteration on; who has just written it is there."""
        self.lease.renew()
        words = f"strategy {document.balancing.strategy}, {len(document.injections)} injections"
        print(f"control document {document.generation} in force from iteration {iteration} on: {words}", flush=True)
        self.run_status.progress.applied_generation = document.generation
        self.metrics.generation.set(document.generation)

    def moved(self, plan: UnitPlan, moved: CompletedMove) -> None:
        """Take a move of units: who owns what from the next iteration on, and what it took."""
        self._whole_seconds = 0.0
        self._owned = work_owned(plan, self._first, self._environment.rank, self._costs)
        self.run_status.moved(moved.seconds)
        if self.job is not None:
            self.job.moved(moved.seconds)
            words = f"{size_named(moved.nbytes)} in {seconds_named(moved.seconds)}"
            print(f"units moved: {words}; heads {plan.counts('heads')}, hidden units {plan.counts('ffn')}", flush=True)

    def balanced(self, plan: WorkPlan, costs: Costs, injecting: Injecting) -> None:
        """Take what holds from the next iteration on: the plan, and the injections."""
        self._costs = costs
        self.run_status.inject(injecting)
        self.metrics.injected(injecting.asked[self._environment.rank][0])
        if plan is self.run_status.work:
            return
        news = plan.reason != self.run_status.work.reason
        self.run_status.decided(plan, costs)
        mine = self.run_status.effect(self._environment.rank)
        self.metrics.balance(mine)
        if self.job is not None:
            self.job.decided(plan)
            if news:
                print(f"decision {plan.decision_id}: {plan.reason}", flush=True)

    def resumed(self, iteration: int, saved_seconds: float) -> None:
        """Take the iteration that a checkpoint gave, and what balancing had saved by then."""
        self.run_status.saved_seconds = saved_seconds
        self.run_status.progress.resumed_from = self.run_status.progress.iteration = iteration

    def not_saved(self, message: str) -> None:
        """Show that a checkpoint could not be written, until one can."""
        self.run_status.progress.message = message

    def saved(self, iteration: int, seconds: float) -> None:
        """Take the end of a checkpoint."""
        self.run_status.progress.message = ""
        if self.job is not None:
            self.job.checkpoint.set(seconds)
            print(f"checkpoint of iteration {iteration} written in {seconds:.2f} s", flush=True)

    def finish(self, last: tuple[Report, ...] | None, state: str) -> None:
        """Take the last reports, write the report, stop serving."""
        self.run_status.progress = replace(self.run_status.progress, loss=self._read_loss())
        self._take(last)
        self.run_status.progress.state = "succeeded" if state == "succeeded" else "stopping"
        self._close()
        path = self._environment.last_words
        if self.job is not None and path is not None:
            path.write_text(last_words(self.run_status.status()), encoding="utf-8")

    def failed(self, message: str) -> None:
        """Show the failure in status and report."""
        self.run_status.progress.state = "failed"
        self.run_status.progress.message = message
        self._close()

    def _close(self) -> None:
        self._stop.set()
        if self._run is not None:
            self._run.close(self.run_status.report())
            self._run = None
        if self._server is not None:
            self._server.stop()
            self._server = None
