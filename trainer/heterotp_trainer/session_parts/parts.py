"""The parts of a session, and how they are put together."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from heterotp_api.rank_trace import TRACES

from heterotp_trainer.boundary.control_channel import ControlChannel, ControlError
from heterotp_trainer.boundary.heartbeat import Heartbeat
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.iteration_report import IterationStatistics
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.machine.watch import watch_of
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.launch.door import key_of
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.rendezvous import Gang
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.speed_probe import initial_speeds
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.session_parts.checkpoints import SessionCheckpoints
from heterotp_trainer.session_parts.ending import Ending
from heterotp_trainer.session_parts.in_force import InForce
from heterotp_trainer.session_parts.reports import Reports
from heterotp_trainer.session_parts.telemetry import Telemetry
from heterotp_trainer.session_parts.tracing import Tracing
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.whole_only import refuse_drawing_units


@dataclass(frozen=True)
class Member:
    """A rank that joined its gang."""

    environment: RankEnvironment
    gang: Gang
    device: Device
    clock: Clock
    where: Whereabouts


@dataclass(frozen=True)
class Parts:
    """The parts of one session; statistics: which iterations enter them."""

    heartbeat: Heartbeat
    control: ControlChannel
    injector: Injector
    statistics: IterationStatistics
    checkpoints: SessionCheckpoints
    reports: Reports
    in_force: InForce
    telemetry: Telemetry
    ending: Ending
    tracing: Tracing


def make_parts(
    member: Member,
    reporter: Callable[[], NullReporter],
    refused: Callable[[ControlError], None],
    *,
    shown: bool,
) -> Parts:
    """Make the parts; the ranks agree on who owns their checkpoints (all ranks).

    reporter: returns that of now. refused: see ControlChannel; shown: see Telemetry. Raises CheckpointError on all
    ranks together.
    """
    environment, gang, where, statistics = member.environment, member.gang, member.where, IterationStatistics()
    rank, ranks = environment.rank, environment.ranks
    heartbeat = Heartbeat(
        gang.heartbeats,
        rank,
        ranks,
        where,
        member.clock,
        lambda message, code: ending.at_once(message, code),  # the thread starts when there is one
        lambda stall: reporter().stalled(stall),
        environment.spec.run_policy.progress_deadline_seconds,
    )
    directory, group = environment.control_dir if rank == 0 else None, gang.control_group
    started = environment.spec.process_count
    control = ControlChannel(directory, started, group, refused, key_of(environment), rank)
    injector = Injector(member.device, rank, environment.origins, started)
    checkpoints = SessionCheckpoints(environment, group, heartbeat, where, injector, statistics, reporter)
    keeper = checkpoints.keeper
    machine = watch_of(member.device.uuid)
    reports = Reports(
        gang.exchange_group, where, control, injector, keeper, statistics, machine, rank=rank, ranks=ranks
    )
    root = environment.workdir / TRACES if environment.workdir is not None else None
    cuda = member.device.torch_device.type == "cuda"
    tracing = Tracing(root, environment.origins[rank], gang.facts[rank].boot, member.clock, statistics, cuda=cuda)
    in_force = InForce(control, injector, statistics, reporter, tracing)
    telemetry = Telemetry(environment, gang, heartbeat, control, shown=shown)
    ending = Ending(heartbeat, control, telemetry, machine, reporter)
    return Parts(heartbeat, control, injector, statistics, checkpoints, reports, in_force, telemetry, ending, tracing)


def make_context(member: Member, dtype: torch.dtype, probe: tuple[int, int, int]) -> TPContext:
    """Return this rank's view of its group, with the speeds that decide on the first shares (all ranks).

    probe: see initial_speeds.
    """
    environment, gang, device = member.environment, member.gang, member.device
    if environment.ranks > 1:
        refuse_drawing_units()
    speeds = initial_speeds(environment, device, gang.control_group, probe, dtype)
    return TPContext(
        gang.tp_group if environment.ranks > 1 else None,
        environment.rank,
        environment.ranks,
        device,
        member.clock,
        UnitPlan.empty(environment.ranks),
        dtype,
        tuple(speeds or ()),
        gang.control_group,
        member.where,
        environment.spec.collective_timeout_seconds,
    )
