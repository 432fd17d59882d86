"""`heterotp bench paper`: what is measured, what it comes to, what the page says of it; nothing is measured here."""

import csv
import math
from dataclasses import replace

import pytest
from click.testing import CliRunner
from heterotp_cli.bench import page, statistics
from heterotp_cli.bench.drawn import DRAWN, drawn
from heterotp_cli.bench.emulation import EPOCH_ITERATIONS, MODELS, RANKS, VIT_1B, VIT_3B, fluid_limit
from heterotp_cli.bench.figure import Claim, Figure, verdict
from heterotp_cli.bench.live import DETECTION, WARM_UP, document, measured, settled
from heterotp_cli.bench.scenarios import EVEN, FIGURES, FULL, QUICK, Step, gang_runs, one
from heterotp_cli.bench.simulation import mean_seconds
from heterotp_cli.bench.store import Store
from heterotp_cli.bench.trials import always, eq1_ratio, in_turn, trials
from heterotp_cli.bench_command import check_figures, command, time_key
from heterotp_cli.errors import BadInput

ZERO = {"strategy": "ZERO", "zero": {"selection": "Pri"}}


# -- what is emulated -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
@pytest.mark.parametrize("pace", [1.0, 0.5])
def test_the_emulated_iteration_is_the_papers_at_any_pace(model, pace):
    device = model.device(pace)
    operations = 6 * model.tiny_rows * 12 * model.tiny_width**2 * 2 / RANKS
    matmul = operations / (device["teraflops"] * 1e12)
    nbytes = model.tiny_rows * model.tiny_width * 4
    collective = device["linkLatencySeconds"] + 1.75 * nbytes / device["linkBytesPerSecond"]
    assert matmul == pytest.approx(pace * model.matmul_share * model.iteration_seconds)
    assert matmul + 8 * collective + device["fixedSeconds"] == pytest.approx(pace * model.iteration_seconds)


def test_the_job_is_a_valid_one_of_eight_ranks():
    even, uneven = (VIT_3B.job("b", speeds, "m", 1.0) for speeds in (EVEN, tuple(1 / c for c in one(8, 2))))
    assert (even.spec.process_count, len(even.spec.worker_groups)) == (8, 1)
    assert [group.relative_speed for group in uneven.spec.worker_groups] == [1, 1, 0.125, 1, 1, 1, 1, 1]


def test_the_fluid_limit_is_the_specs():
    base, matmul = VIT_1B.iteration_seconds, VIT_1B.matmul_seconds
    assert (fluid_limit(VIT_1B, one(8, 0)) - base + matmul) / matmul == pytest.approx(1.123, abs=1e-3)
    assert fluid_limit(VIT_1B, EVEN) == pytest.approx(base)


# -- what is measured -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [QUICK, FULL], ids=["quick", "full"])
def test_every_step_has_a_name_and_a_policy_of_its_own(size):
    from heterotp_api.policy import BalancingSettings, policy_problem

    for run in gang_runs(size, FIGURES):
        assert len({step.name for step in run.steps}) == len(run.steps)
        for step in run.steps:
            assert policy_problem(BalancingSettings.model_validate(step.policy), RANKS) is None


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_alone_needs_the_baseline_and_its_own(figure):
    steps = [step for run in gang_runs(FULL, [figure]) for step in run.steps]
    assert all(figure in step.figures for step in steps)
    assert any(step.name == "baseline" for step in steps)


def test_a_run_goes_on_without_what_is_measured(tmp_path):
    store = Store(tmp_path)
    run = gang_runs(QUICK, ["table1"])[0]
    store.add(time_key(run, run.steps[0]), steady=1.0)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"key": "half')  # killed while it wrote
    again = Store(tmp_path)
    left = run.without({step.name for step in run.steps if time_key(run, step) in again})
    assert [step.name for step in left.steps] == [step.name for step in run.steps[1:]]


def test_trials_are_paired_by_seed_and_twins_are_trained_once():
    every = trials(QUICK, FIGURES, {})
    names = {trial.name for trial in every}
    assert len(every) == len(names) * QUICK.seeds
    assert all(len({t.seed for t in every if t.name == name}) == QUICK.seeds for name in names)
    two = {"chis": (2.0, 8.0), "everything": True}
    twins = [
        t for t in trials(replace(QUICK, **two), FIGURES, {}) if t.name.startswith("dynamic PriDiffE") and not t.seed
    ]
    assert len(twins) == 2 and twins[0].content == twins[1].content  # one half, whatever chi
    assert len({trial.content for trial in every if not trial.seed}) == len(names)


