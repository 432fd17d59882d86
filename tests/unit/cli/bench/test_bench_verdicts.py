"""What a bench comes to: intervals, and the verdicts that rest on them; nothing is measured here."""

import math

import pytest
from heterotp_cli.bench import cpu_figures, statistics
from heterotp_cli.bench.cpu_figures import limits
from heterotp_cli.bench.drawn import DRAWN, drawn
from heterotp_cli.bench.emulation import EPOCH_ITERATIONS, VIT_1B, fluid_limit
from heterotp_cli.bench.figure import judged, together, verdict
from heterotp_cli.bench.scenarios import EVEN, FIGURES, FULL, QUICK, one, several_chis
from heterotp_cli.bench.simulation import mean_seconds
from heterotp_cli.bench.statistics import Span
from support.paper_results import cpu_times, paper_times, step

ZERO = {"strategy": "ZERO", "zero": {"selection": "Pri"}}


# -- what it comes to -------------------------------------------------------------------------------------


def test_an_interval_is_students():
    found = statistics.interval([1.0, 2.0, 3.0])
    assert (found.mean, found.low) == (2.0, pytest.approx(2 - 4.30265 / math.sqrt(3), rel=1e-4))
    assert not found.above and not found.below
    assert statistics.interval([1.0]).low == -math.inf


@pytest.mark.parametrize(
    ("count", "ends", "covered"),
    [(1, (0, 0), 0.0), (2, (0, 1), 0.5), (5, (0, 4), 0.9375), (8, (0, 7), 0.9922), (9, (1, 7), 0.9609)],
)
def test_the_interval_of_a_median_needs_no_distribution(count, ends, covered):
    samples = [float(number) for number in range(count)]
    assert statistics.median_interval(samples[::-1]) == ends
    assert statistics.coverage(count, ends[0]) == pytest.approx(covered, abs=1e-4)


def test_the_interval_of_a_ratio_spans_the_extremes_of_both_intervals():
    assert statistics.ratio(Span(4, 3, 6), Span(2, 1, 3)) == Span(2, 1, 6)
    assert Span(2, 1, 6).mapped(lambda times: 1 - times) == Span(-1, -5, 0)
    assert statistics.steady({"steady": 2.0}) == Span(2, 2, 2)
    assert statistics.largest([Span(1, 0, 9), Span(3, 2, 4)]) == Span(3, 2, 9)


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


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        *[(1, 2, "holds"), (1.1, 1.9, "holds"), (0.1, 0.9, "does not hold"), (2.1, 3, "does not hold")],
        *[(0.9, 1.5, "undecided"), (1.5, 2.1, "undecided"), (0, 3, "undecided")],
    ],
)
def test_bounds_are_judged_by_the_whole_interval(low, high, word):
    assert judged(Span(1.5, low, high), 1, 2) == word


def test_parts_must_all_hold():
    assert together({"a": "holds", "b": "holds"}) == ("holds", "all hold: a; b")
    assert together({"a": "holds", "b": "undecided"}) == ("undecided", "undecided: b")
    every = together({"a": "does not hold", "b": "undecided", "c": "holds"})
    assert every == ("does not hold", "does not hold: a; undecided: b")


SWEET, OWN_RULE = "the sweet spot is at lambda 3", "SEMI finds the lambda that is best by its own rule"


def trained(name, accuracy, loss):
    noise = [0.010, -0.012, 0.004, -0.002, 0.001]
    return {f"trial/{name}/{s}": {"accuracy": accuracy + noise[s], "loss": loss - noise[s]} for s in range(5)}


def found(figure, results, size=FULL):
    return {claim.text: claim for claim in DRAWN[figure](results, size).claims}


def claims(figure, results):
    return {text: claim.verdict for text, claim in found(figure, results).items()}


def test_the_papers_own_numbers_hold():
    results = paper_times()
    assert set(claims("dynamic", results).values()) == {"holds", "by construction", "not measured"}
    assert set(claims("table1", results).values()) == {"by construction", "not measured"}
    assert claims("one-straggler", results)["SEMI is as fast as ZERO at chi 8"] == "holds"
    assert claims("one-straggler", results)["MIG helps at chi 8, but stays far from ideal"] == "holds"
    assert claims("several", results) == {SWEET: "holds", OWN_RULE: "holds"}


