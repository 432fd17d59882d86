"""The table of docs/algorithms.md: where each part of the paper's system is, what tests it, and the figure about it.

Every name in it is looked up: fields in the models of the api, code by import, tests in their files, figures in the
bench. A name that is gone is an error.
"""

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterotp_api.base import Model
from heterotp_api.injection import Pattern
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Mig, Semi, Zero
from heterotp_cli.bench import emulation, rank_time, study_gang
from heterotp_cli.bench.scenarios import FIGURES
from heterotp_trainer.balancing import layer_columns, migration, paper_equations, pruning
from heterotp_trainer.balancing.due import situation_of
from heterotp_trainer.balancing.strategies.semi import semi
from heterotp_trainer.boundary import injection_schedule
from heterotp_trainer.plans import work_plan
from heterotp_trainer.rebalancing import column_selection, cost_calibration
from heterotp_trainer.tensor_parallel import column_partition, column_transport, resized

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "algorithms.md"
BEGIN, END = "<!-- the paper's system -->", "<!-- end of the paper's system -->"
EQUATIONS = "tests/unit/trainer/balancing/test_paper_equations.py"
RESIZED = "tests/distributed/trainer/tensor_parallel/test_resized.py"
SELECTION = "tests/unit/trainer/rebalancing/test_column_selection.py"


class Misplaced(Exception):
    """A part of the paper's system whose field, test or figure does not exist, or a page without a place for it."""


@dataclass(frozen=True)
class Part:
    """One part of the paper's system. fields: (model, path of it in a policy, field). test: (file, name)."""

    name: str
    where: str  # in the paper
    fields: Sequence[tuple[type[Model], str, str]]
    code: Any
    test: tuple[str, str]
    figures: Sequence[str] = ()


