"""`heterotp bench paper`: what is measured, and the page; nothing is measured here."""

import csv
from dataclasses import replace

import pytest
from click.testing import CliRunner
from heterotp_cli.bench import page, statistics
from heterotp_cli.bench.drawn import about, drawn
from heterotp_cli.bench.emulation import DEPTH, EPOCH_ITERATIONS, MODELS, RANKS, VIT_1B, VIT_3B, fluid_limit
from heterotp_cli.bench.figure import Claim, Figure
from heterotp_cli.bench.live import DETECTION, WARM_UP, document, measured, settled
from heterotp_cli.bench.rank_time import pin
from heterotp_cli.bench.real_cpu import cpu_runs, strategies
from heterotp_cli.bench.scenarios import EVEN, FIGURES, FULL, QUICK, Step, gang_runs, needed, one
from heterotp_cli.bench.store import Store
from heterotp_cli.bench.trials import alike, always, eq1_ratio, in_turn, trials
from heterotp_cli.bench_command import check_figures, command, measure, time_key
from heterotp_cli.errors import BadInput
from support.paper_results import paper_times

ZERO = {"strategy": "ZERO", "zero": {"selection": "Pri"}}


# -- what is emulated -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
@pytest.mark.parametrize("pace", [1.0, 0.5])
def test_the_emulated_iteration_is_the_papers_at_any_pace(model, pace):
    device = model.device(pace)
    operations = 6 * model.tiny_rows * 12 * model.tiny_width**2 * DEPTH / RANKS
    matmul = operations / (device["teraflops"] * 1e12)
    nbytes = model.tiny_rows * model.tiny_width * 4
    collective = device["linkLatencySeconds"] + 1.75 * nbytes / device["linkBytesPerSecond"]
    assert matmul == pytest.approx(pace * model.matmul_share * model.iteration_seconds)
    assert matmul + 4 * DEPTH * collective + device["fixedSeconds"] == pytest.approx(pace * model.iteration_seconds)


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
        assert run.model.job(run.name, run.speeds, "m", size.pace).spec.process_count == RANKS
        assert len({step.name for step in run.steps}) == len(run.steps)
        for step in run.steps:
            assert policy_problem(BalancingSettings.model_validate(step.policy), RANKS) is None


@pytest.mark.parametrize("figure", [name for name in FIGURES if not name.startswith("real-")])
def test_a_single_figure_needs_the_baseline_and_its_own_trials(figure):
    steps = [step for run in gang_runs(FULL, [figure]) for step in run.steps]
    assert all(figure in step.figures for step in steps)
    assert any(step.name == "baseline" for step in steps)


def test_a_resumed_bench_skips_measured_trials(tmp_path):
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
    turns = in_turn(alike(0.5), 9)
    assert turns[8] == turns[0] == (alike(0.5), *[alike(0.0)] * 7)
    assert always([alike(0.1)] * 8, 3) == ((alike(0.1),) * 8,) * 3
    mixed, none = [0.5, 0.0, 0.25, 0.0], [0.0] * 4
    slow = {"prunedShares": [none, none, mixed, *[none] * 5]}
    times = {f"time/vit-1b/{name}": slow for name in ("SEMI chi 8", "several SEMI", "ZERO-PriDiffR chi 8")}
    found = {trial.name: trial for trial in trials(QUICK, ["dynamic", "one-straggler", "several"], times)}
    for name in ("one straggler SEMI 8", "dynamic PriDiffR 8"):  # in turn, whichever rank was slow in the timing gang
        assert found[name].shares[1][:2] == (alike(0.0), tuple(mixed))
    assert found["several SEMI"].shares[0][2:4] == (tuple(mixed), alike(0.0))
    assert found["dynamic Pri 8"].shares[0][0] == alike(0.875)  # no timing gang: eq. 1


def test_a_trial_with_other_settings_is_measured_again():
    run = gang_runs(QUICK, ["table1"])[0]
    step = run.steps[1]
    mine = run.content(step, QUICK)
    assert run.content(replace(step, name="other"), QUICK) == mine
    for other in (replace(step, chis=one(8, 1)), replace(step, policy=ZERO)):
        assert run.content(other, QUICK) != mine
    assert run.content(step, replace(QUICK, pace=1.0)) != mine
    assert replace(run, speeds=one(2, 0)).content(step, QUICK) != mine


# -- when a step is at rest -------------------------------------------------------------------------------


def line(plan=1, seconds=1.0, measured=True):
    ranks = [{"matmul": 0.5}, {"matmul": 0.25}]
    return {"decisionId": plan, "iterationSeconds": seconds, "measured": measured, "ranks": ranks}


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
    found = measured(lines, lines[2:], Step("s", ZERO), 0.5)
    assert (found["steady"], found["transition"], found["matmul"]) == (4.0, [8.0, 8.0], [1.0, 0.5])
    epoch = statistics.composed_epoch(found)
    assert epoch.value == 16 + (EPOCH_ITERATIONS - 2) * 4
    assert (epoch.low, epoch.high) == (16 + (EPOCH_ITERATIONS - 2) * 2, 16 + (EPOCH_ITERATIONS - 2) * 6)


def test_the_control_document_slows_the_ranks_of_the_step():
    found = document(3, Step("s", ZERO, one(4, 5)))
    assert [(i["ranks"], i["slowdown"]) for i in found["injections"]] == [([5], 4)]
    assert (found["generation"], found["balancing"]) == (3, ZERO)


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


