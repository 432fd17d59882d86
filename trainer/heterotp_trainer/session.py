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

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from heterotp_api.elastic import elastic_problem
from heterotp_api.names import Env
from heterotp_api.policy import BalancingSettings
from torch import Tensor, nn
from torch.utils.data import DataLoader

from heterotp_trainer.boundary.agreement import COMPARE_EVERY, shape_of
from heterotp_trainer.boundary.control_channel import ControlError
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.finite_guard import OnNonFinite
from heterotp_trainer.boundary.loss import scalar_loss
from heterotp_trainer.checkpoint.kept import Kept, Stateful
from heterotp_trainer.devices.device import clock_of, open_device
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.admission import alone
from heterotp_trainer.launch.environment import RankEnvironment, read_environment
from heterotp_trainer.launch.rendezvous import agree, leave, meet
from heterotp_trainer.model.checks import SEED
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.reporting.log_line import log
from heterotp_trainer.reporting.loggers.opening import refusal
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.session_parts.admission import Entrance
from heterotp_trainer.session_parts.ending import check_trained
from heterotp_trainer.session_parts.parts import Member, make_context, make_parts
from heterotp_trainer.session_parts.regrouping import Regrouping
from heterotp_trainer.session_parts.roster import Roster
from heterotp_trainer.session_parts.stopping import Requests
from heterotp_trainer.tensor_parallel.context import TPContext, refuse_other_contexts
from heterotp_trainer.watched import Watched

PROBED_PRODUCT = (1024, 256, 256)
State = Literal["succeeded", "stopped"]
Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Directive:
    """What all ranks do after a boundary, the same on each."""

    stop: bool = False
    evaluate: bool = False


