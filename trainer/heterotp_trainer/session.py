"""The library's front door: one rank of a HeteroTP job, from rendezvous to the last boundary.

def main(session):
    tp = session.shard()                                              # this rank's view of its group
    model = Model(tp)                                                 # its layers decide which rank owns which units
    optimizer = AdamW(model.parameters())
    session.watch(model, optimizer)
    session.keep("schedule", schedule)                                # further states for checkpoints
    iteration = session.restore()                                     # 0, or the checkpoint's iteration
    while iteration < total:
        ...forward, backward...
        session.step()                                                # optimizer.step()
        iteration += 1
        directive = session.boundary(iteration, loss=loss, samples=64)
        if directive.stop:
            return session.finish(state="stopped")
    session.finish()

run_rank(main)                                                        # see run_rank.py for the exit codes
"""

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_STOPPED, Env
from torch import Tensor, nn
from torch.utils.data import DataLoader

from heterotp_trainer.boundary.agreement import COMPARE_EVERY, USUAL_CAUSES, shape_of
from heterotp_trainer.boundary.control_channel import ControlChannel, ControlError
from heterotp_trainer.boundary.exchange import (
    BoundaryExchange,
    GangAction,
    MismatchError,
    Report,
    flags_of,
    hash_number,
    merge_reports,
)
from heterotp_trainer.boundary.finite_guard import OnNonFinite
from heterotp_trainer.boundary.heartbeat import Heartbeat
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.iteration_context import IterationContext
from heterotp_trainer.boundary.iteration_report import IterationStatistics, iteration_report
from heterotp_trainer.boundary.loss import scalar_loss
from heterotp_trainer.boundary.stall import Stall
from heterotp_trainer.checkpoint.errors import NotFiniteError, WriteError
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.checkpoint.kept import Kept, Stateful
from heterotp_trainer.devices.device import clock_of, open_device, settled
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.door import key_of
from heterotp_trainer.launch.environment import RankEnvironment, read_environment
from heterotp_trainer.launch.rendezvous import Gang, agree, leave, meet
from heterotp_trainer.model.checks import SEED
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.rebalancing.speed_probe import initial_speeds
from heterotp_trainer.reporting.control_status import ControlStatus
from heterotp_trainer.reporting.http_server import StatusServer
from heterotp_trainer.reporting.log_line import log
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.reporting.reporter import Reporter
from heterotp_trainer.tensor_parallel.context import TPContext, refuse_other_contexts
from heterotp_trainer.tensor_parallel.unit_spec import owned_parts
from heterotp_trainer.watched import Watched

PROBED_PRODUCT = (1024, 256, 256)
UNFINISHED = "the script returned without session.finish(): the last checkpoint and the report are missing"
State = Literal["succeeded", "stopped"]
Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Directive:
    """What all ranks do after a boundary, the same on each."""

    stop: bool = False
    evaluate: bool = False


