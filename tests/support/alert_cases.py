"""Input series for promtool, and the alerts that must fire on them."""

from heterotp_dashboards.queries import BUSY, IMBALANCE, SLOWDOWN
from support.promtool import AlertCase, Firing, counter, gauge, named

JOB = {"namespace": "team-a", "heterotpjob": "vit"}
PHASE = "heterotp_operator_job_status_phase"
OPERATOR = {"job": "heterotp-operator", "instance": "a"}


def of_rank(rank, **labels):
    return {**JOB, "rank": str(rank), "node": f"node-{rank}", **labels}


def fires(rank, shown):
    return Firing(of_rank(rank), shown)


def rank(number, matmul, chi=1.0, level="full", minutes=60):
    """Return a rank's series at one iteration a second.

    matmul: seconds of M, or stages of (seconds, minutes). chi: alike; None: not known.
    """
    stages = matmul if isinstance(matmul, list) else [(matmul, minutes)]
    phases = {"matmul": stages, "fixed": [(0.02, minutes)], "wait": [(0.25 - m, t) for m, t in stages]}
    if level == "full":
        phases["unit"] = [(0.01, minutes)]
    series = {
        named("heterotp_phase_seconds_total", **of_rank(number), phase=name): counter(*path)
        for name, path in phases.items()
    }
    series[named("heterotp_iterations_total", **of_rank(number))] = counter((1, minutes))
    if level == "full" and chi is not None:
        shown = gauge(*chi) if isinstance(chi, list) else gauge((chi, minutes))
        series[named("heterotp_slowdown_ratio", **of_rank(number))] = shown
    return series


def gone(series):
    """Return the series of a target that disappears at their end."""
    return {name: f"{path} stale" for name, path in series.items()}


def moved_to_another_node(number, matmul, since):
    """Return the series of a rank that runs on node 9 from a minute on."""
    return {
        name.replace(f"node-{number}", "node-9"): f"{gauge((None, since))} {path}"
        for name, path in rank(number, matmul, minutes=60 - since).items()
    }


def phases(*stages):
    """Return the operator's series of a job that goes through (phase, minutes)."""
    names = {name for name, _ in stages} | {"Pending", "Running"}
    return {
        named(PHASE, **JOB, phase=name): gauge(*((int(name == now), minutes) for now, minutes in stages))
        for name in sorted(names)
    }


def handled(errors, slow=False):
    """Return the operator's series with this share of errors; slow: all reconciles exceed the last bucket."""
    series = {
        named("heterotp_operator_reconcile_total", **OPERATOR, kind="HeteroTPJob", result=result): counter((share, 60))
        for result, share in (("success", 1 - errors), ("error", errors))
    }
    for bound, share in (("1", 0 if slow else 1), ("10", 0 if slow else 1), ("+Inf", 1)):
        name = "heterotp_operator_reconcile_duration_seconds_bucket"
        series[named(name, **OPERATOR, kind="HeteroTPJob", le=bound)] = counter((share, 60))
    return series


THREE = {**rank(0, 0.1), **rank(1, 0.1)}
CHI = {n: named(SLOWDOWN, heterotpjob="vit", namespace="team-a", node=f"node-{n}", rank=n) for n in range(3)}
KIND = Firing({"kind": "HeteroTPJob"})

WHY = " Its machine says why: cpuLimit (61% of the time), neighbours (20% of the time)."
STRAGGLER = "HeteroTPJobStragglerUnmitigated"
STRAGGLERS = {
    "one of three is slow, then recovers": AlertCase(
        STRAGGLER,
        {**THREE, **rank(2, [(0.2, 40), (0.1, 20)], chi=[(2, 40), (1, 20)])},
        {10: [], 12: [fires(2, "2.0")], 44: [fires(2, "2.0")], 55: []},
        {(12, SLOWDOWN): {CHI[0]: 1, CHI[1]: 1, CHI[2]: 2}},
    ),
    "its machine says why, the most frequent cause first": AlertCase(
        STRAGGLER,
        {
            **THREE,
            **rank(2, 0.2, chi=2),
            named("heterotp_slow_cause", **of_rank(2), cause="neighbours"): gauge((0.2, 60)),
            named("heterotp_slow_cause", **of_rank(2), cause="cpuLimit"): gauge((0.61, 60)),
            named("heterotp_slow_cause", **of_rank(0), cause="memory"): gauge((0.9, 60)),
        },
        {12: [Firing(of_rank(2), "2.0", WHY)]},
    ),
    "two of three are slow: the job is not out of balance enough": AlertCase(
        STRAGGLER,
        {**rank(0, 0.1), **rank(1, 0.2, chi=2), **rank(2, 0.2, chi=2)},
        {20: []},
        {(20, SLOWDOWN): {CHI[0]: 1, CHI[1]: 2, CHI[2]: 2}},
    ),
    "balancing took half of its work: still slow, but no rank waits": AlertCase(
        STRAGGLER,
        {**THREE, **rank(2, 0.1, chi=2)},
        {5: [], 20: [], 50: []},
        {
            (20, SLOWDOWN): {CHI[0]: 1, CHI[1]: 1, CHI[2]: 2},
            (20, IMBALANCE): {named(IMBALANCE, heterotpjob="vit", namespace="team-a"): 1},
        },
    ),
    "level basic: no chi": AlertCase(
        STRAGGLER,
        {**rank(0, 0.1, level="basic"), **rank(1, 0.1, level="basic"), **rank(2, 0.2, level="basic")},
        {10: [], 12: [fires(2, "1.4")]},
        {(12, SLOWDOWN): {}},
    ),
    "a restart moved the rank off the slow node: no alert on another rank": AlertCase(
        STRAGGLER,
        {**THREE, **gone(rank(2, 0.2, chi=2, minutes=20)), **moved_to_another_node(2, 0.1, 21)},
        {19: [fires(2, "2.0")], 31: []},
        {
            (22, SLOWDOWN): {CHI[n].replace("node-2", "node-9"): 1 for n in range(3)},
            (22, f"count({BUSY})"): {"{}": 3},
        },
    ),
    "a rank without work has no chi": AlertCase(
        STRAGGLER,
        {**THREE, **rank(2, 0.0, chi=None)},
        {20: []},
        {(20, SLOWDOWN): {CHI[0]: 1, CHI[1]: 1}},
    ),
}

