"""When a checkpoint is written, and which one training continues from: what all ranks do together."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.checkpoint import claims, files, tensor_files
from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.checkpoint.errors import NotFiniteError, WriteError
from heterotp_trainer.checkpoint.manifest import Manifest
from heterotp_trainer.checkpoint.storage import Progress, Storage
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.tensor_parallel.context import TPContext

EVERY_SECONDS = 600.0


class CheckpointKeeper:
    """The checkpoints of one attempt; "all ranks" as in Session. Only rank 0 reads and writes files."""

    def __init__(
        self,
        environment: RankEnvironment,
        group: dist.ProcessGroup | None,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Make this attempt the directory's owner (all ranks); raises CheckpointError on all ranks together.

        show: called on rank 0 with what takes long.
        """
        self._environment, self._clock = environment, clock
        policy = environment.spec.checkpoint
        self._every_iterations = policy.every_iterations if policy else None
        self._every_seconds = float(policy.every_seconds) if policy else EVERY_SECONDS
        self._keep = policy.keep if policy else 2
        self._next = clock() + self._every_seconds
        self._saved_at: int | None = None  # the last iteration tried, the same on all ranks
        self._failure: WriteError | None = None  # the error of that attempt to write
        self._not_finite = False  # whether the last attempt failed for that
        self._storage = Storage(environment.rank, group, environment.spec.collective_timeout_seconds, show)
        self._owned: claims.OwnedDirectory | None = None  # on rank 0
        held: list[str] | None = self._storage.wait(self._claim, lambda names: names).said
        self.enabled = held is not None
        self._unread = held[0] if held else None  # a checkpoint that `restore` should read

    def close(self) -> None:
        """Give up the group; no checkpoint can be written or read any more."""
        self._storage.close()

    def continues(self) -> None:
        """Training goes on after the loss of a rank: no checkpoint is to be read."""
        self._unread = None

    def check_begun(self, contents: Contents) -> None:
        """Check at the first boundary that a restart can continue; nothing can be kept from now on (all ranks).

        Raises InputError where the directory holds a checkpoint and `restore` was not called, and for a scheduler that
        is not kept.
        """
        contents.kept.close()
        if self.enabled:
            contents.kept.check_schedule(contents.optimizer)
        if self._unread is not None:
            raise InputError(
                f"session.boundary: the checkpoint {self._unread} is there, but training did not continue from it: "
                "call session.restore() before the loop, or start with an empty directory of checkpoints"
            )

    def _claim(self) -> list[str] | None:
        """Own the directory; return the names of the checkpoints in it, newest first; None where there is none."""
        environment, policy = self._environment, self._environment.spec.checkpoint
        if environment.checkpoint_dir is None:
            return None
        new = claims.Claim.of(environment.job_uid, environment.attempt)
        adopt = policy is not None and bool(policy.adopt)
        self._owned, line = claims.take(environment.checkpoint_dir, new, adopt=adopt)
        if line:
            print(line, flush=True)
        return [path.name for path in files.paths(self._owned.root)]

    def falls_on(self, iteration: int) -> bool:
        """Return whether a checkpoint of this iteration is due by its number, the same on all ranks."""
        every = self._every_iterations
        return self.enabled and every is not None and iteration % every == 0

    def is_due(self) -> bool:
        """Return whether rank 0 asks for a checkpoint by time, only once per period."""
        if not self.enabled or self._environment.rank != 0:
            return False
        if self._clock() < self._next:
            return False
        self._next = self._clock() + self._every_seconds  # it is written one boundary later
        return True

    def save(
        self,
        iteration: int,
        contents: Contents,
        tp: TPContext,
        session: dict[str, Any] | None = None,
    ) -> float | None:
        """Write a checkpoint (all ranks); return its seconds, None where there is nothing to write.

        session: JSON-ready facts that `restore` returns. Raises ValueError for a state that cannot be stored, and
        CheckpointError on all ranks when the checkpoint cannot be written, also when called again for the same
        iteration; the checkpoint before stays.
        """
        if not self.enabled:
            return None
        if self._saved_at == iteration:  # on all ranks: none enters a collective
            if self._failure is not None:
                raise self._failure
            return None
        started, states = self._clock(), contents.collect(tp)
        self._next = started + self._every_seconds
        writer = self._storage.wait(lambda: self._writer(iteration)).own
        facts = contents.gather(states, tp, lambda name, tensor: self._write(writer, name, tensor), self._storage.pace)
        self._saved_at, self._failure = iteration, None
        try:
            self._storage.wait(lambda: self._commit(writer, {**(session or {}), "contents": facts}))
        except WriteError as error:
            if isinstance(error, NotFiniteError):
                error.again, self._not_finite = self._not_finite, True
            self._failure = error
            raise
        self._not_finite = False
        return self._clock() - started

    def keep_best(self, iteration: int) -> None:
        """Keep the checkpoint of `iteration`, which was just written, in the folder `best` (all ranks).

        Raises WriteError on all ranks when it cannot be kept.
        """
        if self.enabled:
            self._storage.wait(lambda: self._link_best(iteration))

    def _link_best(self, iteration: int) -> None:
        assert self._owned is not None
        files.keep_best(self._owned, iteration)

    def _writer(self, iteration: int) -> files.Writer:
        assert self._owned is not None
        self._owned.check()
        self._storage.progress.begin("writing a checkpoint", 0)
        return files.Writer(self._owned, iteration)

    def _write(self, writer: files.Writer | None, name: str, tensor: Tensor) -> None:
        assert writer is not None
        held = tensor.detach().cpu().contiguous()  # here: a device is used by one thread
        self._storage.later(lambda: writer.add(name, held))

    def _commit(self, writer: files.Writer | None, session: dict[str, Any]) -> None:
        assert writer is not None
        writer.commit(self._keep, session)

    def restore(
        self, contents: Contents, tp: TPContext, prepare: Callable[[dict[str, Any]], None] = lambda session: None
    ) -> tuple[int, dict[str, Any]]:
        """Fill the contents from the newest whole checkpoint (all ranks).

        prepare: receives the facts of its session before any tensor is read. Returns its iteration and these facts; 0
        and none where there is no checkpoint.
        """
        contents.kept.close()
        self._unread = None
        if not self.enabled:
            return 0, {}
        progress, held = self._storage.progress, tensor_files.Held(1 / tp.ranks)
        answer = self._storage.wait(
            lambda: _newest(self._owned, progress, held),
            lambda found: found and (found[1].iteration, found[1].session),
        )
        if answer.said is None:
            contents.check(tp)
            return 0, {}
        iteration, session = answer.said
        prepare(session)
        own = answer.own
        read = self._storage.reader(files.read_tensors(own[0], own[1], progress, held) if own is not None else None)
        for line in contents.scatter(iteration, session.get("contents"), tp, read):
            if tp.rank == 0:
                print(f"checkpoint of iteration {iteration}: {line}", flush=True)
        self._saved_at = iteration
        return iteration, session


def _newest(
    owned: claims.OwnedDirectory | None, progress: Progress, held: tensor_files.Held
) -> tuple[Path, Manifest] | None:
    """Return the newest whole checkpoint; set newer torn ones aside, else they would count among those to keep."""
    assert owned is not None
    found, torn = files.newest(owned.root, progress, held)
    for path, complaint in torn:
        print(f"{complaint}; set aside as {files.set_aside(owned, path).name}, using the one before", flush=True)
    return found