class Session:
    """One rank of a job. All ranks must call a method marked "(all ranks)", in the same order.

    telemetry=False shows nothing: no metrics, status, history or final report. Times are still measured (a few tens of
    clock readings an iteration), and a configured status port still answers an operator's polls, which renew the lease
    of injections: policies and injections act as with telemetry. precision: of the sharded layers' products and sums;
    None: as spec.training has it, else fp32. Layers take any floating input and return this precision; weights and the
    optimizer stay in fp32. Blocks may be recomputed in the backward pass by
    `torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`, on all ranks. To accumulate gradients, call
    backward for each micro-batch, its loss divided by their number, then `step` and `boundary` once.

    A process that ends without `finish`, and without an error, prints so and ends with exit code 2.
    """

    def __init__(
        self, environment: RankEnvironment, *, telemetry: bool = True, precision: Precision | None = None
    ) -> None:
        self.environment = environment
        training, rank = environment.spec.training, environment.rank
        self.precision: Precision = precision or (training.precision if training else "fp32")
        self.device, complaint = open_device(environment.device, environment.local_rank, self.precision, rank)
        self.gang: Gang = meet(environment, self.device, complaint)
        self.clock = clock_of(self.device)
        self.reporter = NullReporter()
        self.ended: State | None = None  # the state given to `finish`
        self._failed, self._process = False, os.getpid()
        directory = environment.control_dir if rank == 0 else None
        self.where = Whereabouts()
        deadline = environment.spec.run_policy.progress_deadline_seconds
        self._heartbeat = Heartbeat(
            self.gang.heartbeats,
            rank,
            environment.ranks,
            self.where,
            self.clock,
            self._end_at_once,
            self._show_stall,
            deadline,
        )
        self.control = ControlChannel(
            directory, environment.ranks, self.gang.control_group, self._refused, key_of(environment)
        )
        self._exchange = BoundaryExchange(self.gang.exchange_group, environment.ranks)
        self._checkpoints = CheckpointKeeper(environment, self.gang.control_group, show=self._show_storage)
        self._kept = Kept()
        self._injector = Injector(self.device, rank, environment.ranks)
        self._statistics = IterationStatistics()
        self._telemetry = telemetry
        self._status = ControlStatus(environment.job, environment.attempt, self.control)
        self._server: StatusServer | None = None
        self._stop_requested = False
        self._begun = False  # whether a boundary was reached
        self._iteration = 0
        self._compared = -1  # the iteration whose replicas were compared last
        self._tp: TPContext | None = None
        self._watched: Watched | None = None
        signal.signal(signal.SIGTERM, self._request_stop)
        self._heartbeat.follow_signals()
        self._heartbeat.start()
        atexit.register(self._end_unfinished)

    @classmethod
    def from_environment(cls, *, telemetry: bool = True, precision: Precision | None = None) -> "Session":
        """Join the gang that the environment describes (torchrun's variables, and HETEROTP_* where set)."""
        return cls(read_environment(os.environ), telemetry=telemetry, precision=precision)

    @property
    def tp(self) -> TPContext:
        """This rank's view of its tensor-parallel group; raises InputError before `shard`."""
        if self._tp is None:
            raise InputError("session: call session.shard() first")
        return self._tp

    @property
    def watched(self) -> Watched:
        """Model, optimizer and balancer; raises InputError before `watch`."""
        if self._watched is None:
            raise InputError("session: call session.watch(model, optimizer) first")
        return self._watched

    @property
    def balancer(self) -> Balancer:
        """This rank's balancer; raises InputError before `watch`."""
        return self.watched.balancer

    # -- which rank owns which units ----------------------------------------------------------------------

    def shard(self, *, probe: tuple[int, int, int] = PROBED_PRODUCT) -> TPContext:
        """Return this rank's view of its group, for its layers to be made with (all ranks).

        The first layer of each kind decides which rank owns which units, by the ranks' speeds. probe: (m, k, n) of the
        product [m, k] x [k, n] that shows them where spec.initialShares is `measured`; best a product of the model.
        A further call returns the same view, because names of layers and shares of units are kept in it.
        """
        if self._tp is not None:
            return self._tp
        rank, ranks, dtype = self.environment.rank, self.environment.ranks, DTYPES[self.precision]
        group, control = self.gang.tp_group if ranks > 1 else None, self.gang.control_group
        speeds = tuple(initial_speeds(self.environment, self.device, control, probe, dtype) or ())
        plan = UnitPlan.empty(ranks)
        timeout = self.environment.spec.collective_timeout_seconds
        self._tp = TPContext(
            group, rank, ranks, self.device, self.clock, plan, dtype, speeds, control, self.where, timeout
        )
        return self._tp

    def watch(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        iterations: int | None = None,
        on_non_finite: OnNonFinite = "Stop",
    ) -> None:
        """Take model and optimizer into checkpoints and checksums, read control documents, and start to report.

        iterations: of the whole run, for the time left; None where it is unknown. on_non_finite: see `step`. Raises
        InputError for a second call, for replicas that differ, for layers that were made with another context than that
        of `shard`, for an optimizer with parameters that are not in the model, for one whose update is not element-wise
        (LBFGS, Muon, Adafactor, LAMB, LARS and other known ones by name; others after the first step, by the shape of
        their state), or when the port of the status server is taken.
        """
        if Env.CHECK_MODEL in os.environ:
            raise InputError("check-model: session.watch before heterotp.parallelize: no model is there to check")
        if self._watched is not None:
            raise InputError("session.watch: a model is watched already: put all trained modules into one nn.Module")
        refuse_other_contexts(model, self.tp)
        self.agree("the model", shape_of(model))
        environment = self.environment
        self._watched = watched = Watched(
            model,
            optimizer,
            self.tp,
            self._kept,
            environment.workdir if environment.rank == 0 else None,
            unlike=self.gang.unlike,
            late=self.gang.late,
            on_non_finite=on_non_finite,
            iterations=iterations,
        )
        model.register_forward_pre_hook(self._evaluates)
        if differing := watched.differing_replicas():
            advice = (
                "make them alike: torch.manual_seed(...) with the same number on all ranks before the model is made"
            )
            raise InputError(f"session.watch: replicated tensors differ: {differing}: {advice}")
        status, metrics = self._status.text, None
        if self._telemetry:
            self.reporter = reporter = Reporter(
                environment,
                self.gang,
                watched.saved_time,
                self.balancer.policy,
                iterations,
                self._heartbeat.idle_seconds,
            )
            status, metrics = reporter.status, reporter.metrics.text
        if environment.status_port is not None:
            self._server = StatusServer(environment.status_port, status, metrics, self.control.lease.polled)
            self._server.start()
        self.reporter.start()
        self.control.start(self.watched.balancer.assigner.problem)

    def _evaluates(self, module: nn.Module, arguments: object) -> None:
        if not module.training:
            self._heartbeat.progress()

    def batch(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors on this rank's device, after adding them to what must be equal on all ranks.

        What enters the model is compared in any case; this also covers labels and anything else that does not.
        """
        self.watched.batch_hash.add(tensors)
        return tuple(tensor.to(self.device.torch_device) for tensor in tensors)

    def step(self, gradient_clip: float | None = None, *, loss: Tensor | float | None = None) -> bool:
        """Average replicated gradients where devices are unlike, clip, and step the optimizer (all ranks).

        gradient_clip: bound of the norm of all gradients, in which units count once. loss: a scalar that must be
        finite, as the gradients must. Returns False where they are not and the update was left out (onNonFinite:
        Skip), and the model's buffers are as at the boundary before; raises NonFiniteError under Stop, MismatchError
        where gradients that are averaged are not alike.
        """
        watched = self.watched
        updated = watched.update(self._iteration + 1, gradient_clip, scalar_loss(loss, "session.step"))
        if not updated:
            if self.environment.rank == 0:
                log(self._iteration + 1, "not finite, the update is left out")
            self.reporter.skipped(watched.guard.skipped)
        return updated

    def evaluated(
        self,
        loss: float,
        accuracy: float | None = None,
        *,
        epoch: int,
        perplexity: float | None = None,
        sample: str = "",
    ) -> None:
        """Show an evaluation on the test set after `epoch` epochs (accuracy 0..1; None where the task has none).

        perplexity, sample: of a language model, and text that it wrote. The iteration that contains it enters no
        statistic.
        """
        self._statistics.leave_out()
        self.reporter.evaluated(loss, accuracy, epoch, perplexity, sample)

    def keep_best(self) -> None:
        """Keep the model of the last boundary as the best so far, in the folder `best` of the checkpoints (all ranks).

        It replaces the one before; checkpoints that are removed later do not touch it. Where it cannot be written, the
        log and the status say so and training goes on.
        """
        self._save_or_go_on(best=True)

    # -- the boundary -------------------------------------------------------------------------------------

    def boundary(
        self,
        iteration: int,
        *,
        loss: Tensor | float | None = None,
        samples: int = 0,
        epoch: int = 0,
        evaluate: bool = False,
    ) -> Directive:
        """End iteration `iteration` (counted from 1): exchange reports, and do what they ask for (all ranks).

        evaluate: rank 0 asks for an evaluation; the next boundary's directive asks all ranks for it. A loop in which
        all ranks evaluate at the same iteration needs none. Raises MismatchError where ranks disagree; InputError
        before `watch`, without a `step`, for a number that does not follow the last one, and at the first boundary
        where a checkpoint is there that `restore` did not read, or a scheduler of the optimizer is not kept.
        """
        if iteration != self._iteration + 1:
            raise InputError(
                f"session.boundary({iteration}): the iteration before was {self._iteration}, so this one is "
                f"{self._iteration + 1}: count every iteration by one, from the number that session.restore() returned"
            )
        if not self.watched.stepped:
            raise InputError(
                "session.boundary: the optimizer made no step in this iteration: call session.step() before it"
            )
        loss = scalar_loss(loss, "session.boundary")
        if not self._begun:
            self._first_boundary()
        if self.watched.draws is not None:
            self.watched.draws.iteration_ended(iteration)
        self._iteration, self._status.running, self.watched.stepped = iteration, True, False
        report = self._report(iteration, evaluate)
        before = self.clock.switch("control")
        with self.where.waiting("the reports of all ranks"):
            previous = self._exchange.collect()
        self._exchange.post(report)
        self.watched.saved_time.take(previous or ())
        self.reporter.iteration(report, previous, loss, samples, epoch, self.control.error)
        action = self._act_on(previous) if previous is not None else GangAction()
        self._balance(previous, epoch)
        if iteration % COMPARE_EVERY == 0:
            self._compare_replicas()
        if action.checkpoint or action.stop or self._checkpoints.falls_on(iteration):
            self._save_or_go_on()  # last: with the columns and shares of the coming iteration
        self._heartbeat.iteration_ended()
        self.watched.iteration_ended()
        self.clock.switch(before)
        return Directive(action.stop, action.evaluate)

    def _first_boundary(self) -> None:
        """Raise InputError where the loop began without what it needed."""
        self._begun = True
        self._checkpoints.check_begun(self.watched.contents)
        if self.watched.draws is not None:
            draws = self.watched.draws
            self.agree(SEED, draws.first_state if draws.on_whole else "")

    def _report(self, iteration: int, evaluate: bool) -> Report:
        balancer, leads = self.balancer, self.environment.rank == 0
        spent, unslowed = settled(self.clock, self.device), self._injector.unslowed()
        context = IterationContext(False, balancer.plan.decision_id, balancer.full_work_factor, unslowed)
        ran = self._statistics.end(iteration, self.clock.age, context)
        flags = flags_of(
            stop=self._stop_requested,
            checkpoint=leads and self._checkpoints.is_due(),
            evaluate=leads and evaluate,
            lease_over=leads and self.control.lease_is_over(),
        )
        plan = hash_number(self.tp.unit_plan.hash) ^ hash_number(balancer.plan.hash)
        return iteration_report(
            iteration=iteration,
            flags=flags,
            spent=spent,
            owned=owned_parts(self.watched.parameters.values()),
            ran=ran,
            control=self.control,
            ready=balancer.resharder.ready,
            pace_ratio=balancer.pace_probe.pace_ratio,
            plan=plan,
            batch=self.watched.batch_hash.take(),
        )

    def _compare_replicas(self) -> None:
        """Raise MismatchError where replicated tensors differ, with the usual causes (all ranks)."""
        if self._compared == self._iteration:
            return
        self._compared = self._iteration
        with self.where.waiting("the comparison of replicas"):
            differing = self.watched.differing_replicas()
        if differing:
            found = f"iteration {self._iteration}: replicated tensors differ: {differing}"
            raise MismatchError(f"{found}: {USUAL_CAUSES}")

    def _act_on(self, previous: tuple[Report, ...]) -> GangAction:
        action = merge_reports(previous)
        self._injector.lapsed = action.lease_over
        if action.document_bytes:
            self._apply_document(action.document_bytes)
        return action

    def _save_or_go_on(self, *, best: bool = False) -> None:
        """Write a checkpoint, and keep it as the best; where it cannot be written, say so and go on."""
        try:
            self.save()
            if best:
                self._checkpoints.keep_best(self._iteration)
        except WriteError as error:  # on all ranks; the last checkpoint, in `finish`, must succeed
            said = isinstance(error, NotFiniteError) and error.again
            if self.environment.rank == 0 and not said:
                log(self._iteration, f"{error}; training goes on")
            self._statistics.leave_out()
            self.reporter.not_saved(str(error))

    def _balance(self, previous: tuple[Report, ...] | None, epoch: int) -> None:
        """Set the columns and slow-downs of the coming iteration, the same plan on all ranks."""
        balancer = self.balancer
        seconds = sum(previous[0].seconds.values()) if previous is not None else 0.0
        self._injector.boundary(self._iteration + 1, epoch, seconds)
        if self.tp.ranks > 1 and balancer.boundary(previous, self._iteration, epoch):
            self._statistics.leave_out()
        self.watched.saved_time.decided(balancer.plan, balancer.costs)
        if balancer.moved is not None:
            self.reporter.moved(self.tp.unit_plan, balancer.moved)
        self.reporter.balanced(balancer.plan, balancer.costs, self._injector.now)

    def _apply_document(self, length: int) -> None:
        """Receive the announced document of `length` bytes; it holds from the next iteration on (all ranks)."""
        document = self.control.receive(length)
        self.balancer.apply(document.balancing)
        self._injector.injections = document.injections
        self.reporter.applied(document, self._iteration + 1)

    def _refused(self, error: ControlError) -> None:
        log(self._iteration, f"control document refused: {error}")
        self.reporter.refused(error)

    def save(self) -> None:
        """Write a checkpoint of the iteration that just ended (all ranks); only rank 0 writes.

        Raises CheckpointError when it cannot be written, MismatchError where replicated tensors differ: it holds rank
        0's, so that a run that continues from it would hide the difference.
        """
        watched = self.watched
        self._compare_replicas()
        facts = {"injections": self._injector.state(), **watched.state()}
        with self.where.busy("a checkpoint"):
            seconds = self._checkpoints.save(self._iteration, watched.contents, self.tp, facts)
        if seconds is not None:
            self._statistics.leave_out()
            self.reporter.saved(self._iteration, seconds)

    def _show_storage(self, text: str) -> None:
        self.where.reason = text
        self.reporter.storing(text)

    def keep(self, name: str, thing: Stateful | torch.Generator | DataLoader[Any]) -> None:
        """Save and restore an object with every checkpoint: a scheduler, a sampler, a DataLoader.

        thing: has state_dict() and load_state_dict(state), or is a torch.Generator, or a DataLoader in torch's own
        order, whose first epoch after `restore` has the samples that are left. Call it on all ranks before `restore`,
        and change the object (scheduler.step()) before `boundary`, which may write a checkpoint. Its state is numbers,
        strings, None, tensors, and lists, tuples and dicts of them; other values raise ValueError at `restore`. Raises
        ValueError for a name that is taken and for an object that holds units of this rank.
        """
        self._kept.add(name, thing)

    def restore(self) -> int:
        """Continue from the newest whole checkpoint (all ranks); return its iteration, else 0.

        It fills model, buffers, optimizer and what `keep` named, and continues random generators; on another number of
        ranks all continue with rank 0's. Raises InputError where the checkpoint is of another model, holds a name that
        is not kept, or lacks one that is.
        """
        watched, policy = self.watched, self.control.newest_policy()

        def prepare(facts: dict[str, Any]) -> None:
            if "balancing" in facts:
                watched.balancer.prepare(facts["balancing"], policy)

        with self.where.busy("the checkpoint is read"):
            iteration, kept = self._checkpoints.restore(watched.contents, self.tp, prepare)
        self._heartbeat.progress()
        watched.resume(kept)
        self._iteration = self._statistics.started = self.where.iteration = iteration
        self._injector.resume(kept.get("injections", {}))
        if iteration:
            self.reporter.resumed(iteration)
        return iteration

    def _request_stop(self, number: int, frame: object) -> None:
        self._stop_requested = True

    def _show_stall(self, stall: Stall | None) -> None:
        self.reporter.stalled(stall)

    def _end_at_once(self, message: str, code: int) -> None:
        """End this process at once: its training loop hangs in another thread, or is over."""
        print(f"error: {message}", file=sys.stderr, flush=True)
        try:
            self.fail(message, stopped=code == EXIT_STOPPED)
            sys.stdout.flush()
        finally:
            os._exit(code)

    def finish(self, *, state: State = "succeeded") -> None:
        """Write the last checkpoint, status and report, and leave the gang (all ranks); see run_rank.

        Raises InputError where the script trained and ended no iteration by `boundary`, MismatchError
        where ranks disagree. A run that continues at its end, so that no iteration is left, ends well.
        """
        self._check_trained()
        last = self._last_reports()
        self.save()
        self.watched.saved_time.take(last)
        self.reporter.finish(last or None, state)
        self._stop_threads()
        with self.where.waiting("the end of all ranks"):
            leave(self.gang)
        for holder in (self.tp, self.control, self._exchange, self._checkpoints):
            holder.close()
        self.ended = state
        atexit.unregister(self._end_unfinished)

    def _check_trained(self) -> None:
        """Raise InputError where this attempt made updates, or had some to make, and ended no iteration."""
        continued, watched = self._statistics.started, self.watched
        nothing_to_do = bool(continued) or watched.iterations == 0
        if self._iteration == continued and (watched.stepped or not nothing_to_do):
            raise InputError("session.finish: no iteration has ended: call session.boundary(iteration) after each one")

    def _end_unfinished(self) -> None:
        """When Python ends: end with exit code 2 where the script forgot `finish`.

        Not in a forked child, nor after an error, which has its own exit code; last_value: Python's uncaught one.
        """
        forked, error = os.getpid() != self._process, getattr(sys, "last_value", None)
        if self.ended is None and not self._failed and not forked and error is None:
            self._end_at_once(UNFINISHED, EXIT_BAD_INPUT)

    def _last_reports(self) -> tuple[Report, ...]:
        """Return the reports of the last boundary, compared as those before; none where there was none (all ranks)."""
        with self.where.waiting("the reports of all ranks"):
            last = self._exchange.collect()
            if last is None:
                return ()
            merge_reports(last)
            if self.watched.batch_hash.late:  # what entered in the last iteration is not in its report
                batch = self.watched.batch_hash.take()
                self._exchange.post(
                    Report(self._iteration, batch=batch.hash, batch_norm=batch.norm, batch_signed=batch.signed)
                )
                merge_reports(self._exchange.collect() or ())
        return last

    def fail(self, message: str, *, stopped: bool = False) -> None:
        """Show a failure, or a stop by force; nothing is exchanged, because peers may be gone."""
        self._failed = True
        atexit.unregister(self._end_unfinished)
        self._heartbeat.give_way()  # a peer that ends by force looks lost to the training loop
        self.reporter.failed(message, stopped=stopped)
        self._stop_threads()

    def _stop_threads(self) -> None:
        self._heartbeat.stop()
        self.control.stop()
        if self._server is not None:
            self._server.stop()
            self._server = None

    def agree(self, what: str, value: str | Sequence[str]) -> None:
        """Raise InputError naming the ranks whose value differs from rank 0's (all ranks).

        Of a sequence, the first item that differs is told, too.
        """
        agree(self.gang, what, value)
