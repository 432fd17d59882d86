"""What a rank shows: metrics, status, run directory. It decides nothing and reads no input.

Threads write; the training loop only hands over numbers.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from heterotp_api.control import ControlDocument
from heterotp_api.formatting import listed
from heterotp_api.names import JOURNAL_FILE
from heterotp_api.policy import BalancingSettings
from heterotp_api.run_journal import RunJournal
from heterotp_api.trainer_status import TrainerGang, TrainerStatus, for_a_poll
from torch import Tensor

from heterotp_trainer.balancing.explanations import NAMED, NOUNS, seconds_named, size_named
from heterotp_trainer.balancing.prediction import pruned_share
from heterotp_trainer.boundary.control_channel import ControlError
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.saved_time import SavedTime
from heterotp_trainer.boundary.stall import Stall
from heterotp_trainer.insight.timeline import MOST_ITERATIONS, Timeline
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.rendezvous import Gang
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.insight import by_stage
from heterotp_trainer.reporting.journal import case_of
from heterotp_trainer.reporting.log_line import log
from heterotp_trainer.reporting.loggers.entries import Note, Numbers, finite, of_history
from heterotp_trainer.reporting.loggers.opening import open_loggers
from heterotp_trainer.reporting.loggers.thread import Loggers
from heterotp_trainer.reporting.loss_reader import LossReader
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.reporting.run_directory import RunDirectory, last_words
from heterotp_trainer.reporting.run_status import RunStatus
from heterotp_trainer.resharding.resharder import CompletedMove

FEW_ITERATIONS = 100  # in the timeline of a rank that does not lead


def work_owned(plan: UnitPlan, first: UnitPlan, rank: int, costs: Costs | None) -> float:
    """Return the work of a rank's units over that of the units it had first; by the measured curves where known.

    The curves are used because work is counted in time: half of the work takes a device of half the speed as long. A
    rank that owned nothing at first is compared with an even share.
    """
    if not first.share(rank):
        return plan.share(rank) * plan.ranks
    now, then = (costs.owned_by(each).full_seconds(rank) if costs else each.share(rank) for each in (plan, first))
    return now / then if then else plan.share(rank) / first.share(rank)


class Reporter(NullReporter):
    """Shows one rank; status document, history and final report are rank 0's."""

    def __init__(
        self,
        environment: RankEnvironment,
        gang: Gang,
        saved: SavedTime,
        policy: BalancingSettings,
        iterations: int | None = None,
        idle_seconds: Callable[[], float | None] = lambda: None,
    ) -> None:
        """saved, policy, idle_seconds: see RunStatus. iterations: of the whole run."""
        self._environment = environment
        self._first_unit_plan, self._owned = saved.first_unit_plan, 1.0
        self._whole_seconds = 0.0  # of the products of the last measured iteration, with no work pruned or migrated
        self._costs: Costs | None = None
        self._moved: CompletedMove | None = None  # until the plan that asked for it is handed over
        self._ended = 0  # the newest iteration that has ended
        self.metrics = RankMetrics(environment.rank, environment.spec.metrics.level)
        devices, leads = [fact.device for fact in gang.facts], environment.rank == 0
        job = environment.job, environment.attempt
        timeline = Timeline([fact.boot for fact in gang.facts], MOST_ITERATIONS if leads else FEW_ITERATIONS)
        self.run_status = RunStatus(*job, devices, environment.groups, saved, policy, idle_seconds, timeline)
        self.run_status.update(total_iterations=iterations)
        world = environment.spec.process_count, environment.attempt
        self.job = JobMetrics(self.metrics.registry, *world, gang.backend) if leads else None
        self._losses = LossReader()
        self._run: RunDirectory | None = None
        self._regrouped = gang.membership is not None and gang.membership.generation.number > 0
        self._loggers = Loggers({})

    def start(self) -> None:
        """See NullReporter.start; raises InputError where a logger cannot be had."""
        self._loggers = open_loggers(self._environment)
        if self._environment.rank == 0 and self._environment.workdir is not None:
            if self._regrouped:  # another rank may have led before
                self.run_status.journal.go_on(RunJournal.read(self._environment.workdir / JOURNAL_FILE))
            self._run = RunDirectory(self._environment.workdir, self.status, self.run_status.journal)

    def regrouped(self, iteration: int, lost: Sequence[int], losses: Mapping[int, float]) -> None:
        """See NullReporter.regrouped."""
        self._ended = iteration
        self.run_status.update(iteration=iteration)
        if self._run is None:
            return
        ranks = len(self.run_status.devices)
        for iteration in sorted(losses):
            if iteration > self._run.newest_iteration():
                reports = (Report(iteration, measured=0),) * ranks
                self._append(reports, losses[iteration])

    def gang(self, gang: TrainerGang) -> None:
        """See NullReporter.gang."""
        self.run_status.update(gang=gang)
        if self.job is not None:
            self.job.gang(gang.live, gang.unprotected)

    def given_up(self) -> None:
        """See NullReporter.given_up."""
        self._loggers.close("running", wait=False)  # the other ranks wait for this one
        if self._run is not None:
            self._run.give_up()
            self._run = None

    def stalled(self, stall: Stall | None) -> None:
        """See NullReporter.stalled."""
        self.run_status.stalled(stall)

    def document(self) -> TrainerStatus:
        """Return the status document; called from any thread."""
        return for_a_poll(self.run_status.status())

    def status(self) -> str:
        """Return the status document as JSON; called from any thread."""
        return self.document().model_dump_json(by_alias=True)

    # -- what the training loop hands over ----------------------------------------------------------------

    def iteration(
        self,
        own: Report,
        previous: tuple[Report, ...] | None,
        loss: Tensor | None,
        samples: int,
        epoch: int,
        control_error: ControlError | None,
    ) -> None:
        """See NullReporter.iteration."""
        self._ended = own.iteration
        self.metrics.iteration(own.seconds, self._work(own), time.time())
        if self.job is None:
            self._measure(previous)
            return
        self.run_status.samples_per_iteration = samples
        loss_before = self._losses.take(loss)
        # other threads read the document at any time
        self.run_status.update(
            state="running",  # from the first boundary on the iteration is right, also after a restore
            iteration=own.iteration,
            epoch=epoch,
            loss=self._losses.newest(),
            control_generation=own.generation,
            control_error=str(control_error or ""),
            control_error_generation=control_error.generation if control_error is not None else None,
        )
        self._take(previous, loss_before)
        self.job.samples.inc(samples)
        self.job.epoch.set(epoch)

    @property
    def _over(self) -> bool:
        """Whether the last iteration of the whole run has ended, where their number is known."""
        return self._ended == self.run_status.progress.total_iterations

    @property
    def _coming(self) -> int:
        """The iteration in which what is decided now holds; after the last one that one."""
        return self._ended if self._over else self._ended + 1

    def _work(self, own: Report) -> float:
        """Return the work of an iteration: its matmul seconds over those of one with no work pruned or migrated.

        An evaluation computes with all columns, whatever is pruned: it counts by its time.
        """
        if own.measured or not self._whole_seconds:
            self._whole_seconds = own.full
        return self._owned * own.seconds["matmul"] / self._whole_seconds if self._whole_seconds else 0.0

    def _take(self, reports: tuple[Report, ...] | None, loss: float | None) -> None:
        """Show all ranks' reports of the iteration before, whose loss this is."""
        if reports is None or self.job is None:
            return
        self._measure(reports)
        if loss is not None:
            self.job.loss.labels("train").set(loss)
        if reports[0].measured:
            self.job.stepped(sum(reports[0].seconds.values()), reports[0].iteration)
        if self._window_ends(reports):
            self.job.limit.set(self.run_status.limit_seconds() or 0.0)
        self._append(reports, loss)

    def _append(self, reports: tuple[Report, ...], loss: float | None) -> None:
        """Add an iteration to the history, and hand it to the loggers."""
        if self._run is None and not self._loggers.active:
            return
        line = self.run_status.history_line(reports, loss)
        if self._run is not None:
            self._run.append(line)
        if self._loggers.active:
            self._loggers.add(of_history(line))

    def _tell(self, kind: str, text: str, now: float) -> None:
        """Print a line about the coming iteration, and hand it to the loggers; kind: see Note."""
        log(self._coming, text, now)
        self._loggers.add(Note(self._coming, now, kind, text))

    def _measure(self, reports: tuple[Report, ...] | None) -> None:
        """Add all ranks' reports of the iteration before to the window, and show how slow this rank is."""
        if reports is None:
            return
        self.run_status.take(reports)
        if self._window_ends(reports):
            rank = self._environment.rank
            self.metrics.slowdown(self.run_status.chi()[rank])
            if (found := self.run_status.insight.judge()) is not None:
                self.metrics.blamed(by_stage(found, rank))
            self.run_status.explain()
            self.metrics.causes(self.run_status.insight.causes_of(rank))

    def _window_ends(self, reports: tuple[Report, ...]) -> bool:
        """Return whether medians are computed: not at each iteration, for they take their time."""
        return reports[0].iteration % self.run_status.window.size == 0

    def skipped(self, updates: int) -> None:
        """See NullReporter.skipped."""
        self.run_status.update(skipped_updates=updates)

    def evaluated(
        self, loss: float, accuracy: float | None, epoch: int, perplexity: float | None = None, sample: str = ""
    ) -> None:
        """See NullReporter.evaluated."""
        self.run_status.update(test_loss=loss, accuracy=accuracy, epoch=epoch, perplexity=perplexity, sample=sample)
        if self.job is None:
            return
        shown = "" if accuracy is None else f", accuracy {accuracy:.4f}"
        shown += "" if perplexity is None else f", perplexity {perplexity:.2f}"
        log(self._ended, f"test loss {loss:.4f}{shown}")
        if sample:
            log(self._ended, f"sample: {sample!r}")  # with escapes in place of line breaks and control characters
        self.job.evaluated(loss, accuracy, perplexity)
        values = {"loss/test": loss, "accuracy/test": accuracy, "perplexity/test": perplexity}
        self._loggers.add(Numbers(self._ended, time.time(), finite(values)))

    def refused(self, error: ControlError) -> None:
        """See NullReporter.refused."""
        if self.job is not None:
            self.job.control_errors.labels(error.reason).inc()

    def applied(self, document: ControlDocument, iteration: int) -> None:
        """See NullReporter.applied."""
        words = f"strategy {document.balancing.strategy}, {len(document.injections)} injections"
        log(iteration, f"control document {document.generation} in force from iteration {iteration} on: {words}")
        self.run_status.update(applied_generation=document.generation)
        self.run_status.follow(document.balancing)
        self.metrics.generation.set(document.generation)

    def moved(self, plan: UnitPlan, moved: CompletedMove) -> None:
        """See NullReporter.moved."""
        self._whole_seconds = 0.0
        self._owned = work_owned(plan, self._first_unit_plan, self._environment.rank, self._costs)
        self.run_status.moved(moved.seconds)
        if self.job is None:
            return
        self.job.moved(moved.seconds)
        self._moved = moved
        words = f"{size_named(moved.nbytes)} in {seconds_named(moved.seconds)}"
        owned = [f"{noun} {plan.counts(family)}" for family, noun in NOUNS.items() if plan.total(family)]
        self._tell("moves", f"units moved: {words}; {', '.join(owned)}", time.time())

    def balanced(self, plan: WorkPlan, costs: Costs, injecting: Injecting) -> None:
        """See NullReporter.balanced.

        What would hold after the last iteration is left out, but for a decision whose units have moved already.
        """
        if self._over and self._moved is None:
            return
        self._costs = costs
        self.run_status.inject(injecting)
        self.metrics.injected(injecting.asked[self._environment.rank][0])
        now = time.time()
        if self.job is not None:
            self._log_injections(injecting, now)
        before = self.run_status.work
        if plan is before:
            return
        chi = self.run_status.chi() if self.job is not None and plan.explained_id != before.explained_id else None
        self.run_status.decided(plan, costs)
        self.metrics.balance(self.run_status.effect(self._environment.rank))
        if self.job is not None:
            self.job.decided(plan)
        if self._moved is not None:
            self.run_status.journal.moved(self._coming, plan.decision_id, self._moved, case_of(before, plan), now)
            self._moved = None
        if chi is not None:
            self._log_decision(before, plan, chi, now)

    def _log_decision(self, before: WorkPlan, plan: WorkPlan, chi: Sequence[float | None], now: float) -> None:
        """Keep and print a decision; chi: of each rank, when it was made."""
        status = self.run_status
        deleted = pruned_share(self._costs, plan.reductions_by_rank) if self._costs and plan.reductions else 0.0
        status.journal.decided(self._coming, before, plan, chi, status.effects, deleted, now)
        status.update(decision_iteration=self._coming, decision_at=now)
        self._tell("decisions", f"decision {plan.explained_id}: {plan.reason}", now)

    def _log_injections(self, injecting: Injecting, now: float) -> None:
        """Keep and print the slow-downs of ranks where they changed."""
        found = self.run_status.journal.injected(self._coming, injecting.asked, now)
        if found is not None:
            slowed = listed([f"rank {each.rank} {each.slowdown:g}x ({each.mode})" for each in found], NAMED)
            self._tell("injections", f"injections slow {slowed}" if found else "injections slow no rank", now)

    def resumed(self, iteration: int) -> None:
        """See NullReporter.resumed."""
        self._ended = iteration
        if self.job is not None:
            log(iteration, "checkpoint restored")
        self.run_status.update(resumed_from=iteration, iteration=iteration, message="")

    def not_saved(self, message: str) -> None:
        """See NullReporter.not_saved."""
        self.run_status.update(message=message)

    def storing(self, text: str) -> None:
        """See NullReporter.storing."""
        self.run_status.update(message=text)

    def saved(self, iteration: int, seconds: float) -> None:
        """See NullReporter.saved."""
        self.run_status.update(message="")
        if self.job is not None:
            self.job.checkpoint.set(seconds)
            log(iteration, f"checkpoint written in {seconds:.2f} s")

    def finish(self, last: tuple[Report, ...] | None, state: str) -> None:
        """See NullReporter.finish."""
        loss = self._losses.wait()
        self.run_status.update(loss=loss)
        self._take(last, loss)
        self.run_status.update(state="succeeded" if state == "succeeded" else "stopping")
        self._close()
        path = self._environment.last_words
        if self.job is not None and path is not None:
            path.write_text(last_words(self.run_status.status()), encoding="utf-8")

    def failed(self, message: str, *, stopped: bool = False) -> None:
        """See NullReporter.failed."""
        self.run_status.stalled(None)
        state = "stopping" if stopped else "failed"
        self.run_status.update(state=state, message=message, loss=self._losses.newest())
        self._close()

    def _close(self) -> None:
        self._loggers.close(self.run_status.progress.state)
        if self._run is not None:
            self._run.close(self.run_status.report())
            self._run = None
