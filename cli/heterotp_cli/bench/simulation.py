"""Long periods, simulated: the trainer's own decision on computed times, with a straggler that changes place."""

from typing import Any

from heterotp_cli.bench.emulation import (
    FFN_RATIO,
    LATENCY_SECONDS,
    LINK_BYTES_PER_SECOND,
    PAPER_DEPTH,
    PAPER_ITEM_BYTES,
    RANKS,
    PaperModel,
)

PERIODS = (1, 10, 100, 1000)
STEPS = 3  # stragglers in turn, at least
LEAST_ITERATIONS = 120
WAITING = 0.9  # of what is neither products nor waiting for others: collectives, the rest is fixed work
STATE_BYTES = 12  # of a parameter with Adam's moments, fp32
GRAIN = 64  # hidden units that stay together, as on CUDA


def machine_of(model: PaperModel) -> Any:
    """Return the paper's machine as cost calibration would measure it: straight lines, even shares."""
    from heterotp_trainer.balancing.simulation import Machine
    from heterotp_trainer.plans.unit_plan import UnitPlan

    from heterotp_cli.simulate.blocks import Blocks, costs_of, link_of

    ffn = FFN_RATIO * model.width
    plan = UnitPlan.even(RANKS, model.heads, ffn)
    blocks = Blocks.plain(model.width, model.heads, model.rows, PAPER_DEPTH, STATE_BYTES * PAPER_DEPTH)
    operation = model.matmul_seconds * RANKS / blocks.operations(plan)
    link = link_of(RANKS, LATENCY_SECONDS, 1 / LINK_BYTES_PER_SECOND)
    costs = costs_of(blocks, plan, [operation] * RANKS, link, PAPER_ITEM_BYTES, GRAIN)
    rest = model.iteration_seconds - model.matmul_seconds
    return Machine(costs, plan, fixed=rest * (1 - WAITING), wait=rest * WAITING)


def mean_seconds(model: PaperModel, policy: dict[str, Any], chi: float, period: int) -> float:
    """Return the mean seconds of an iteration when another rank is the straggler every `period` iterations."""
    from heterotp_api.policy import BalancingSettings
    from heterotp_trainer.balancing.simulation import Simulation

    run = Simulation(machine_of(model), BalancingSettings.model_validate(policy))
    turns = max(STEPS, -(-LEAST_ITERATIONS // period))
    seconds = 0.0
    for turn in range(turns):
        chis = [chi if rank == turn % RANKS else 1.0 for rank in range(RANKS)]
        seconds += sum(count * each.seconds for count, each in run.run(chis, period))
    return seconds / (turns * period)