LAST = "heterotp_last_iteration_timestamp_seconds"
STALLED = "HeteroTPJobStalled"
STALLS = {
    "iterations stop after 5 minutes and continue later": AlertCase(
        STALLED,
        {
            named(LAST, **of_rank(0)): f"0+30x10 {gauge((300, 20))} 1530+30x40",
            **phases(("Running", 60)),
        },
        {16: [], 18: [Firing(JOB, "13m 0s")], 27: []},
    ),
    "suspended jobs do not stall": AlertCase(
        STALLED, {named(LAST, **of_rank(0)): gauge((300, 60)), **phases(("Suspended", 60))}, {30: [], 50: []}
    ),
    "restores for two minutes while another replica of the operator takes over": AlertCase(
        STALLED,
        {
            named(LAST, **of_rank(0)): gauge((0, 4), (240, 56)),
            named(PHASE, **JOB, phase="Running", instance="a"): gauge((None, 1), (1, 1), (None, 58)),
            named(PHASE, **JOB, phase="Running", instance="b"): gauge((None, 2), (1, 58)),
        },
        {3.5: [], 6: []},
    ),
    "no iteration since the job runs": AlertCase(
        STALLED,
        {named(LAST, **of_rank(0)): gauge((0, 60)), **phases(("Pending", 30), ("Running", 30))},
        {35: [], 41: [], 43: [Firing(JOB, "10m 0s")]},
    ),
}

GENERATION = "heterotp_policy_generation"
POLICY = {
    "two generations, then one": AlertCase(
        "HeteroTPJobPolicyDiverged",
        {
            named(GENERATION, **of_rank(0)): gauge((3, 10), (4, 50)),
            named(GENERATION, **of_rank(1)): gauge((3, 30), (4, 30)),
        },
        {9: [], 14: [], 16: [Firing(JOB, "4")], 31: []},
    ),
    "three decisions a minute, then none": AlertCase(
        "HeteroTPJobPolicyFlapping",
        {
            named("heterotp_policy_updates_total", **JOB, strategy="ZERO"): counter((0.02, 50), (0, 40)),
            named("heterotp_policy_updates_total", **JOB, strategy="MIG"): counter((0.03, 50), (0, 40)),
        },
        {20: [], 40: [Firing(JOB, "45")], 75: []},
    ),
    "0.6 pruned for long, then 0.1": AlertCase(
        "HeteroTPJobPruningHigh",
        {
            named("heterotp_pruned_ratio", **of_rank(1)): gauge((0.6, 60), (0.1, 60)),
            named("heterotp_pruned_ratio", **of_rank(0)): gauge((0.2, 120)),
        },
        {25: [], 40: [Firing({**JOB, "rank": "1"}, "60%")], 90: []},
    ),
}

POLICY["0.9 pruned for 20 minutes, then over"] = AlertCase(
    "HeteroTPJobPruningHigh",
    {named("heterotp_pruned_ratio", **of_rank(1)): gauge((0.9, 20), (None, 60))},
    {15: [], 35: [], 50: []},
)

LOSS = "HeteroTPJobLossNotFinite"
ACCURACY = "HeteroTPJobAccuracyDropped"


def accuracy(*stages, instance="a"):
    return {named("heterotp_accuracy_ratio", **of_rank(0), split="eval", instance=instance): gauge(*stages)}


def pruned(ratio):
    return {named("heterotp_pruned_ratio", **of_rank(1)): gauge((ratio, 180))}


