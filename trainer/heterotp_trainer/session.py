"""The library's front door: one rank of a HeteroTP job, from rendezvous to the last boundary.

def main(session):
    tp = session.shard(heads=16, ffn=512, width=128, rows=64 * 17)   # who owns which units
    model = Model(tp); optimizer = AdamW(model.parameters())
    session.watch(model, optimizer)
    iteration = session.restore()                                     # 0, or where the checkpoint ended
    while iteration < total:
        ...forward, backward...
        session.step()                                                # optimizer.step()
        iteration += 1
        directive = session.boundary(iteration, loss=loss, samples=64)
        if directive.stop:
            return session.finish(state="stopped")
    session.finish()

run_rank(main)                                                        # and the exit codes that say how it ended
"""

import os
import signal
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from heterotp_api.control import ControlDocument
from torch import Tensor, nn

from heterotp_trainer.boundary.control_channel import parse_document
from heterotp_trainer.boundary.exchange import (
    CHECKPOINT,
    EVALUATE,
    LEASE_OVER,
    STOP,
    BoundaryExchange,
    Report,
    checksum,
    decide,
    hash_number,
)
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.iteration_context import IterationContext, RecentContexts
from heterotp_trainer.checkpoint.files import WriteError
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.devices.device import Device, check_precision, resolve_device, settled
from heterotp_trainer.devices.phase_clock import ATTENTION, Clock, CudaPhaseClock, NullClock, PhaseClock, phase
from heterotp_trainer.launch.environment import RankEnvironment, read_environment
from heterotp_trainer.launch.rendezvous import Gang, leave, meet
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.rebalancing.speed_probe import probe_speed, quantized
from heterotp_trainer.reporting.reporter import Reporter
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import average_replicas, clip_gradients
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