TIMED = [  # figure, claim, step, and multiples of the homogeneous iteration with which it holds, and does not
    ("dynamic", "ZERO-Pri at chi 8 against Baseline", "ZERO-Pri chi 8", 1.03, 1.05),
    ("dynamic", "ZERO-Pri's time stays flat", "ZERO-Pri chi 4", 1.09, 1.11),
    ("one-straggler", "SEMI is as fast as ZERO at chi 8", "SEMI chi 8", 1.06, 1.08),
    ("one-straggler", "MIG helps at chi 8, but stays far from ideal", "MIG chi 8", 1.03, 1.01),
    ("one-straggler", "MIG helps at chi 8, but stays far from ideal", "MIG chi 8", 3.5, 3.7),
    ("several", SWEET, "several lambda 3", 1.55, 1.65),  # keeps at least 80 %
    ("several", SWEET, "several lambda 4", 1.65, 1.55),  # keeps less
    ("several", OWN_RULE, "several SEMI", 1.145, 1.17),
]


@pytest.mark.parametrize(("figure", "claim", "name", "good", "bad"), TIMED)
def test_times_are_judged_by_their_interval(figure, claim, name, good, bad):
    words = [claims(figure, paper_times(**{name: seconds}))[claim] for seconds in (good, bad)]
    assert words == ["holds", "does not hold"]
    noisy = claims(figure, paper_times(0.3, **{name: good}))[claim]
    assert noisy == "undecided"
    without = {key: result for key, result in paper_times().items() if not key.endswith(f"/{name}")}
    if claim != "ZERO-Pri's time stays flat":  # it is judged by the other chis
        assert claims(figure, without)[claim] == "not measured"


def test_times_of_unknown_noise_are_points():
    results = {key: {**result, "samples": []} for key, result in paper_times().items()}
    claim = found("dynamic", results)["ZERO-Pri at chi 8 against Baseline"]
    assert (claim.measured, claim.verdict) == ("3.55 times faster (noise unknown, emulated)", "holds")


def test_the_text_of_a_claim_has_its_interval():
    claim = found("dynamic", paper_times())["ZERO-Pri at chi 8 against Baseline"]
    assert claim.measured == "3.55 times faster (3.54 .. 3.57, emulated)"


@pytest.mark.parametrize(("seconds", "word"), [(0.97, "undecided"), (0.985, "holds")])
def test_a_time_below_the_ideal_is_not_credible(seconds, word):
    claim = found("dynamic", paper_times(**{"ZERO-Pri chi 8": seconds}))["ZERO-Pri at chi 8 against Baseline"]
    assert claim.verdict == word
    assert ("beyond the ideal is not credible" in claim.why) == (word == "undecided")


def test_a_sweet_spot_names_the_failed_condition():
    results = paper_times(**{"several lambda 4": 1.15})
    assert found("several", results)[SWEET].why == "does not hold: lambda 4 keeps less"
    results = paper_times()
    results["time/vit-1b/several lambda 3"] = step(1.13, (0.88, 0.83, 0.75, 0.5))
    claim = found("several", results)[SWEET]
    assert (claim.verdict, claim.why) == ("does not hold", "does not hold: lambda 3 deletes less than lambda 2")
    nothing = found("several", paper_times(**{"several lambda 0": 3.6}))[SWEET]
    assert nothing.verdict == "undecided" and "lambda 0 saves no time" in nothing.why


def test_a_sweet_spot_needs_the_neighbouring_lambdas():
    results = paper_times()
    assert found("several", results, QUICK)[SWEET].verdict == "not measured"
    for name in ("Baseline", *(f"lambda {split}" for split in (0, 2, 3, 4))):
        without = {key: result for key, result in results.items() if key != f"time/vit-1b/several {name}"}
        assert claims("several", without)[SWEET] == "not measured"


def test_semi_is_held_against_the_best_of_the_lambdas_measured():
    results = paper_times()
    every, quick = (found("several", results, size)[OWN_RULE] for size in (FULL, QUICK))
    assert "of lambda 0, 1, 2, 3, 4 the best is 3" in every.measured and "SEMI lets 3 ranks migrate" in every.measured
    assert quick.verdict == "holds" and "of lambda 0, 3 the best is 3" in quick.measured
    results["time/vit-1b/several SEMI"] = step(1.12, (0.88, 0.83, 0.75, 0.5))
    claim = found("several", results)[OWN_RULE]
    assert (claim.verdict, claim.why) == ("does not hold", "does not hold: it deletes no more than lambda 3")
    assert claims("several", results | paper_times(**{"several lambda 3": 1.2}))[OWN_RULE] == "holds"  # best: 2