PARTS = (
    Part(
        "ZERO-resizing: dual pruning",
        "section 3.1",
        [(BalancingSettings, "", "strategy")],
        resized.ResizedColumn,
        (RESIZED, "test_pruned_equals_the_dense_formula_with_imputed_columns"),
        ["homogeneous", "fixed-skew"],
    ),
    Part(
        "imputation Same, Zero, Average",
        "section 3.1",
        [(Zero, "zero", "imputation")],
        resized.ResizedRow,
        (RESIZED, "test_pruned_equals_the_dense_formula_with_imputed_columns"),
        ["imputation"],
    ),
    Part(
        "lineage",
        "section 3.1",
        [],
        column_partition.ColumnPartition,
        (
            "tests/unit/trainer/tensor_parallel/test_saved_tensors.py",
            "test_a_pruned_linear_saves_no_more_than_the_plain_one",
        ),
    ),
    Part(
        "gamma: eq. 1",
        "section 3.1",
        [(Zero, "zero", "criterion"), (Zero, "zero", "times"), (Zero, "zero", "gammaBy")],
        pruning.prune_stragglers,
        (EQUATIONS, "test_gamma_is_the_gap_over_the_matmul_seconds"),
        ["dynamic"],
    ),
    Part(
        "a new gamma on a change of over 10 %",
        "section 3.1",
        [(BalancingSettings, "", "replanThreshold")],
        situation_of,
        (
            "tests/unit/trainer/balancing/test_due.py",
            "test_work_that_stays_the_same_keeps_its_number_and_gets_the_right_prediction",
        ),
        ["dynamic"],
    ),
    Part(
        "ZERO-Rd",
        "section 5",
        [(Zero, "zero", "selection"), (Zero, "zero", "redraw")],
        column_selection.redrawn,
        (
            "tests/unit/trainer/rebalancing/test_balancer.py",
            "test_random_columns_are_drawn_again_while_the_plan_stays_the_same",
        ),
        ["homogeneous"],
    ),
    Part(
        "ZERO-Pri: priorities",
        "section 3.2",
        [(Zero, "zero", "selection"), (Zero, "zero", "statisticsEvery")],
        column_selection.Importance,
        (SELECTION, "test_the_blocks_that_moved_least_are_chosen_first"),
        ["homogeneous", "dynamic"],
    ),
    Part(
        "ZERO-PriDiffE, PriDiffR: ratios by layer",
        "section 3.2",
        [(Zero, "zero", "layerRatios"), (Zero, "zero", "thetaMode"), (Zero, "zero", "thetaPerIteration")],
        layer_columns.columns_by_layer,
        (EQUATIONS, "test_the_ratio_of_a_layer_is_the_larger_one"),
        ["dynamic", "one-straggler"],
    ),
    Part(
        "migration: broadcast-reduce, scatter-gather",
        "section 4.1",
        [(Mig, "mig", "primitive")],
        column_transport.transport_for,
        (RESIZED, "test_migrated_equals_not_migrated"),
        ["table1"],
    ),
    Part(
        "virtual ranks, equal parts",
        "section 4.2",
        [(Mig, "mig", "parts"), (Mig, "mig", "target")],
        work_plan.in_turn,
        (EQUATIONS, "test_mig_brings_the_straggler_to_the_minimum_and_receivers_get_equal_parts"),
        ["one-straggler"],
    ),
    Part(
        "pretest: Omega, Phi",
        "section 4.2",
        [],
        cost_calibration.calibrate_costs,
        (
            "tests/unit/trainer/rebalancing/test_cost_calibration.py",
            "test_the_link_is_fitted_to_transfers_of_relevant_sizes",
        ),
    ),
    Part(
        "SEMI, one straggler: eq. 2",
        "section 4.2",
        [(Semi, "semi", "betaRule")],
        paper_equations.balanced_beta,
        (EQUATIONS, "test_equation_2_balances_what_is_printed"),
        ["one-straggler"],
    ),
    Part(
        "SEMI, several stragglers: eq. 3",
        "section 4.2",
        [(Semi, "semi", "splitRule"), (Semi, "semi", "migratingStragglers")],
        paper_equations.migrating,
        (EQUATIONS, "test_equation_3_with_the_papers_last_figure"),
        ["several"],
    ),
    Part(
        "Algorithm 2: who prunes, who migrates",
        "section 4.2",
        [(BalancingSettings, "", "maxPrunedShare")],
        semi,
        ("tests/unit/trainer/balancing/strategies/test_semi.py", "test_several_migrate_from_the_slowest_on"),
        ["several"],
    ),
    Part(
        "who receives migrated work",
        "section 4.1",
        [],
        migration.receivers_of,
        (
            "tests/distributed/trainer/rebalancing/test_columns_exchanged.py",
            "test_all_ranks_know_of_the_same_pieces_and_they_are_all_columns_given",
        ),
        ["one-straggler"],
    ),
    Part(
        "stragglers made on purpose, round-robin",
        "section 5.1",
        [(Pattern, "pattern", "roundRobin")],
        injection_schedule.target_ranks,
        (
            "tests/unit/trainer/boundary/test_injection_schedule.py",
            "test_round_robin_counts_iterations_since_it_took_effect",
        ),
        ["dynamic"],
    ),
    Part(
        "every equation as it is printed",
        "all",
        [(BalancingSettings, "", "preset")],
        paper_equations.gain,
        (EQUATIONS, "test_preset_paper_finds_the_papers_sweet_spot"),
        ["dynamic", "one-straggler", "real-cpu"],
    ),
    Part(
        "the paper's machine, ViT-1B and ViT-3B",
        "section 5.1",
        [],
        emulation.PaperModel,
        ("tests/unit/cli/bench/test_bench_paper.py", "test_the_emulated_iteration_is_the_papers_at_any_pace"),
        ["homogeneous", "fixed-skew", "dynamic", "table1"],
    ),
    Part(
        "times of real gangs",
        "section 5",
        [],
        rank_time.main,
        ("tests/distributed/cli/test_bench_runs.py", "test_real_ranks_are_measured_under_every_strategy"),
        ["real-cpu", "real-gpu"],
    ),
    Part(
        "accuracies",
        "section 5",
        [],
        study_gang.train_gang,
        (
            "tests/distributed/cli/test_accuracy_study.py",
            "test_one_process_trains_what_a_gang_of_real_ranks_trains",
        ),
    ),
)


def page() -> str:
    """Return docs/algorithms.md with the table as it is now. Raises Misplaced."""
    text = PAGE.read_text(encoding="utf-8")
    place = re.compile(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if len(place.findall(text)) != 1:
        raise Misplaced(f"{PAGE.name}: has no place for the table of the paper's system")
    head = ["| the paper | where | field | file | test | figure |", "|" + " --- |" * 6]
    table = "\n".join([*head, *map(_row, PARTS)])
    return place.sub(lambda _: f"{BEGIN}\n\n{table}\n\n{END}", text)


def _row(part: Part) -> str:
    fields = ", ".join(f"`{_field(*each)}`" for each in part.fields) or "-"
    figures = ", ".join(f"`{_figure(name)}`" for name in part.figures) or "-"
    file = Path(inspect.getsourcefile(part.code) or "").resolve().relative_to(ROOT)
    return f"| {part.name} | {part.where} | {fields} | `{file}` | `{_test(*part.test)}` | {figures} |"


def _field(model: type[Model], path: str, name: str) -> str:
    if name not in {field.alias or own for own, field in model.model_fields.items()}:
        raise Misplaced(f"{model.__name__} has no field {name}")
    return f"{path}.{name}" if path else name


def _figure(name: str) -> str:
    if name not in FIGURES:
        raise Misplaced(f"the bench has no figure {name}")
    return name


def _test(file: str, name: str) -> str:
    path = ROOT / file
    known = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ()
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in known):
        raise Misplaced(f"{file} has no test {name}")
    return f"{Path(file).name}::{name}"