def test_ratios_follow_from_the_decisions():
    assert [eq1_ratio(chi) for chi in (2, 8, 100)] == [0.5, 0.875, 0.9]
    assert in_turn(0.5, 9)[8] == in_turn(0.5, 9)[0] == (0.5, *[0.0] * 7)
    assert always([0.1] * 8, 3) == ((0.1,) * 8,) * 3
    times = {"time/vit-1b/SEMI chi 8": {"prunedRatio": [0, 0, 0.3]}, "time/vit-1b/several SEMI": {"prunedRatio": [0.2]}}
    found = {trial.name: trial for trial in trials(QUICK, ["one-straggler", "several"], times)}
    assert max(found["one straggler SEMI 8"].ratios[0]) == 0.3
    assert found["several SEMI"].ratios[0] == (0.2,)


# -- when a step is at rest -------------------------------------------------------------------------------


def line(plan=1, seconds=1.0, measured=True):
    ranks = [{"matmul": 0.5}, {"matmul": 0.25}]
    return {"plan": plan, "iterationSeconds": seconds, "measured": measured, "ranks": ranks}


@pytest.mark.parametrize(
    ("policy", "chis", "lines", "rests"),
    [
        ({"strategy": "None"}, one(8, 0), WARM_UP + 2, True),
        ({"strategy": "None"}, one(8, 0), WARM_UP + 1, False),
        (ZERO, one(8, 0), DETECTION + 1, False),
        (ZERO, one(8, 0), DETECTION + 2, True),
        (ZERO, EVEN, WARM_UP + 2, True),
        ({"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [0]}}, one(8, 0), WARM_UP + 2, True),
    ],
    ids=["none", "too few", "before a decision", "decided", "nothing to decide", "fixed"],
)
def test_a_step_rests_when_its_decision_is_through(policy, chis, lines, rests):
    step = Step("s", policy, chis)
    assert (settled([line()] * lines, step, 2) is not None) == rests


def test_a_step_does_not_rest_while_plans_change():
    step = Step("s", ZERO, one(8, 0))
    assert settled([*[line(1)] * 20, line(2)], step, 2) is None
    assert settled([*[line(1)] * 20, line(2), line(2, measured=False), line(2)], step, 2) is not None


def test_times_are_the_papers_whatever_the_pace():
    lines = [line(1, 4.0), line(1, 4.0), line(2, 1.0), line(2, 3.0), line(2, 2.0)]
    found = measured(lines, lines[2:], 0.5)
    assert (found["steady"], found["transition"], found["matmul"]) == (4.0, [8.0, 8.0], [1.0, 0.5])
    assert statistics.composed_epoch(found) == 16 + (EPOCH_ITERATIONS - 2) * 4


def test_the_document_slows_whom_the_step_names():
    found = document(3, Step("s", ZERO, one(4, 5)))
    assert [(i["ranks"], i["slowdown"]) for i in found["injections"]] == [([5], 4)]
    assert (found["generation"], found["balancing"]) == (3, ZERO)


# -- what it comes to -------------------------------------------------------------------------------------


def test_an_interval_is_students():
    found = statistics.interval([1.0, 2.0, 3.0])
    assert (found.mean, found.low) == (2.0, pytest.approx(2 - 4.30265 / math.sqrt(3), rel=1e-4))
    assert not found.above and not found.below
    assert statistics.interval([1.0]).low == -math.inf


def test_differences_are_paired():
    results = {f"trial/a/{seed}": {"accuracy": seed + 0.1} for seed in range(4)}
    results |= {f"trial/b/{seed}": {"accuracy": float(seed)} for seed in range(5)}
    found = statistics.paired(results, "a", "b", "accuracy")
    assert (found.mean, found.count, found.above) == (pytest.approx(0.1), 4, True)
    assert statistics.paired(results, "a", "c", "accuracy") is None


@pytest.mark.parametrize(
    ("holds", "fails", "word"),
    [(True, False, "holds"), (False, True, "does not hold"), (False, False, "undecided")],
)
def test_verdicts(holds, fails, word):
    assert verdict(holds, fails) == word


def paper_times():
    """Results as the paper has them, where it gives numbers."""
    base = VIT_1B.iteration_seconds

    def step(seconds, pruned=0.0, matmul=None):
        ranks = {"prunedRatio": [pruned] + [0.0] * 7, "matmul": [matmul or VIT_1B.matmul_seconds] * 8}
        return {"steady": seconds, "transition": [], **ranks}

    times = {"baseline": step(base), "homogeneous Pri 0.5": step(base * 0.815), "homogeneous Rd 0.9": step(base * 0.7)}
    times["homogeneous Pri 0.9"] = step(base * 0.7)
    for chi in FULL.chis:
        times[f"Baseline chi {chi:g}"] = step(base * (0.63 + 0.37 * chi))
        times |= {f"{n} chi {chi:g}": step(base * 1.02, 0.8) for n in ("ZERO-Pri", "ZERO-PriDiffR")}
        times[f"ZERO-PriDiffE chi {chi:g}"] = step(base * (0.63 + 0.37 * chi) / 2.1, 0.5)
        times[f"MIG chi {chi:g}"] = step(base * 1.4)
        times[f"SEMI chi {chi:g}"] = step(base * 1.05, 0.5)
    for split, seconds in {"lambda 0": 1.1, "lambda 3": 1.2, "Baseline": 3.6, "SEMI": 1.1}.items():
        times[f"several {split}"] = step(base * seconds)
    return {f"time/vit-1b/{name}": result for name, result in times.items()}


def claims(figure, results):
    return {claim.text: claim.verdict for claim in DRAWN[figure](results, FULL).claims}


def test_the_papers_own_numbers_hold():
    results = paper_times()
    assert set(claims("dynamic", results).values()) == {"holds", "not measured"}
    assert claims("one-straggler", results)["SEMI is as fast as ZERO at chi 8"] == "holds"
    assert claims("one-straggler", results)["MIG helps at chi 8, but stays far from ideal"] == "holds"
    assert claims("several", results) == {"the sweet spot is at lambda 3": "holds"}
    assert claims("homogeneous", results)["gamma 1/2 on all ranks saves time (vit-1b)"] == "holds"


def test_other_numbers_do_not():
    results = paper_times()
    slow = {"steady": 2.0, "transition": [], "prunedRatio": [0.0] * 8, "matmul": [0.1] * 8}
    results |= {f"time/vit-1b/{name}": slow for name in ("ZERO-Pri chi 8", "SEMI chi 8", "homogeneous Pri 0.5")}
    assert claims("dynamic", results)["ZERO-Pri at chi 8 against Baseline"] == "does not hold"
    assert claims("dynamic", results)["ZERO-Pri's time stays flat"] == "does not hold"
    assert claims("one-straggler", results)["SEMI is as fast as ZERO at chi 8"] == "does not hold"
    assert claims("homogeneous", results)["gamma 1/2 on all ranks saves time (vit-1b)"] == "does not hold"


@pytest.mark.parametrize(("shift", "word"), [(0.05, "holds"), (-0.05, "does not hold"), (0.0, "undecided")])
def test_accuracies_are_judged_by_their_interval(shift, word):
    noise = [0.010, -0.012, 0.004, -0.002, 0.001]
    results = {f"trial/imputation Zero/{s}": {"accuracy": 0.8} for s in range(5)}
    results |= {f"trial/imputation Same/{s}": {"accuracy": 0.8 + shift + noise[s]} for s in range(5)}
    assert claims("imputation", results)["Same is more accurate than Zero"] == word


def test_nothing_measured_is_said_so():
    for figure in drawn([name for name in FIGURES if name != "periods"], {}, QUICK):
        assert {claim.verdict for claim in figure.claims} == {"not measured"}


def test_simulated_zero_pays_once_a_straggler_stays():
    short, long = (mean_seconds(VIT_1B, ZERO, 8.0, period) for period in (1, 100))
    base = mean_seconds(VIT_1B, {"strategy": "None"}, 8.0, 100)
    assert short == pytest.approx(base) and long < base / 2.5


# -- the page ---------------------------------------------------------------------------------------------


def test_the_page_has_every_figure_its_table_and_its_verdicts(tmp_path):
    figures = drawn(FIGURES, paper_times(), FULL)
    path = page.write(tmp_path, figures, "about <this>")
    text = path.read_text()
    assert "about &lt;this&gt;" in text
    for figure in figures:
        assert f'id="{figure.name}"' in text
        rows = list(csv.reader((tmp_path / f"{figure.name}.csv").read_text().splitlines()))
        assert (rows[0], len(rows)) == (list(figure.columns), 1 + len(figure.rows))
        assert all((tmp_path / page.picture(figure, n)).stat().st_size > 5000 for n in range(len(figure.charts)))
    assert 'class="verdict does-not-hold"' not in text and 'class="verdict holds"' in text


def test_verdicts_are_counted():
    every = [Claim("t", "p", "m", word, "w") for word in ("holds", "holds", "undecided")]
    figure = Figure("n", "t", "s", "h", (), (), (), every)
    assert [page.counts(figure, word) for word in ("holds", "undecided", "does not hold")] == [2, 1, 0]


def test_an_unknown_figure_is_named():
    with pytest.raises(BadInput, match=r"--figure: 'seven': must be one of imputation, .*periods"):
        check_figures(("table1", "seven"))
    assert isinstance(CliRunner().invoke(command, ["paper", "--figure", "seven"]).exception, BadInput)
