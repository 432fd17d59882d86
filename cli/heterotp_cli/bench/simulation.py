"""Long periods, simulated: the trainer's own decision on computed times, with a straggler that wanders.

Nothing is run: an iteration takes what `iteration_seconds` says of the plan in force at the true speeds. A decision
sees an iteration one boundary later and takes effect at once, as in the trainer.
"""

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


def costs_of(model: PaperModel) -> Any:
    """Return the costs that a pretest would find on the paper's machine: straight lines."""
    from heterotp_trainer.balancing.work import Costs, Curve, Line, LinearClass, Link

    width, ffn = model.width, FFN_RATIO * model.width
    sizes = [
        ("qkv", "column", width, 3 * width // RANKS),
        ("proj", "row", width // RANKS, width),
        ("fc1", "column", width, ffn // RANKS),
        ("fc2", "row", ffn // RANKS, width),
    ]
    classes = tuple(
        LinearClass(name, parallel, (columns,) * RANKS, (outputs,) * RANKS, model.rows, PAPER_DEPTH)  # type: ignore[arg-type]
        for name, parallel, columns, outputs in sizes
    )
    operations = sum(c.operations(0, c.columns[0]) for c in classes)
    curves = tuple(
        Curve(
            (0.0, float(c.columns[0])),
            (0.0, model.matmul_seconds * c.operations(0, c.columns[0]) / operations / c.calls),
        )
        for c in classes
    )
    tree, pair = (Line(steps * LATENCY_SECONDS, 1 / LINK_BYTES_PER_SECOND) for steps in (3, 1))
    return Costs(classes, (curves,) * RANKS, (64,) * RANKS, Link(tree, tree, pair), PAPER_ITEM_BYTES)


def mean_seconds(model: PaperModel, policy: dict[str, Any], chi: float, period: int) -> float:
    """Return the mean seconds of an iteration when the straggler moves on every `period` iterations."""
    from heterotp_api.policy import BalancingSettings
    from heterotp_trainer.balancing.decide import decide
    from heterotp_trainer.balancing.history import History
    from heterotp_trainer.balancing.predict import iteration_seconds
    from heterotp_trainer.balancing.work import WorkPlan

    settings = BalancingSettings.model_validate(policy)
    costs, history, plan = costs_of(model), History(settings.window), WorkPlan()
    wait = (model.iteration_seconds - model.matmul_seconds) * 0.9
    count = max(LEAST_ITERATIONS, STEPS * period)
    total, newest, fresh = 0.0, None, False
    for iteration in range(count):
        seen = _observation(model, costs, plan, chi, iteration // period % RANKS, wait)
        total += iteration_seconds(costs, seen, plan.taken, plan.receivers, plan.primitive, wait)
        if newest is not None:
            history.add(newest)
        newest = None if fresh else seen  # the first iteration of a plan is left out
        decided = decide(history, settings, plan, costs)
        fresh, plan = decided.work != plan.work, decided
    return total / count


def _observation(model: PaperModel, costs: Any, plan: Any, chi: float, straggler: int, wait: float) -> Any:
    from heterotp_trainer.balancing.history import Observation

    full = [model.matmul_seconds * (chi if rank == straggler else 1.0) for rank in range(RANKS)]
    rest = model.iteration_seconds - model.matmul_seconds - wait
    return Observation.of(full, [0.0] * RANKS, [rest] * RANKS, [wait] * RANKS, plan.migrates)