LEARNING = {
    **{
        f"a loss of {value}": AlertCase(
            LOSS,
            {named("heterotp_loss", **JOB, split="train"): gauge((0.5, 10), (value, 10), (0.4, 10))},
            {9: [], 10: [Firing({**JOB, "split": "train"}, shown)], 25: []},
        )
        for value, shown in (("NaN", "NaN"), ("Inf", "+Inf"))
    },
    "accuracy drops while pruned, then recovers": AlertCase(
        ACCURACY,
        {**accuracy((0.9, 30), (0.85, 60), (0.9, 90)), **pruned(0.2)},
        {20: [], 55: [], 65: [Firing(JOB, "5%")], 120: []},
    ),
    "accuracy drops, but nothing is pruned": AlertCase(
        ACCURACY, {**accuracy((0.9, 30), (0.85, 150)), **pruned(0)}, {90: []}
    ),
    "an older run of this name was better": AlertCase(
        ACCURACY,
        {**accuracy((0.9, 30), (None, 150)), **accuracy((None, 40), (0.5, 140), instance="b"), **pruned(0.2)},
        {90: []},
    ),
}


def iterations(*ranks, stages=((1, 60),)):
    return {named("heterotp_iterations_total", **of_rank(n)): counter(*stages) for n in ranks}


EXPECTED = {named("heterotp_world_ranks", **of_rank(0)): gauge((3, 60))}
MISSING, RANKS, PENDING = "HeteroTPJobMetricsMissing", "HeteroTPJobRanksMissing", "HeteroTPJobStuckPending"
PRESENCE = {
    "runs, but nothing is scraped until minute 30": AlertCase(
        MISSING,
        {
            **phases(("Pending", 5), ("Running", 55)),
            named("heterotp_iterations_total", **of_rank(0)): gauge((None, 30), (0, 30)),
        },
        {4: [], 14: [], 16: [Firing(JOB)], 31: []},
    ),
    "runs and is scraped": AlertCase(MISSING, {**phases(("Running", 60)), **iterations(0)}, {30: []}),
    "rank 2 does not report until minute 20": AlertCase(
        RANKS,
        {
            **EXPECTED,
            **iterations(0, 1),
            named("heterotp_iterations_total", **of_rank(2)): gauge((None, 20), (0, 40)),
            **phases(("Running", 60)),
        },
        {4: [], 6: [Firing(JOB, "2")], 21: []},
    ),
    "rank 0, which reports the number of ranks, is missing": AlertCase(
        RANKS, {**iterations(1, 2), **phases(("Running", 60))}, {4: [], 6: [Firing(JOB, "2")]}
    ),
    "the operator is not scraped": AlertCase(RANKS, {**EXPECTED, **iterations(0, 1)}, {4: [], 6: [Firing(JOB, "2")]}),
    "ranks appear one by one while the job starts": AlertCase(
        RANKS, {**EXPECTED, **iterations(0, 1), **phases(("Starting", 60))}, {30: []}
    ),
    "changes between Pending and Starting, then runs": AlertCase(
        PENDING,
        phases(("Pending", 20), ("Starting", 5), ("Pending", 10), ("Restarting", 5), ("Running", 20)),
        {29: [], 31: [Firing(JOB)], 39: [Firing(JOB)], 41: []},
    ),
    "two replicas of the operator report one job": AlertCase(
        PENDING,
        {named(PHASE, **JOB, phase="Pending", instance=each): gauge((1, 60)) for each in "ab"},
        {29: [], 31: [Firing(JOB)]},
    ),
}

ABSENT = "HeteroTPOperatorAbsent"
ERRORS, SLOW = "HeteroTPOperatorHandlerErrors", "HeteroTPOperatorHandlerSlow"
OPERATORS = {
    "absent after 10 minutes, present at 40": AlertCase(
        ABSENT,
        {named("up", **OPERATOR): gauge((1, 10), (0, 30), (1, 20))},
        {9: [], 24: [], 26: [Firing({})], 41: []},
    ),
    "never present": AlertCase(ABSENT, {named("up", job="else"): gauge((1, 60))}, {14: [], 16: [Firing({})]}),
    "one of two replicas is enough": AlertCase(
        ABSENT,
        {named("up", **OPERATOR): gauge((0, 60)), named("up", job="heterotp-operator", instance="b"): gauge((1, 60))},
        {30: []},
    ),
    "one in ten reconciles fails": AlertCase(ERRORS, handled(0.1), {14: [], 17: [Firing(KIND.labels, "10%")]}),
    "one in fifty reconciles fails": AlertCase(ERRORS, handled(0.02), {40: []}),
    "reconciles beyond the last bucket": AlertCase(
        SLOW, handled(0, slow=True), {14: [], 17: [Firing(KIND.labels, "10s")]}
    ),
    "quick reconciles": AlertCase(SLOW, handled(0), {40: []}),
}

CASES = {**STRAGGLERS, **STALLS, **POLICY, **LEARNING, **PRESENCE, **OPERATORS}