def test_the_page_is_one_file_with_a_command_for_every_claim(tmp_path):
    figures = drawn(FIGURES, paper_times(), FULL)
    for mode, option in (("quick", " --quick"), ("full", "")):
        (tmp_path / mode).mkdir()
        text = page.write(tmp_path / mode, figures, "about").read_text()
        assert text.count("data:image/png;base64,") == sum(len(figure.charts) for figure in figures)
        assert "src=" not in text.replace('src="data:image', "") and 'href="#' in text and ".csv" not in text
        for figure in figures:
            for claim in figure.claims:
                level = "emulated" if claim.level == "training" else claim.level
                assert f"heterotp bench paper --level {level} --figure {figure.name}{option} --fresh" in text


@pytest.mark.parametrize("size", [QUICK, FULL], ids=["quick", "full"])
def test_every_step_on_real_ranks_has_a_policy_that_its_gang_can_follow(size):
    from heterotp_api.policy import BalancingSettings, policy_problem

    for run in cpu_runs(size):
        job = run.model.job(run.name, run.speeds, "m", 1.0)
        assert {group.device.type for group in job.spec.worker_groups} == {"cpu"}
        assert job.spec.process_count == run.model.ranks == len(run.speeds)
        assert len({step.name for step in run.steps}) == len(run.steps)
        for step in run.steps:
            assert policy_problem(BalancingSettings.model_validate(step.policy), run.model.ranks) is None
            injected = document(1, step, run.model.mode)["injections"]
            assert {each["mode"] for each in injected} == ({"repeat"} if max(step.chis) > 1 else set())
    names = {step.name.split(" chi")[0] for run in cpu_runs(size) for step in run.steps if " chi" in step.name}
    assert names == {*strategies(), "oracle", "evict"}


def test_table_1_is_measured_on_real_transfers_cell_by_cell():
    emulated = {s.name for run in gang_runs(FULL, ["table1"]) for s in run.steps}
    real = {s.name for run in needed(cpu_runs(FULL), ["table1"]) for s in run.steps}
    assert real == emulated


def test_a_straggler_that_wanders_is_run_and_not_composed():
    step = Step("s", ZERO, one(8, 0), (), 3, 2)
    (injection,) = document(4, step)["injections"]
    assert (injection["ranks"], injection["slowdown"]) == (list(range(RANKS)), 8)
    assert injection["pattern"] == {"roundRobin": {"every": {"iterations": 3}}}
    lines = [line(plan, seconds, plan != 2) for plan, seconds in enumerate([1.0, 3.0, 2.0, 6.0, 6.0, 6.0, 9.0])]
    assert settled(lines[:5], step, 2) is None
    way = settled(lines, step, 2)
    assert len(way) == 6
    found = measured(lines, way, step, 1.0)
    assert (found["steady"], found["samples"]) == (4.0, [2.0, 6.0])


def test_a_rank_is_kept_on_a_core_of_its_own(monkeypatch):
    set_to = []
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 5, 7})
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: set_to.append(cores))
    for rank in range(4):
        pin(rank, 2)
    pin(0, 0)
    assert set_to == [{3}, {5}, {3}, {5}]


def test_charts_and_columns_name_the_origin_of_numbers():
    origins = (
        "(emulated)",
        "(simulated)",
        "(computed)",
        "(real training)",
        "(the paper's)",
        "(real CPU ranks)",
        "(real GPUs)",
    )
    plain = {"model", "selection", "gamma", "imputation", "strategy", "chi", "plan", "primitive (senders)", "ranks"}
    for figure in drawn(FIGURES, paper_times(), FULL):
        assert all(chart.y.endswith(origins) for chart in figure.charts)
        assert all(column.endswith(origins) for column in figure.columns if column not in plain)


def test_the_page_names_what_its_intervals_leave_out():
    text = about("quick", {"seconds": 60})
    assert "one run and the next" in text and text.count("RESHARD and AUTO are ours, no part of the paper") == 1


def test_a_line_shares_its_colour_with_its_companion_alone():
    solid = ["ZERO-Pri", "ZERO-PriDiffE", "ZERO-PriDiffR"]
    assert len({page.colour(name, solid) for name in solid}) == 3
    assert page.colour("ZERO-PriDiffE, paper", solid) == page.colour("ZERO-PriDiffE", solid)
    assert page.colour("fluid limit (computed)", solid) == page.INK


def test_verdicts_are_counted():
    every = [Claim("t", "p", "m", word, "w") for word in ("holds", "holds", "undecided")]
    figure = Figure("n", "t", "s", "h", (), (), (), every)
    assert [page.counts(figure, word) for word in ("holds", "undecided", "does not hold")] == [2, 1, 0]


def test_earlier_figures_stay_on_the_page_and_times_add_up(tmp_path, monkeypatch):
    class Nothing:
        def __init__(self, *arguments, **options):
            self.run = lambda: None

    monkeypatch.setattr("heterotp_cli.bench_command.Bench", Nothing)
    measure(("table1",), QUICK, "quick", tmp_path)
    store = Store(tmp_path / "quick")
    store.add("spent", seconds=3600.0)
    measure(("imputation",), QUICK, "quick", tmp_path)
    assert sorted(path.stem for path in (tmp_path / "quick").glob("*.csv")) == ["imputation", "table1"]
    assert "60 min" in (tmp_path / "quick" / "index.html").read_text()


def test_an_unknown_figure_is_named():
    with pytest.raises(BadInput, match=r"--figure: 'seven': must be one of imputation, .*periods"):
        check_figures(("table1", "seven"))
    assert isinstance(CliRunner().invoke(command, ["paper", "--figure", "seven"]).exception, BadInput)


def test_the_gpu_level_is_refused_until_it_was_run():
    found = CliRunner().invoke(command, ["paper", "--level", "gpu"]).exception
    assert isinstance(found, BadInput) and "--level: 'gpu'" in str(found)