def test_a_sweet_spot_within_noise_of_a_better_lambda_is_undecided():
    results = paper_times(**{"several lambda 3": 1.156})  # 1.1 x 1.05 = 1.155
    results["time/vit-1b/several SEMI"] = step(1.12, (0, 0, 0.75, 0.5), noise=0)
    claim = found("several", results)[OWN_RULE]
    assert "the best is 2" in claim.measured
    assert (claim.verdict, claim.why) == ("undecided", "undecided: it deletes no more than lambda 2")


GROWS = "loss grows with gamma (Pri, vit-1b)"


@pytest.mark.parametrize(("loss", "word"), [(0.9, "holds"), (0.3, "does not hold"), (0.5, "undecided")])
def test_loss_grows(loss, word):
    results = paper_times() | trained("homogeneous Pri 0.25", 0.8, 0.5)
    assert claims("homogeneous", results)[GROWS] == "not measured"
    last = trained("homogeneous Pri 0.9", 0.8, loss)
    if word == "undecided":
        last = {key: {**each, "loss": each["loss"] + (-1) ** int(key[-1])} for key, each in last.items()}
    assert claims("homogeneous", results | last)[GROWS] == word


@pytest.mark.parametrize(
    ("figure", "texts"),
    [
        ("dynamic", ["the Baseline's time grows linearly with chi"]),
        ("homogeneous", ["gamma 1/2 on all ranks saves time (vit-1b)", "priority selection costs nearly no time"]),
        ("table1", [f"broadcast-reduce beats scatter-gather, {n}, gamma 0.5" for n in ("1 sender", "4 senders")]),
    ],
)
def test_what_was_put_in_is_no_verdict_and_stands_beside_a_claim_that_can_fail(figure, texts):
    every = list(DRAWN[figure](paper_times() | cpu_times(), FULL).claims)
    for text in texts:
        claim = next(each for each in every if each.text == text)
        assert (claim.verdict, claim.level) == ("by construction", "emulated")
        twins = [each for each in every if each.text.startswith(text.split(" (")[0]) and each.level == "cpu"]
        assert [twin.verdict for twin in twins] == ["holds"]


CPU = [  # figure, claim, step, seconds with which it holds, and does not
    ("dynamic", "the Baseline's time grows linearly with chi (real CPU ranks)", "Baseline chi 8", 5.9, 7.5),
    ("homogeneous", "gamma 1/2 on all ranks saves time (real CPU ranks)", "homogeneous Pri 0.5", 0.66, 0.8),
    ("homogeneous", "priority selection costs nearly no time (real CPU ranks)", "homogeneous Pri 0.9", 0.45, 0.5),
    ("dynamic", "ZERO-Pri at chi 8 against Baseline (real CPU ranks)", "ZERO-Pri chi 8", 1.05, 2.0),
]


@pytest.mark.parametrize(("figure", "claim", "name", "good", "bad"), CPU, ids=[each[2] for each in CPU])
def test_claims_on_real_ranks_can_fail(figure, claim, name, good, bad):
    for seconds, word in ((good, "holds"), (bad, "does not hold")):
        results = cpu_times(**{name: seconds})
        assert claims(figure, results)[claim] == word
    assert claims(figure, {})[claim] == "not measured"


def test_the_limit_on_real_ranks_is_the_specs():
    base = {"steady": 1.0, "matmul": [0.6, 0.6], "unit": [0.2, 0.2], "fixed": [0.1, 0.1], "wait": [0.1, 0.1]}
    products, both = limits(base, (4.0, 1.0))
    assert products == pytest.approx(0.4 + 0.6 * 2 / 1.25)
    assert both == pytest.approx(0.2 + 2 / (1 / (0.6 * 4 + 0.2) + 1 / 0.8))
    assert limits(base, (1.0, 1.0)) == (pytest.approx(1.0), pytest.approx(1.0))


