"""The model and the optimizer that a session watches: what they must fulfil, their updates, what checkpoints hold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from heterotp_api.formatting import listed, ranks_listed
from torch import Tensor, nn

from heterotp_trainer.boundary.agreement import USUAL_CAUSES, differing_replicas, replicated
from heterotp_trainer.boundary.batch_hash import BatchHash
from heterotp_trainer.boundary.exchange import MismatchError
from heterotp_trainer.boundary.finite_guard import BuffersBefore, FiniteGuard, OnNonFinite
from heterotp_trainer.boundary.gradient_agreement import GradientAgreement
from heterotp_trainer.boundary.loss import ToldLoss
from heterotp_trainer.boundary.saved_time import SavedTime
from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.checkpoint.kept import Kept
from heterotp_trainer.checkpoint.optimizer_check import (
    check_first_step,
    refuse_other_shapes,
    refuse_strangers,
    refuse_whole_tensor,
)
from heterotp_trainer.devices.phase_clock import UPDATE, phase
from heterotp_trainer.errors import InputError
from heterotp_trainer.membership.buddies import buddies
from heterotp_trainer.model.checks import DrawCheck
from heterotp_trainer.parallelize.export import model_facts
from heterotp_trainer.protection.guard import Guard
from heterotp_trainer.protection.mirrors import Mirrors
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import (
    average_replicas,
    gradient_norm,
    refuse_plain_clipping,
    scale_gradients,
    sum_partial,
)
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec, work_weights
from heterotp_trainer.tensor_parallel.whole_only import tell_of_units


class Watched:
    """What `Session.watch` received, and what was made for it.

    stepped: whether an update was asked for since the last boundary.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        tp: TPContext,
        kept: Kept,
        workdir: Path | None,
        *,
        unlike: bool,
        late: bool,
        on_non_finite: OnNonFinite,
        iterations: int | None,
    ) -> None:
        """unlike, late: see Gang; workdir, iterations: see Balancer and Session.watch.

        Raises InputError for a model or an optimizer that cannot be split by units.
        """
        self.draws = DrawCheck(model, tp.device.torch_device, unlike=unlike) if tp.ranks > 1 else None
        if tp.ranks > 1:
            refuse_plain_clipping()
            tell_of_units(model)
        refuse_whole_tensor(optimizer)
        refuse_strangers(optimizer, model)
        self.model, self.optimizer, self.iterations, self.stepped = model, optimizer, iterations, False
        self.protection: Guard | None = None
        self.tp, self.unlike, self._updating = tp, unlike, False
        self._compared = -1  # the iteration whose replicas were compared last
        tp.unit_plan = replace(tp.unit_plan, weights=work_weights(model.parameters()))
        self.balancer = Balancer(model, tp, workdir, optimizer)
        self.saved_time = SavedTime(tp.unit_plan, tp.slowness)
        self.guard = FiniteGuard(on_non_finite)
        self.batch_hash = BatchHash(model, unlike=unlike, late=late)
        self.told_loss = ToldLoss(late=late)
        self._gradients = GradientAgreement(tp.dtype)
        self._before = BuffersBefore(model) if on_non_finite == "Skip" else None
        self.contents = Contents(model, optimizer, kept, self.balancer.assigner.slots)
        self.parameters = self.contents.parameters
        optimizer.register_step_pre_hook(self._refuse_other_updates)
        check_first_step(optimizer, self.parameters)

    def _refuse_other_updates(self, optimizer: torch.optim.Optimizer, *arguments: object) -> None:
        if not self._updating:
            raise InputError("optimizer.step() was called by the script: call session.step(), which calls it")

    def differing_replicas(self) -> str:
        """Return which replicated tensors differ on which ranks, the first few by name; empty: none (all ranks)."""
        tensors = replicated(self.model)
        found = differing_replicas(tensors, self.tp.control_group, self.tp.ranks, unlike=self.unlike)
        return _named(found, "rank 0's")

    def refuse_unlike_replicas(self) -> None:
        """Raise InputError where replicated tensors differ before the training (all ranks)."""
        if differing := self.differing_replicas():
            advice = (
                "make them alike: torch.manual_seed(...) with the same number on all ranks before the model is made"
            )
            raise InputError(f"session.watch: replicated tensors differ: {differing}: {advice}")

    def compare_replicas(self, iteration: int) -> None:
        """Raise MismatchError where replicated tensors differ after `iteration`, with the usual causes (all ranks).

        A further call for the same iteration compares nothing.
        """
        if self._compared == iteration:
            return
        self._compared = iteration
        with self.tp.where.waiting("the comparison of replicas"):
            differing = self.differing_replicas()
        if differing:
            found = f"iteration {iteration}: replicated tensors differ: {differing}"
            raise MismatchError(f"{found}: {USUAL_CAUSES}")

    def _average(self, iteration: int) -> None:
        """Average the gradients of replicas; raise MismatchError where one is not near the mean (all ranks)."""
        parameters, tp = self.parameters, self.tp
        compared = self._gradients.due(iteration)
        measured = average_replicas(parameters.values(), tp, measure=compared)
        if not compared:
            return
        names = [name for name, p in parameters.items() if p.requires_grad and shard_spec(p) is None]
        with tp.where.waiting("the comparison of gradients"):
            found = self._gradients.found(names, measured, tp.control_group, tp.ranks)
        if found:
            what = f"iteration {iteration}: gradients of replicated tensors differ: {_named(found, 'the mean')}"
            raise MismatchError(f"{what}: {USUAL_CAUSES}")

    def update(self, iteration: int, gradient_clip: float | None, loss: Tensor | None) -> bool:
        """Make the update of `iteration`, see Session.step (all ranks); return whether it was made."""
        self.stepped = True
        parameters, tp = self.parameters.values(), self.tp
        tp.links.clear()
        if self.draws is not None and (digest := self.draws.state_digest()) is not None:
            self.batch_hash.add([digest])
        sum_partial(parameters, tp)
        if self.unlike and tp.ranks > 1:
            self._average(iteration)
        if self.protection is not None:
            self.protection.prepare(iteration, gradient_clip, loss)
        # all ranks hold what this update needs, their wards' part too, once this sum is complete on any of them
        norm = gradient_norm(parameters, tp, loss)
        return self._apply(iteration, norm, gradient_clip)

    def _apply(self, iteration: int, norm: float, gradient_clip: float | None) -> bool:
        """Make the update of gradients of this norm; return whether it was made. No rank waits for another one here."""
        parameters, factor = self.parameters.values(), 1.0
        updated = self.guard.allows(norm, iteration)
        if not updated:
            self._forget_iteration()
        else:
            if gradient_clip is not None and norm > gradient_clip:
                factor = gradient_clip / norm
                scale_gradients(parameters, factor)
            with phase(self.tp.clock, UPDATE):
                self._updating = True
                try:
                    self.balancer.optimizer_step(self.optimizer)
                finally:
                    self._updating = False
        if self.protection is not None:
            self.protection.settle(iteration, norm, factor if updated else None)
        return updated

    def protect(self, iteration: int, group: dist.ProcessGroup, nodes: Sequence[str]) -> None:
        """Mirror all units from now on, of the state after `iteration` (all ranks); nodes: where each rank runs."""
        mirrors = self.mirrors(group, nodes)
        if self.protection is None:
            self.protection = Guard(self.model, self.tp.device.torch_device, mirrors)
        self.protection.begin(iteration, mirrors)

    def mirrors(self, group: dist.ProcessGroup, nodes: Sequence[str]) -> Mirrors:
        """Return mirrors that hold nothing yet; see `protect`."""
        return Mirrors(self.tp, self.parameters, self.optimizer, group, buddies(nodes))

    def facts(self) -> dict[str, Any]:
        """Return what a rank that comes back must know beside the model."""
        return {"unlike": self.unlike, "late": self.batch_hash.late, "guard": self.guard.state()}

    def came_back(self, facts: Mapping[str, Any], iteration: int, norm: float, losses: Mapping[int, float]) -> None:
        """Continue with what `facts` returned on another rank, after `iteration`, whose gradients had this norm."""
        device = self.tp.device.torch_device
        self.unlike = bool(facts["unlike"])
        self.draws = DrawCheck(self.model, device, unlike=self.unlike)
        refuse_plain_clipping()
        tell_of_units(self.model)
        self.guard.resume(facts["guard"])
        self.batch_hash.compare(unlike=self.unlike, late=bool(facts["late"]))
        self.told_loss = ToldLoss(late=bool(facts["late"]))
        self.protection = Guard(self.model, device, Mirrors(self.tp, self.parameters, self.optimizer, None, ()))
        self.protection.applied, self.protection.norm = iteration, norm
        self.protection.losses = dict(losses)
        self.iteration_ended()

    def reprotect(self) -> None:
        """Make mirrors of the units as they are owned now, where units have moved (all ranks)."""
        if self.protection is not None and self.protection.mirrors.plan != self.tp.unit_plan.hash:
            self.protection.mirrors.refresh()

    def catch_up(self, iteration: int, norm: float) -> None:
        """Bring this rank to the state after the update of `iteration`, which is its own last one or the one after it.

        norm: of that update's gradients, which other ranks know. Where this rank has begun another iteration, that is
        undone.
        """
        guard = self.protection
        assert guard is not None
        if guard.applied == iteration:
            guard.put_back()
        else:
            self._apply(iteration, norm, guard.clip)
        self.batch_hash.forget()
        self.stepped = False

    def regrouped(self, workdir: Path | None) -> None:
        """Balance anew, for the ranks that are left and the units that they own now; workdir: see Balancer."""
        for linear in self.balancer.assigner.linears:
            linear.partition, linear.calls = None, 0
        self.balancer = Balancer(self.model, self.tp, workdir, self.optimizer)
        self.saved_time = SavedTime(self.tp.unit_plan, self.tp.slowness)
        self.contents = replace(self.contents, slots=self.balancer.assigner.slots)

    @property
    def losses(self) -> dict[int, float]:
        """The losses of the last iterations, where units are mirrored."""
        return self.protection.losses if self.protection is not None else {}

    @property
    def speeds(self) -> tuple[float, ...]:
        """Relative speed of each rank, as the plan in force knows it; empty: all alike."""
        slowness = self.balancer.plan.ownership.slowness
        return tuple(1 / each for each in slowness) if all(each > 0 for each in slowness) else self.tp.speeds

    def _forget_iteration(self) -> None:
        """Undo what forward and backward pass of a skipped iteration left in buffers and in kept gradients."""
        if self._before is not None:
            self._before.put_back()
        self.balancer.assigner.forget_gradients()

    def iteration_ended(self) -> None:
        """Note the buffers as those before the coming iteration."""
        if self._before is not None:
            self._before.take()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of balancing, ready for JSON."""
        saved = self.saved_time
        return {
            "savedSeconds": saved.seconds,
            "deletedIterations": saved.deleted_iterations,
            "balancing": self.balancer.state(),
            **model_facts(self.model),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint, whose tensors are in place, and what `state` returned for it; empty: none."""
        self.balancer.resume()
        self.iteration_ended()
        refuse_other_shapes(self.optimizer, self.parameters)
        self.saved_time.seconds = float(state.get("savedSeconds", 0.0))
        self.saved_time.deleted_iterations = float(state.get("deletedIterations", 0.0))


def _named(found: Mapping[str, Sequence[int]], other: str) -> str:
    """Return the first few tensors that differ from `other`, with their ranks."""
    return listed([f"{name} of {ranks_listed(ranks)} from {other}" for name, ranks in found.items()], 3)
