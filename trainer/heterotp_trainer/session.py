"""The library's front door: one rank of a HeteroTP job, from rendezvous to the last boundary.

session = Session.from_environment()
tp = session.shard(heads=16, ffn=512, width=128, rows=64 * 17)   # who owns which units
model = Model(tp); optimizer = AdamW(model.parameters())
session.watch(model, optimizer)
iteration = session.restore()                                     # 0, or where the checkpoint ended
while iteration < total:
    ...forward, backward, optimizer.step()...
    iteration += 1
    directive = session.boundary(iteration, loss=loss, samples=64)
    if directive.stop: break
session.finish()
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from heterotp_api.control import ControlDocument
from torch import Tensor, nn

from heterotp_trainer import optimization
from heterotp_trainer.checkpoint import files, stream
from heterotp_trainer.clock import Clock, CudaPhaseClock, NullClock, PhaseClock, phase
from heterotp_trainer.control import parse_document
from heterotp_trainer.devices import Device, check_precision, resolve_device
from heterotp_trainer.environment import RankEnvironment, read_environment
from heterotp_trainer.exchange import (
    CHECKPOINT,
    STOP,
    BoundaryExchange,
    Report,
    checksum,
    decide,
    hash_number,
)
from heterotp_trainer.gang import Gang, leave, meet
from heterotp_trainer.observer import Observer
from heterotp_trainer.probe import probe_speed, quantized
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec
from heterotp_trainer.tensor_parallel.units import Plan

WARM_UP_ITERATIONS = 2  # left out of every statistic
CHECKSUM_EVERY = 100
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
        self._outgoing = b""  # rank 0: the document announced, until it is broadcast
        self._iteration = 0
        self._started = 0
        self._saved_at: int | None = None
        self._checkpointing = self._agree_on_checkpoints()
        self._next_save = time.monotonic() + self._every_seconds
        self.observer: Observer | None = None
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
        plan = Plan.even(ranks, heads, ffn) if speeds is None else Plan.from_speeds(speeds, heads, ffn)
        dtype = DTYPES[self.precision]
        group = self.gang.tp_group if ranks > 1 else None
        self.tp = TPContext(group, self.environment.rank, ranks, self.device, self.clock, plan, dtype)
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
        if self._telemetry:
            self.observer = Observer(self.environment, self.gang, self.tp.plan)
            self.observer.board.progress.total_iterations = iterations
            self.observer.start()

    # -- gradients ----------------------------------------------------------------------------------------

    def step(self, gradient_clip: float | None = None) -> None:
        """Average replicas on unlike devices, clip, and step the optimizer (all ranks)."""
        if self.gang.unlike and self.tp.ranks > 1:
            optimization.average_replicas(self.parameters.values(), self.tp)
        if gradient_clip is not None:
            optimization.clip_gradients(self.parameters.values(), gradient_clip, self.tp)
        with phase(self.clock, "unit"):
            self.optimizer.step()

    def evaluated(self, loss: float, accuracy: float) -> None:
        """Show an evaluation on the test set (accuracy 0..1); no statistic takes the iteration that held it."""
        self._measured = False
        if self.observer is not None:
            self.observer.evaluated(loss, accuracy)

    # -- the boundary -------------------------------------------------------------------------------------

    def boundary(self, iteration: int, *, loss: Tensor | None = None, samples: int = 0, epoch: int = 0) -> Directive:
        """End iteration `iteration` (counted from 1): exchange, and do what the gang decided (all ranks)."""
        self._iteration = iteration
        report = self._report(iteration)
        before = self.clock.switch("control")
        previous = self._exchange.collect()
        self._exchange.post(report)
        if self.observer is not None:
            self.observer.iteration(report, previous, loss, samples, epoch)
        directive = self._obey(previous) if previous is not None else Directive()
        self.clock.switch(before)
        return directive

    def _report(self, iteration: int) -> Report:
        seconds = self.clock.take()
        self.device.settle_fixed(seconds["fixed"])
        for name, rest in self.clock.take().items():
            seconds[name] += rest
        measured = self._measured and iteration - self._started > WARM_UP_ITERATIONS
        self._measured = True
        generation, length = self._announce()
        replicas = checksum(self._replicas()) if iteration % CHECKSUM_EVERY == 0 else 0
        return Report(
            iteration=iteration,
            flags=self._flags(iteration),
            generation=generation,
            document_bytes=length,
            measured=int(measured),
            plan=hash_number(self.tp.plan.hash),
            replicas=replicas,
            seconds=seconds,
        )

    def _replicas(self) -> list[Tensor]:
        return [p.data for p in self.parameters.values() if shard_spec(p) is None]

    def _flags(self, iteration: int) -> int:
        flags = STOP if self._stop_requested else 0
        if self._checkpointing and self.environment.rank == 0 and self._is_due(iteration):
            flags |= CHECKPOINT
        return flags

    def _is_due(self, iteration: int) -> bool:
        policy = self.environment.spec.checkpoint
        every = policy.every_iterations if policy else None
        if every is not None and iteration % every == 0:
            return True
        if time.monotonic() < self._next_save:
            return False
        self._next_save = time.monotonic() + self._every_seconds  # asked for once: it is written one boundary later
        return True

    def _obey(self, previous: tuple[Report, ...]) -> Directive:
        verdict = decide(previous)
        if verdict.document_bytes:
            self._spread(verdict.document_bytes)
        if (verdict.checkpoint or verdict.stop) and self._checkpointing:
            self.save()
        return Directive(verdict.stop, verdict.evaluate)

    # -- the control document -----------------------------------------------------------------------------

    def _announce(self) -> tuple[int, int]:
        """Return generation and length of a document that rank 0 has and the others lack; length 0: none."""
        control = self.observer.control if self.observer is not None else None
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
        if self.observer is not None:
            self.observer.applied(self.document)

    # -- checkpoints --------------------------------------------------------------------------------------

    @property
    def _every_seconds(self) -> float:
        policy = self.environment.spec.checkpoint
        return float(policy.every_seconds) if policy else 600.0

    def _agree_on_checkpoints(self) -> bool:
        """Return whether rank 0, which alone writes, has a directory; it becomes the directory's owner."""
        root = self.environment.checkpoint_dir
        said: list[Any] = [None]
        if self.environment.rank == 0:
            said = [self._attempt_on_rank_0(lambda: files.claim(root, self.environment.attempt) if root else None)]
        dist.broadcast_object_list(said, src=0)
        if isinstance(said[0], Exception):
            raise said[0]
        given: list[Any] = [root is not None]
        dist.broadcast_object_list(given, src=0)
        return bool(given[0])

    @staticmethod
    def _attempt_on_rank_0(act: Callable[[], Any]) -> Any:
        """Return the result, or the error that all ranks shall raise together."""
        try:
            return act()
        except (files.CheckpointError, OSError) as error:
            return error

    def save(self) -> None:
        """Write a checkpoint of the iteration that just ended (all ranks); rank 0 alone writes."""
        if self._saved_at == self._iteration:
            return
        started = time.monotonic()
        root, attempt = self.environment.checkpoint_dir, self.environment.attempt
        writer = None
        if self.environment.rank == 0:
            assert root is not None
            files.check_owner(root, attempt)
            writer = files.Writer(root, self._iteration, attempt)
        stream.gather(self.parameters, self.optimizer, self.tp, writer.add if writer else lambda name, tensor: None)
        if writer is not None:
            policy = self.environment.spec.checkpoint
            writer.commit(policy.keep if policy else 2)
        self._saved_at = self._iteration
        self._next_save = time.monotonic() + self._every_seconds
        self._measured = False
        if self.observer is not None:
            self.observer.saved(self._iteration, time.monotonic() - started)

    def restore(self) -> int:
        """Fill model and optimizer from the newest whole checkpoint (all ranks); return its iteration, else 0."""
        if not self._checkpointing:
            return 0
        root = self.environment.checkpoint_dir
        found: Any = None
        said: list[Any] = [None]
        if self.environment.rank == 0:
            assert root is not None
            found = self._attempt_on_rank_0(lambda: self._find(root))
            said = [found if isinstance(found, Exception) else found and found[1].iteration]
        dist.broadcast_object_list(said, src=0)
        if isinstance(said[0], Exception):
            raise said[0]
        if said[0] is None:
            return 0
        read = files.read_tensors(*found) if found is not None else None
        stream.scatter(self.parameters, self.optimizer, self.tp, read)
        self._iteration = self._started = self._saved_at = int(said[0])
        if self.observer is not None:
            self.observer.resumed(self._started)
        return self._started

    @staticmethod
    def _find(root: Any) -> Any:
        found, complaints = files.newest(root)
        for complaint in complaints:
            print(f"{complaint}; using the one before", flush=True)
        return found

    # -- the end ------------------------------------------------------------------------------------------

    def _request_stop(self, number: int, frame: object) -> None:
        self._stop_requested = True

    def finish(self, *, state: str = "succeeded", save: bool = True) -> None:
        """Write the last checkpoint, status and report, and leave the gang (all ranks)."""
        last = self._exchange.collect()
        if save and self._checkpointing:
            self.save()
        if self.observer is not None:
            self.observer.finish(last, state)
        leave()

    def fail(self, message: str) -> None:
        """Show a failure; peers may be gone, so nothing is exchanged."""
        if self.observer is not None:
            self.observer.failed(message)

    def agree(self, what: str, value: str) -> None:
        """Raise ValueError naming the ranks whose value differs from rank 0's (all ranks)."""
        values: list[Any] = [None] * self.environment.ranks
        dist.all_gather_object(values, value)
        odd = [rank for rank, other in enumerate(values) if other != values[0]]
        if odd:
            raise ValueError(f"{what} of ranks {odd} differs from rank 0's; every rank must see the same")


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