WARM_UP_ITERATIONS = 2  # left out of every statistic
CHECKSUM_EVERY = 100
State = Literal["succeeded", "stopped"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Directive:
    """What the gang decided at a boundary."""

    stop: bool = False
    evaluate: bool = False


class Session:
    """One rank of a job. Every method that says "all ranks" must be called by all of them in the same order."""

    def __init__(self, environment: RankEnvironment, *, telemetry: bool = True) -> None:
        self.environment = environment
        training = environment.spec.training
        self.precision = training.precision if training else "fp32"
        self.device, complaint = _open_device(environment, self.precision)
        self.gang: Gang = meet(environment, self.device, complaint)
        self.clock: Clock = _clock(self.device, telemetry)
        self._exchange = BoundaryExchange(self.gang.exchange_group, environment.ranks)
        self._telemetry = telemetry
        self._stop_requested = False
        self._measured = False
        self._recent = RecentContexts()
        self._outgoing = b""  # rank 0: the document announced, until it is broadcast
        self._iteration = 0
        self._started = 0
        self._checkpoints = CheckpointKeeper(environment)
        self._injector = Injector(self.device, environment.rank, environment.ranks)
        self.ended: State | None = None  # how `finish` said that it ended
        self.reporter: Reporter | None = None
        self.document: ControlDocument | None = None
        signal.signal(signal.SIGTERM, self._request_stop)

    @classmethod
    def from_environment(cls, *, telemetry: bool = True) -> "Session":
        """Join the gang that the environment describes (torchrun's variables, HETEROTP_* where set)."""
        return cls(read_environment(os.environ), telemetry=telemetry)

    # -- who owns what ------------------------------------------------------------------------------------

    def shard(self, *, heads: int, ffn: int, width: int, rows: int) -> TPContext:
        """Return this rank's view of the first plan (all ranks); rows: batch x tokens, for the probe."""
        speeds = self._speeds(width, ffn, rows)
        ranks = self.environment.ranks
        plan = UnitPlan.even(ranks, heads, ffn) if speeds is None else UnitPlan.from_speeds(speeds, heads, ffn)
        slowness = tuple(1 / speed for speed in speeds or ())
        dtype = DTYPES[self.precision]
        group = self.gang.tp_group if ranks > 1 else None
        self.tp = TPContext(group, self.environment.rank, ranks, self.device, self.clock, plan, dtype, slowness)
        return self.tp

    def _speeds(self, width: int, ffn: int, rows: int) -> list[float] | None:
        how = self.environment.spec.initial_shares
        if how == "even" or self.environment.ranks == 1:
            return None
        if how == "declared":
            groups = self.environment.spec.worker_groups
            return [g.relative_speed or 1.0 for g in groups for _ in range(g.pods * g.processes_per_pod)]
        columns = max(1, ffn // self.environment.ranks)
        mine = probe_speed(self.device, rows, width, columns, DTYPES[self.precision])
        gathered: list[Any] = [None] * self.environment.ranks
        dist.all_gather_object(gathered, mine)
        return quantized(gathered)

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer, *, iterations: int | None = None) -> None:
        """Take model and optimizer into checkpoints and checksums, and begin to show status and metrics.

        iterations: how many there will be in all, for the time left; None when nobody knows.
        """
        self.parameters = dict(model.named_parameters())
        self.optimizer = optimizer
        refuse_dropout(model, self.tp)
        workdir = self.environment.workdir if self.environment.rank == 0 else None
        self.balancer = Balancer(model, self.tp, workdir, optimizer)
        if self._telemetry:
            self.reporter = Reporter(self.environment, self.gang, self.tp.plan)
            self.reporter.run_status.progress.total_iterations = iterations
            self.reporter.start()

    # -- gradients ----------------------------------------------------------------------------------------

    def step(self, gradient_clip: float | None = None) -> None:
        """Average replicas on unlike devices, clip, and step the optimizer (all ranks)."""
        if self.gang.unlike and self.tp.ranks > 1:
            average_replicas(self.parameters.values(), self.tp)
        if gradient_clip is not None:
            clip_gradients(self.parameters.values(), gradient_clip, self.tp)
        with phase(self.clock, "unit"):
            self.balancer.optimizer_step(self.optimizer)

    def evaluated(self, loss: float, accuracy: float, *, epoch: int) -> None:
        """Show an evaluation on the test set after `epoch` epochs (accuracy 0..1).

        No statistic takes the iteration that held it.
        """
        self._measured = False
        if self.reporter is not None:
            self.reporter.evaluated(loss, accuracy, epoch)

    # -- the boundary -------------------------------------------------------------------------------------

    def boundary(
        self, iteration: int, *, loss: Tensor | None = None, samples: int = 0, epoch: int = 0, evaluate: bool = False
    ) -> Directive:
        """End iteration `iteration` (counted from 1): exchange, and do what the gang decided (all ranks).

        evaluate: rank 0 asks for an evaluation; the next boundary's directive tells all ranks to do it.
        """
        self._iteration = iteration
        report = self._report(iteration, evaluate)
        before = self.clock.switch("control")
        previous = self._exchange.collect()
        self._exchange.post(report)
        if self.reporter is not None:
            self.reporter.iteration(report, previous, loss, samples, epoch)
        directive = self._obey(previous) if previous is not None else Directive()
        self._balance(previous, epoch)
        self.clock.switch(before)
        return directive

    def _report(self, iteration: int, evaluate: bool) -> Report:
        seconds = settled(self.clock, self.device)
        attention = seconds.pop(ATTENTION)
        seconds["unit"] += attention
        ran = self._ran(iteration)
        generation, length = self._announce()
        # on unlike devices equal gradients still round to unlike parameters
        due = iteration % CHECKSUM_EVERY == 0 and not self.gang.unlike
        replicas = checksum(self._replicas()) if due else 0
        return Report(
            iteration=iteration,
            flags=self._flags(iteration, evaluate),
            generation=generation,
            document_bytes=length,
            measured=int(ran.measured),
            applied=self.document.generation if self.document is not None else 0,
            decision_id=ran.decision_id,
            ready=self.balancer.resharder.ready,
            plan=hash_number(self.tp.plan.hash) ^ hash_number(self.balancer.plan.hash),
            replicas=replicas,
            full=seconds["matmul"] * ran.full_work_factor,
            unslowed=ran.unslowed,
            attention=attention,
            pace_ratio=self.balancer.pace_probe.pace_ratio,
            seconds=seconds,
        )

    def _ran(self, iteration: int) -> IterationContext:
        """Return what held in the iteration that the clock just told of, which on CUDA is an earlier one."""
        measured = self._measured and iteration - self._started > WARM_UP_ITERATIONS
        self._measured = True
        decision_id, full_work_factor = self.balancer.plan.decision_id, self.balancer.full_work_factor
        self._recent.add(IterationContext(measured, decision_id, full_work_factor, self._injector.unslowed()))
        return self._recent.of(self.clock.age)

    def _replicas(self) -> list[Tensor]:
        return [p.data for p in self.parameters.values() if shard_spec(p) is None]

    def _flags(self, iteration: int, evaluate: bool) -> int:
        flags = STOP if self._stop_requested else 0
        if self.environment.rank == 0:
            flags |= CHECKPOINT if self._checkpoints.is_due(iteration) else 0
            flags |= EVALUATE if evaluate else 0
            flags |= LEASE_OVER if self._lease_is_over() else 0
        return flags

    def _lease_is_over(self) -> bool:
        leased = self.document.lease_seconds if self.document is not None else None
        return self.reporter is not None and self.reporter.lease.is_over(leased)

    def _obey(self, previous: tuple[Report, ...]) -> Directive:
        verdict = decide(previous)
        self._injector.lapsed = verdict.lease_over
        if verdict.document_bytes:
            self._spread(verdict.document_bytes)
        if verdict.checkpoint or verdict.stop:
            try:
                self.save()
            except WriteError as error:  # rank 0 alone; the last one, in `finish`, must succeed
                print(f"{error}; training goes on", flush=True)
                self._measured = False
                if self.reporter is not None:
                    self.reporter.not_saved(str(error))
        return Directive(verdict.stop, verdict.evaluate)

    def _balance(self, previous: tuple[Report, ...] | None, epoch: int) -> None:
        """Decide on columns and slow-downs of the coming iteration, the same on all ranks."""
        seconds = sum(previous[0].seconds.values()) if previous is not None else 0.0
        self._injector.boundary(self._iteration + 1, epoch, seconds)
        if self.tp.ranks > 1 and self.balancer.boundary(previous, self._iteration, epoch):
            self._measured = False
        if self.reporter is not None:
            if self.balancer.moved is not None:
                self.reporter.moved(self.tp.plan, self.balancer.moved)
            self.reporter.balanced(self.balancer.plan, self.balancer.costs, self._injector.now)

    # -- the control document -----------------------------------------------------------------------------

    def _announce(self) -> tuple[int, int]:
        """Return generation and length of a document that rank 0 has and the others lack; length 0: none."""
        control = self.reporter.control if self.reporter is not None else None
        document = control.document if control is not None else None
        if document is None or self._outgoing:
            return (document.generation if document else 0), 0
        if self.document is not None and document == self.document:
            return document.generation, 0
        self._outgoing = document.model_dump_json(by_alias=True, exclude_none=True).encode()
        return document.generation, len(self._outgoing)

    def _spread(self, length: int) -> None:
        """Broadcast rank 0's document; all ranks apply it at this iteration."""
        data = torch.frombuffer(bytearray(self._outgoing), dtype=torch.uint8) if self._outgoing else None
        buffer = data if data is not None else torch.empty(length, dtype=torch.uint8)
        dist.broadcast(buffer, src=0)
        self._outgoing = b""
        self.document = parse_document(buffer.numpy().tobytes().decode())
        self.balancer.apply(self.document.balancing)
        self._injector.injections = self.document.injections
        if self.reporter is not None:
            self.reporter.applied(self.document, self._iteration + 1)

    # -- checkpoints --------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of the iteration that just ended (all ranks); rank 0 alone writes.

        Raises CheckpointError on rank 0 when it cannot be written.
        """
        saved = self.reporter.run_status.saved_seconds if self.reporter is not None else 0.0
        kept = {"injections": self._injector.state(), "savedSeconds": saved}
        seconds = self._checkpoints.save(self._iteration, self.parameters, self.optimizer, self.tp, kept)
        if seconds is None:
            return
        self._measured = False
        if self.reporter is not None:
            self.reporter.saved(self._iteration, seconds)

    def restore(self) -> int:
        """Fill model and optimizer from the newest whole checkpoint (all ranks); return its iteration, else 0."""
        iteration, kept = self._checkpoints.restore(self.parameters, self.optimizer, self.tp)
        self._iteration = self._started = iteration
        self._injector.resume(kept.get("injections", {}))
        if self._started and self.reporter is not None:
            self.reporter.resumed(self._started, float(kept.get("savedSeconds", 0.0)))
        return self._started

    # -- the end ------------------------------------------------------------------------------------------

    def _request_stop(self, number: int, frame: object) -> None:
        self._stop_requested = True

    def finish(self, *, state: State = "succeeded") -> None:
        """Write the last checkpoint, status and report, and leave the gang (all ranks); see run_rank."""
        last = self._exchange.collect()
        self.save()
        if self.reporter is not None:
            self.reporter.finish(last, state)
        leave()
        self.ended = state

    def fail(self, message: str) -> None:
        """Show a failure; peers may be gone, so nothing is exchanged."""
        if self.reporter is not None:
            self.reporter.failed(message)

    def agree(self, what: str, value: str) -> None:
        """Raise ValueError naming the ranks whose value differs from rank 0's (all ranks)."""
        values: list[Any] = [None] * self.environment.ranks
        dist.all_gather_object(values, value)
        odd = [rank for rank, other in enumerate(values) if other != values[0]]
        if odd:
            raise ValueError(f"{what} of ranks {odd} differs from rank 0's; every rank must see the same")


def refuse_dropout(model: nn.Module, tp: TPContext) -> None:
    """Raise ValueError naming the first dropout: its masks would differ from rank to rank, and move with the units."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 and tp.ranks > 1:
            raise ValueError(
                f"model: {name}: {type(module).__name__}(p={module.p}): ranks draw unlike masks, "
                "and units change rank: leave it out, or p=0"
            )


def _open_device(environment: RankEnvironment, precision: str) -> tuple[Device, str]:
    """Return the rank's device, and why it cannot be used (all ranks shall hear it before any gives up)."""
    try:
        device = resolve_device(environment.device, environment.local_rank)
        check_precision(device, precision, environment.rank)
        return device, ""
    except ValueError as error:
        return Device(torch.device("cpu"), "none"), str(error)


def _clock(device: Device, telemetry: bool) -> Clock:
    if not telemetry:
        return NullClock()
    if device.torch_device.type == "cuda":
        torch.cuda.set_device(device.torch_device)
        return CudaPhaseClock(lambda: torch.cuda.Event(enable_timing=True))
    return PhaseClock()
