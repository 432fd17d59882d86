"""Machines to train on without training: eight equal ranks, some of which become slow."""

from heterotp_api.policy import BalancingSettings
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.reshard_problem import ReshardProblem
from heterotp_trainer.balancing.simulation import Machine, Simulation
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, UnitMoveCost
from heterotp_trainer.plans.unit_plan import UnitPlan
from hypothesis import strategies as st

HEADS, UNITS, HEAD_SIZE = 32, 1024, 8
WIDTH = HEADS * HEAD_SIZE
FAST = Link(Line(), Line(), Line(0.0, 1e-9))
DEAR = Link(Line(), Line(), Line(0.0, 2e-5))  # 10 s and more for a move


def machine(ranks=8, matmul=0.4, fixed=0.6, link=FAST, curve=(1.0,), plan=None, rows=0, **more):
    """Return ranks whose products take `matmul` seconds with even shares, a third of it attention's.

    curve: seconds at equal parts of all columns, relative to a straight line's at the end. rows: of a vocabulary, whose
    logits take half of `matmul` on top.
    """
    plan = plan or UnitPlan.even(ranks, HEADS, UNITS, rows)
    sizes = [
        ("qkv", "column", WIDTH, 3 * HEAD_SIZE, "heads"),
        ("proj", "row", HEAD_SIZE, WIDTH, "heads"),
        ("fc1", "column", WIDTH, 1, "ffn"),
        ("fc2", "row", 1, WIDTH, "ffn"),
    ]
    sizes += [("head", "column", WIDTH, 1, "vocab")] if rows else []
    parts = {"qkv": 0.25, "proj": 1 / 12, "fc1": 1 / 3, "fc2": 1 / 3, "head": 0.5}
    totals = {"heads": HEADS, "ffn": UNITS, "vocab": rows}
    classes, curves = [], []
    for name, parallel, width, per_unit, family in sizes:
        even = totals[family] * per_unit // ranks
        columns, outputs = (width, even) if parallel == "column" else (even, width)
        linears = LinearClass(name, parallel, (columns,) * ranks, (outputs,) * ranks, 16, 1, family, per_unit)
        classes.append(linears.owned_by(plan))
        xs = [columns * (n + 1) / len(curve) for n in range(len(curve))]
        curves.append(Curve((0.0, *xs), (0.0, *(matmul * parts[name] * y for y in curve)), outputs))
    unit_move = UnitMoveCost(4 * WIDTH * HEAD_SIZE * 12, 2 * WIDTH * 12, 2 * WIDTH * 12)
    costs = Costs(tuple(classes), (tuple(curves),) * ranks, (16,) * ranks, link, unit_move=unit_move)
    return Machine(costs, plan, fixed=fixed, **more)


def simulation(found=None, **policy):
    """Return a run of a machine under a policy, AUTO without loss by default."""
    return Simulation(found or machine(), BalancingSettings(**{"strategy": "AUTO", **policy}))


def train(run, chis, count):
    """Train so many iterations at these slow-downs; return what each took."""
    return [run.step(chis) for _ in range(count)]


def measured(found, chis, **more):
    """Return the observation of an iteration of a machine at these slow-downs, without other work."""
    nothing = [0.0] * len(chis)
    return Observation.of((found.costs.tables.full * chis).tolist(), nothing, nothing, nothing, **more)


def problem_of(found, chis, **more):
    """Return the case for other shares of a machine at these slow-downs."""
    return ReshardProblem(found.costs, measured(found, chis, **more), found.unit_plan)


def one(chi, ranks=8, place=0):
    """Return chi for one rank, 1 for the others."""
    return [chi if rank == place else 1.0 for rank in range(ranks)]


@st.composite
def partitions(draw, ranks, heads=12, units=40, rows=0):
    """Draw a plan in which ranks own units from all over, some of them none."""

    def deal(count):
        owners = draw(st.lists(st.integers(0, ranks - 1), min_size=count, max_size=count))
        return tuple(tuple((u, u + 1) for u in range(count) if owners[u] == rank) for rank in range(ranks))

    return UnitPlan(deal(heads), deal(units), deal(rows))