class Session(Regrouping):
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
        if telemetry:
            complaint = complaint or refusal(environment)
        self._as_launched = environment
        self.came_back = bool(environment.comeback)  # this rank was lost, and joins a gang that runs
        if self.came_back:
            self.gang, self.environment = alone(environment, self.device, complaint)
        else:
            self.gang = meet(environment, self.device, complaint)
        self.clock = clock_of(self.device)
        self.reporter = NullReporter()
        self.ended: State | None = None  # the state given to `finish`
        self.where = Whereabouts()
        self._kept = Kept()
        self._stop_requested = False
        self._begun = False  # whether a boundary was reached
        self._iteration = 0
        self._tp: TPContext | None = None
        self._watched: Watched | None = None
        self._member = Member(self.environment, self.gang, self.device, self.clock, self.where)
        shown = telemetry and not self.came_back
        self._parts = make_parts(self._member, lambda: self.reporter, self._refused, shown=shown)
        self.control, self._injector = self._parts.control, self._parts.injector
        signal.signal(signal.SIGTERM, self._request_stop)
        self._parts.ending.begin()
        self._telemetry_shown = telemetry
        self._agreed_stop = False  # all ranks know that they stop
        self._admitting = False  # a rank that came back is being let in
        self.last_evaluated = 0  # the iteration whose model was evaluated last
        self._entrance = Entrance()
        self._requests = Requests()
        self._roster = Roster(environment.spec.process_count)

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
        if self._tp is None:
            self._tp = make_context(self._member, DTYPES[self.precision], probe)
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
        watched.refuse_unlike_replicas()
        self._show()

    def _show(self) -> None:
        """Begin to report, and to read control documents."""
        watched = self.watched
        self.reporter = self._parts.telemetry.reporter(watched)
        self._parts.telemetry.serve(self.reporter)
        self.reporter.start()
        self.control.start(self._policy_problem)

    def _policy_problem(self, settings: BalancingSettings) -> str | None:
        """Return what this job cannot do of a policy, as `field: value: what would be right`; None: nothing."""
        if self.gang.membership is not None and (wrong := elastic_problem(settings)) is not None:
            return wrong
        return self.watched.balancer.assigner.problem(settings)

    def _evaluates(self, module: nn.Module, arguments: object) -> None:
        if not module.training:
            self._parts.heartbeat.progress()

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
        self._parts.statistics.leave_out()
        self.last_evaluated = self._iteration
        self.reporter.evaluated(loss, accuracy, epoch, perplexity, sample)

    def keep_best(self) -> None:
        """Keep the model of the last boundary as the best so far, in the folder `best` of the checkpoints (all ranks).

        It replaces the one before; checkpoints that are removed later do not touch it. Where it cannot be written, the
        log and the status say so and training goes on.
        """
        self._parts.checkpoints.save_or_go_on(self.watched, self._iteration, best=True)

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
        self._check_follows(iteration)
        loss = scalar_loss(loss, "session.boundary")
        if not self._begun:
            self._first_boundary()
        watched, parts = self.watched, self._parts
        if watched.draws is not None:
            watched.draws.iteration_ended(iteration)
        self._iteration, parts.telemetry.status.running, watched.stepped = iteration, True, False
        report = self._report(iteration, loss, evaluate)
        before = self.clock.switch("control")
        previous = parts.reports.exchange(report)
        watched.saved_time.take(previous or ())
        self.reporter.iteration(report, previous, loss, samples, epoch, self.control.error)
        action = parts.in_force.boundary(watched, previous, iteration, epoch)
        self._agreed_stop = action.stop
        self._hear(previous or ())
        watched.reprotect()
        if iteration % COMPARE_EVERY == 0:
            watched.compare_replicas(iteration)
        if action.checkpoint or action.stop or parts.checkpoints.keeper.falls_on(iteration):
            parts.checkpoints.save_or_go_on(watched, iteration)  # last: with columns and shares of the coming iteration
        parts.heartbeat.iteration_ended()
        watched.iteration_ended()
        parts.tracing.boundary(iteration)
        if action.leave is not None and not action.stop:
            self._let_go(action.leave)
        if action.admit and not action.stop and iteration != watched.iterations:
            self._let_in()
        self.clock.switch(before)
        return Directive(action.stop, action.evaluate)

    def _check_follows(self, iteration: int) -> None:
        """Raise InputError where the iteration does not follow the last one, or made no step."""
        if iteration != self._iteration + 1:
            raise InputError(
                f"session.boundary({iteration}): the iteration before was {self._iteration}, so this one is "
                f"{self._iteration + 1}: count every iteration by one, from the number that session.restore() returned"
            )
        if not self.watched.stepped:
            raise InputError(
                "session.boundary: the optimizer made no step in this iteration: call session.step() before it"
            )

    def _report(self, iteration: int, loss: Tensor | None, evaluate: bool) -> Report:
        """Return what this rank tells the others at this boundary."""
        return self._parts.reports.make(
            self.watched,
            iteration,
            loss,
            self.clock,
            self.device,
            stop=self._requests.answer == "Stop" if self._is_elastic else self._stop_requested,
            evaluate=evaluate,
            admit=self._entrance.waiting,
            asked=self._is_elastic and self._stop_requested,
            leave=self._requests.answer == "Leave",
        )

    def _first_boundary(self) -> None:
        """Raise InputError where the loop began without what it needed."""
        self._begun = True
        self._parts.checkpoints.keeper.check_begun(self.watched.contents)
        if self.watched.draws is not None:
            draws = self.watched.draws
            self.agree(SEED, draws.first_state if draws.on_whole else "")

    def _refused(self, error: ControlError) -> None:
        log(self._iteration, f"control document refused: {error}")
        self.reporter.refused(error)

    def save(self) -> None:
        """Write a checkpoint of the iteration that just ended (all ranks); only rank 0 writes.

        Raises CheckpointError when it cannot be written, MismatchError where replicated tensors differ: it holds rank
        0's, so that a run that continues from it would hide the difference.
        """
        self._parts.checkpoints.save(self.watched, self._iteration)

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
        if self.came_back:
            self._come_in()
            return self._iteration
        self._iteration = self._parts.checkpoints.restore(self.watched, self.control.newest_policy())
        membership = self.gang.membership
        if membership is not None:
            self.watched.protect(self._iteration, membership.guard, membership.nodes)
            self._gang_changed()
        return self._iteration

    def _request_stop(self, number: int, frame: object) -> None:
        self._stop_requested = True

    def finish(self, *, state: State = "succeeded") -> None:
        """Write the last checkpoint, status and report, and leave the gang (all ranks); see run_rank.

        Raises InputError where the script trained and ended no iteration by `boundary`, MismatchError
        where ranks disagree. A run that continues at its end, so that no iteration is left, ends well.
        """
        check_trained(self.watched, self._iteration, self._parts.statistics.started)
        last = self._parts.reports.last(self.watched, self._iteration)
        self.save()
        self.watched.saved_time.take(last)
        self.reporter.finish(last or None, state)
        self._parts.tracing.close(self._iteration)
        self._parts.ending.stop_threads()
        self._entrance.close(ended=True)
        with self.where.waiting("the end of all ranks"):
            leave(self.gang)
        for holder in (self.tp, self.control, self._parts.reports, self._parts.checkpoints):
            holder.close()
        self.ended = state
        self._parts.ending.expect()

    def fail(self, message: str, *, stopped: bool = False) -> None:
        """Show a failure, or a stop by force; nothing is exchanged, because peers may be gone."""
        self._entrance.close()  # the others may go on
        self._parts.ending.fail(message, stopped=stopped)

    def agree(self, what: str, value: str | Sequence[str]) -> None:
        """Raise InputError naming the ranks whose value differs from rank 0's (all ranks).

        Of a sequence, the first item that differs is told, too.
        """
        agree(self.gang, what, value)