def test_real_ranks_are_compared_with_their_limit():
    figure = DRAWN["real-cpu"](cpu_times(), FULL)
    near = {claim.text: claim.verdict for claim in figure.claims}
    assert near["AUTO comes within 5% of the limit at chi 8 (two real CPU ranks)"] == "holds"
    assert near["RESHARD comes within 5% of the limit at chi 8 (two real CPU ranks)"] == "not measured"
    for name in cpu_figures.LIMITS:
        assert any(row[2] == name for row in figure.rows)
    assert any("AUTO at chi 8 takes" in note and "products" in note for note in figure.notes)


def test_what_is_beyond_the_limit_is_told_by_phase():
    base = {"steady": 1.0, "matmul": [0.6, 0.6], "unit": [0.2, 0.2], "fixed": [0.1, 0.1], "wait": [0.1, 0.1]}
    shares = [1 / (0.6 * 4 + 0.2), 1 / 0.8]
    slow, fast = (each / sum(shares) * 2 for each in shares)
    at_limit = {**base, "matmul": [0.6 * 4 * slow, 0.6 * fast], "unit": [0.2 * slow, 0.2 * fast]}
    assert cpu_figures.excess(base, at_limit, (4.0, 1.0)) == pytest.approx(dict.fromkeys(cpu_figures.PHASES, 0.0))
    beyond = cpu_figures.excess(base, {**at_limit, "wait": [0.1, 0.3], "fixed": [0.2, 0.2]}, (4.0, 1.0))
    assert (beyond["wait"], beyond["fixed"], beyond["matmul"]) == pytest.approx((0.1, 0.1, 0.0))


def test_intervals_are_of_gang_runs_where_there_are_several():
    runs = {f"time/m/a{tail}": {"steady": each, "samples": []} for tail, each in (("", 1.0), ("#1", 2.0), ("#2", 3.0))}
    found = statistics.steady_of(runs, "time/m/a")
    assert (found.value, found.low) == (2.0, pytest.approx(2 - 4.30265 / math.sqrt(3), rel=1e-4))
    assert statistics.steady_of({"time/m/a#1": {"steady": 1.0}}, "time/m/a") is None


COMPOSED = "ZERO-Pri: composed epochs are what a wandering straggler takes"


@pytest.mark.parametrize(("seconds", "word"), [(1.04, "holds"), (1.2, "does not hold")])
def test_composed_times_are_compared_with_a_run(seconds, word):
    assert claims("dynamic", paper_times())[COMPOSED] == "not measured"
    assert claims("dynamic", paper_times(**{"ZERO-Pri in turn": seconds}))[COMPOSED] == word


SAVES = "PriDiffR takes up to 4 % less time than Pri at chi 2, as printed"


@pytest.mark.parametrize(("seconds", "word"), [(0.98, "holds"), (1.05, "does not hold"), (1.0, "undecided")])
def test_pridiff_saves_time_or_does_not(seconds, word):
    steps = {"ZERO-Pri as printed chi 2": 1.0, "ZERO-PriDiffR as printed chi 2": seconds}
    assert claims("dynamic", paper_times(**steps))[SAVES] == word


CUTS = "Pri cuts the loss of Rd by up to 18 % at gamma 9/10"


@pytest.mark.parametrize(
    ("pri", "word", "text"),
    [
        (0.72, "holds", "20% of the 10.0 points that Rd loses; +2.0 points"),
        (0.68, "does not hold", "-20% of the 10.0 points that Rd loses"),
    ],
)
def test_pri_cuts_the_loss_of_rd(pri, word, text):
    results = trained("baseline", 0.8, 0.3) | trained("homogeneous Rd 0.9", 0.7, 0.6)
    assert claims("homogeneous", results)[CUTS] == "not measured"
    claim = found("homogeneous", results | trained("homogeneous Pri 0.9", pri, 0.5))[CUTS]
    assert claim.verdict == word and text in claim.measured


def test_pri_cuts_nothing_where_rd_loses_nothing_or_seeds_disagree():
    pri, rd = trained("homogeneous Pri 0.9", 0.85, 0.3), trained("homogeneous Rd 0.9", 0.8, 0.3)
    assert claims("homogeneous", trained("baseline", 0.8, 0.3) | pri | rd)[CUTS] == "undecided"
    apart = {key: {**each, "accuracy": 0.8 + 0.1 * (-1) ** int(key[-1])} for key, each in pri.items()}
    assert claims("homogeneous", trained("baseline", 0.9, 0.3) | apart | rd)[CUTS] == "undecided"


