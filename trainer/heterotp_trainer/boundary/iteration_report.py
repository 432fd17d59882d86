"""This rank's report of the iteration that ends, made of what the iteration measured and what holds now."""

from collections.abc import Mapping
from dataclasses import replace

from heterotp_trainer.boundary.batch_hash import Entered
from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.iteration_context import IterationContext, RecentContexts
from heterotp_trainer.devices.machine.reading import NO_READING, Reading
from heterotp_trainer.devices.phase_clock import ATTENTION, UPDATE, VOCABULARY
from heterotp_trainer.devices.stage_times import StageTimes
from heterotp_trainer.plans.unit_plan import Family

WARM_UP_ITERATIONS = 2  # of an attempt; they enter no statistic


class IterationStatistics:
    """Which iterations of an attempt may enter statistics, and what held in each of the newest ones."""

    def __init__(self) -> None:
        self.started = 0  # the iteration that the attempt continues from
        self._whole = False  # False: the current iteration contains more than training, or is the attempt's first
        self._recent = RecentContexts()

    def leave_out(self) -> None:
        """Leave the current iteration out of every statistic."""
        self._whole = False

    def end(self, iteration: int, age: int | None, context: IterationContext) -> IterationContext:
        """End `iteration`, in which `context` held; return the context of the iteration `age` iterations ago.

        age: see Clock; `measured` of the context is decided here.
        """
        measured = self._whole and iteration - self.started > WARM_UP_ITERATIONS
        self._whole = True
        self._recent.add(replace(context, measured=measured))
        return self._recent.of(age)


def iteration_report(
    *,
    iteration: int,
    flags: int,
    spent: dict[str, float],
    stages: StageTimes,
    owned: Mapping[Family, float],
    ran: IterationContext,
    control: ControlChannel,
    ready: int,
    pace_ratio: float,
    plan: int,
    batch: Entered,
    loss: float,
    machine: Reading = NO_READING,
) -> Report:
    """Return the report.

    spent: seconds by phase, those of attention, vocabulary and update apart; stages: the same by stage.
    owned: each family's part of the rank's sharded parameters, 0..1. ran: the context that these seconds belong to.
    machine: what the rank's machine says now.
    """
    seconds = dict(spent)
    update, attention, vocabulary = (seconds.pop(name) for name in (UPDATE, ATTENTION, VOCABULARY))
    seconds["unit"] += update + attention + vocabulary
    generation, length = control.announcement()
    return Report(
        iteration=iteration,
        flags=flags,
        generation=generation,
        document_bytes=length,
        measured=int(ran.measured),
        applied=control.generation,
        decision_id=ran.decision_id,
        ready=ready,
        plan=plan,
        batch=batch.hash,
        batch_norm=batch.norm,
        batch_signed=batch.signed,
        full=seconds["matmul"] * ran.full_work_factor,
        unslowed=ran.unslowed,
        attention=attention + update * owned["heads"],
        vocabulary=vocabulary + update * owned["vocab"],
        pace_ratio=pace_ratio,
        loss=loss,
        seconds=seconds,
        stages=stages,
        machine=machine,
    )
