"""Long periods, simulated: the trainer's own decision on computed times, with a straggler that wanders."""

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


def machine_of(model: PaperModel) -> Any:
    """Return the paper's machine as a pretest would find it: straight lines, even shares."""
    from heterotp_trainer.balancing.simulate import Machine
    from heterotp_trainer.balancing.work import Costs, Curve, Line, LinearClass, Link, Moving
    from heterotp_trainer.tensor_parallel.units import Plan

    width, ffn, head = model.width, FFN_RATIO * model.width, model.width // model.heads
    plan, replicated = Plan.even(RANKS, model.heads, ffn), (width,) * RANKS
    sizes = [("qkv", "column", "heads", 3 * head), ("proj", "row", "heads", head)]
    sizes += [("fc1", "column", "ffn", 1), ("fc2", "row", "ffn", 1)]
    classes = tuple(
        LinearClass(name, parallel, replicated, replicated, model.rows, PAPER_DEPTH, family, per_unit).owned_by(plan)  # type: ignore[arg-type]
        for name, parallel, family, per_unit in sizes
    )
    operations = sum(each.operations(0, each.columns[0]) for each in classes)
    curves = tuple(
        Curve(
            (0.0, float(each.columns[0])),
            (0.0, model.matmul_seconds * each.operations(0, each.columns[0]) / operations / each.calls),
            each.outputs[0],
        )
        for each in classes
    )
    tree, pair = (Line(steps * LATENCY_SECONDS, 1 / LINK_BYTES_PER_SECOND) for steps in (3, 1))
    state = STATE_BYTES * PAPER_DEPTH * width
    moving = Moving(4 * head * state, 2 * state)
    costs = Costs(classes, (curves,) * RANKS, (64,) * RANKS, Link(tree, tree, pair), PAPER_ITEM_BYTES, moving=moving)
    rest = model.iteration_seconds - model.matmul_seconds
    return Machine(costs, plan, fixed=rest * (1 - WAITING), wait=rest * WAITING)


def mean_seconds(model: PaperModel, policy: dict[str, Any], chi: float, period: int) -> float:
    """Return the mean seconds of an iteration when the straggler moves on every `period` iterations."""
    from heterotp_api.policy import BalancingSettings
    from heterotp_trainer.balancing.simulate import Simulation

    run = Simulation(machine_of(model), BalancingSettings.model_validate(policy))
    turns = max(STEPS, -(-LEAST_ITERATIONS // period))
    seconds = 0.0
    for turn in range(turns):
        chis = [chi if rank == turn % RANKS else 1.0 for rank in range(RANKS)]
        seconds += sum(count * each.seconds for count, each in run.run(chis, period))
    return seconds / (turns * period)
