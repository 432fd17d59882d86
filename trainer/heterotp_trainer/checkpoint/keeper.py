"""When a checkpoint is written, and which one training continues from: what all ranks do together."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from heterotp_trainer.checkpoint import files
from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.json_messages import broadcast_json
from heterotp_trainer.tensor_parallel.context import TPContext

EVERY_SECONDS = 600.0


class CheckpointKeeper:
    """The checkpoints of one attempt; "all ranks" as in Session. Only rank 0 reads and writes files."""

    def __init__(
        self,
        environment: RankEnvironment,
        group: dist.ProcessGroup | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make this attempt the directory's owner (all ranks); raises CheckpointError on all ranks together."""
        self._environment, self._group, self._clock = environment, group, clock
        policy = environment.spec.checkpoint
        self._every_iterations = policy.every_iterations if policy else None
        self._every_seconds = float(policy.every_seconds) if policy else EVERY_SECONDS
        self._keep = policy.keep if policy else 2
        self._next = clock() + self._every_seconds
        self._saved_at: int | None = None  # the last iteration tried, the same on all ranks
        self._failure: files.WriteError | None = None  # rank 0: the error of that attempt to write
        root, attempt = environment.checkpoint_dir, environment.attempt
        held: list[str] | None = self._from_rank_0(lambda: _claim(root, attempt) if root is not None else None)
        self.enabled = held is not None
        self._unread = held[0] if held else None  # a checkpoint that `restore` should read

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
        CheckpointError on rank 0 when the checkpoint cannot be written, also when called again for the same iteration;
        the checkpoint before stays.
        """
        if not self.enabled:
            return None
        if self._saved_at == iteration:  # on all ranks: none enters a collective
            if self._failure is not None:
                raise self._failure
            return None
        started, states = self._clock(), contents.collect(tp)
        self._next = started + self._every_seconds
        root, attempt = self._environment.checkpoint_dir, self._environment.attempt
        writer = None
        if self._environment.rank == 0:
            assert root is not None
            files.check_owner(root, attempt)
            writer = files.Writer(root, iteration, attempt)
        facts = contents.gather(states, tp, writer.add if writer else lambda name, tensor: None)
        self._saved_at, self._failure = iteration, None
        if writer is not None:
            try:
                writer.commit(self._keep, {**(session or {}), "contents": facts})
            except files.WriteError as error:
                self._failure = error
                raise
        return self._clock() - started

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
        root = self._environment.checkpoint_dir
        found: list[tuple[Path, files.Manifest] | None] = [None]

        def find() -> tuple[int, dict[str, Any]] | None:
            assert root is not None
            found[0] = _newest(root)
            return (found[0][1].iteration, found[0][1].session) if found[0] else None

        newest = self._from_rank_0(find)
        if newest is None:
            contents.check(tp)
            return 0, {}
        iteration, session = newest
        prepare(session)
        read = files.read_tensors(*found[0]) if found[0] is not None else None
        for line in contents.scatter(iteration, session.get("contents"), tp, read):
            if tp.rank == 0:
                print(f"checkpoint of iteration {iteration}: {line}", flush=True)
        self._saved_at = iteration
        return iteration, session

    def _from_rank_0(self, act: Callable[[], Any]) -> Any:
        """Return rank 0's result on all ranks, or raise its error on all of them together: CheckpointError elsewhere.

        The result is ready for JSON.
        """
        result: Any = None
        failure: Exception | None = None
        rank = self._environment.rank
        if rank == 0:
            try:
                result = act()
            except (files.CheckpointError, OSError) as error:
                failure = error
        result, complaint = broadcast_json([result, failure and str(failure)], list[Any], rank, self._group)
        if complaint is not None:
            raise failure or files.CheckpointError(complaint)
        return result


def _claim(root: Path, attempt: int) -> list[str]:
    """Make this attempt the directory's owner; return the names of the checkpoints in it, newest first."""
    files.claim(root, attempt)
    return [path.name for path in files.paths(root)]


def _newest(root: Path) -> tuple[Path, files.Manifest] | None:
    """Return the newest whole checkpoint; set newer torn ones aside, else they would count among those to keep."""
    found, torn = files.newest(root)
    for path, complaint in torn:
        print(f"{complaint}; set aside as {files.set_aside(path).name}, using the one before", flush=True)
    return found