def test_losses_stand_beside_accuracies():
    names = ("imputation Same", "homogeneous Pri 0.5", "fixed skew 0.5", "dynamic Pri 8", "one straggler SEMI 8")
    results = trained("baseline", 0.9, 0.3) | paper_times()
    for name in (*names, "several SEMI"):
        results |= trained(name, 0.8, 0.55)
    for figure in ("imputation", "homogeneous", "fixed-skew", "dynamic", "one-straggler", "several"):
        drawn_ = DRAWN[figure](results, FULL)
        column = drawn_.columns.index("loss against the baseline (real training)")
        assert "+0.250 (+0.250 .. +0.250, 5 seeds)" in {row[column] for row in drawn_.rows}
        assert all(len(row) == len(drawn_.columns) for row in drawn_.rows)


def test_every_remedy_is_held_against_the_lossless_baselines():
    names = ("oracle", "evict", "RESHARD", "AUTO")
    static = {f"{name}-one/{name} one": 1.05 + number / 100 for number, name in enumerate(names)}
    static |= {f"{name}-several/{name} several": 1.3 + number / 10 for number, name in enumerate(names)}
    results = paper_times() | {f"time/{name}": step(seconds) for name, seconds in static.items()}
    limits = {"dynamic": one(8, 0), "one-straggler": one(8, 0), "several": several_chis(), "table1": EVEN}
    for figure, chis in limits.items():
        drawn_ = DRAWN[figure](results, FULL)
        column = drawn_.columns.index("seconds per epoch (emulated)")
        shown = {row[0]: row[column] for row in drawn_.rows}
        limit = EPOCH_ITERATIONS * fluid_limit(VIT_1B, chis)
        assert shown["fluid limit (computed)"] == pytest.approx(limit)
        lines = {line.name: line for chart in drawn_.charts for line in chart.series}
        assert lines["fluid limit (computed)"].dashed
        assert lines["fluid limit (computed)"].ys[-1] == pytest.approx(limit)
        case = "several" if figure == "several" else "one"
        for name in names if figure != "table1" else ():
            assert shown[name] == pytest.approx(373 * static[f"{name}-{case}/{name} {case}"])
    assert "nothing to do" in DRAWN["table1"](results, FULL).notes[0]
    rows = {row[0]: row for row in DRAWN["dynamic"](results, FULL).rows}
    assert rows["oracle"][3] == pytest.approx(3.59 / 1.05)


@pytest.mark.parametrize(("shift", "word"), [(0.05, "holds"), (-0.05, "does not hold"), (0.0, "undecided")])
def test_accuracies_are_judged_by_their_interval(shift, word):
    results = {f"trial/imputation Zero/{s}": {"accuracy": 0.8, "loss": 0.5} for s in range(5)}
    results |= trained("imputation Same", 0.8 + shift, 0.5)
    assert claims("imputation", results)["Same is more accurate than Zero"] == word


def test_a_claim_without_measurements_is_not_measured():
    for figure in drawn([name for name in FIGURES if name != "periods"], {}, QUICK):
        assert {claim.verdict for claim in figure.claims} == {"not measured"}


@pytest.mark.parametrize("period", [1, 10, 100])
@pytest.mark.parametrize("chi", [2.0, 8.0])
@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_auto_keeps_up_with_the_best_fixed_strategy_however_long_stragglers_stay(loss, chi, period):
    fixed = [{"strategy": "None"}, {"strategy": "MIG"}, {"strategy": "RESHARD", "maxPrunedShare": loss}]
    fixed += [{"strategy": name, "maxPrunedShare": loss} for name in ("ZERO", "SEMI") if loss]
    best = min(mean_seconds(VIT_1B, policy, chi, period) for policy in fixed)
    assert best >= 0.9 * mean_seconds(VIT_1B, {"strategy": "AUTO", "maxPrunedShare": loss}, chi, period)


def test_simulated_zero_pays_once_a_straggler_stays():
    short, long = (mean_seconds(VIT_1B, ZERO, 8.0, period) for period in (1, 100))
    base = mean_seconds(VIT_1B, {"strategy": "None"}, 8.0, 100)
    assert short == pytest.approx(base) and long < base / 2.5
