"""One paragraph: what slows the job now, what was done, what it would cost to do nothing."""

import pytest
from heterotp_api.trainer_status import TrainerCause, TrainerRank
from heterotp_cli.verbs.explanation import WAITS, explain
from heterotp_cli.verbs.view import Advice, JobView, of_job, of_run
from support.cli_views import (
    INJECTED,
    NOW,
    REDUCED_WORK,
    SLOW,
    balanced_job,
    balancing,
    job_body,
    job_status,
    rank,
    run_status,
)

NOTHING = {"predictedIterationSeconds": None, "untouchedIterationSeconds": None, "savedSeconds": None, "reason": None}


def paragraph(view):
    return explain(view, NOW, "kubectl heterotp policy demo")


def of_status(*ranks, **more):
    return paragraph(of_job(job_body(job_status(*ranks, **more))))


def test_a_straggler_whose_work_a_policy_reduces():
    assert paragraph(of_job(balanced_job())) == (
        "Rank 2 (group fast, node node-2) slows demo: its matrix products take 4.0 times as long as those of a normal "
        "rank, for 12 min now. That is on purpose: injections ask for 4.0x (3.9x measured). SEMI takes columns "
        "from rank 2 (40.1 % deleted, 33.6 % computed by other ranks). An iteration takes 349 ms now, as predicted "
        "(351 ms). Without it an iteration would take 871 ms, 2.5 times as long, and doing nothing would cost 68 s "
        "over the 130 iterations to come; balancing saved 12 min so far."
    )


def test_a_straggler_without_reduced_work():
    left = balancing(
        **{**NOTHING, "reason": "rank 3 is 2.5x slower; strategy None leaves the work as it is"}, strategy="None"
    )
    training = {"iterationSeconds": 0.871}
    assert of_status(rank(3, **SLOW), balancing=left, training=training) == (
        "Rank 3 (group slow, node node-3) slows demo: its matrix products take 4.0 times as long as those of a normal "
        "rank, for 12 min now. Nothing is taken from it (strategy None). An iteration takes 871 ms where 371 "
        "ms would do at the fluid limit: 2.3 times as long; to do nothing costs 65 s over the 130 iterations to come. "
        "To balance it: `kubectl heterotp policy demo --strategy SEMI`."
    )


def test_a_policy_that_acts_but_finds_no_plan_is_not_to_be_set_again():
    text = of_status(rank(3, **SLOW), balancing=balancing(**NOTHING))
    assert "Nothing is taken from it (strategy SEMI). An iteration takes" in text
    assert "kubectl" not in text


def test_without_a_limit_only_the_time_is_shown():
    text = of_status(rank(3, **SLOW), balancing=balancing(**NOTHING, limitIterationSeconds=None, strategy="MIG"))
    assert text.endswith("Nothing is taken from it (strategy MIG). An iteration takes 349 ms.")


def test_nothing_is_slow():
    even = balancing(**NOTHING, limitIterationSeconds=0.342, strategy="AUTO")
    assert of_status(balancing=even) == (
        "Nothing slows demo: none of its 4 ranks is a straggler. An iteration takes 349 ms, 1.02 times as long as it "
        "would if the work could be split without remainder (the fluid limit is 342 ms)."
    )
    assert of_status() == "Nothing slows demo: none of its 4 ranks is a straggler. An iteration takes 349 ms."


def test_saved_time_is_shown_after_recovery():
    assert of_status(balancing={"savedSeconds": 731.0}).endswith("349 ms. Balancing saved 12 min in this run.")


def test_lost_time_is_not_shown_as_saved():
    assert of_status(balancing={"savedSeconds": -0.1}).endswith("349 ms. Balancing lost 0.1 s in this run.")
    lost = of_status(rank(2, **SLOW, **REDUCED_WORK), balancing=balancing(savedSeconds=-0.1))
    assert lost.endswith("; balancing lost 0.1 s so far.")


def test_a_rank_that_an_injection_slows_is_not_called_nothing():
    even = balancing(**NOTHING, limitIterationSeconds=0.342, strategy="AUTO")
    text = of_status(rank(0, **INJECTED), balancing=even)
    assert text.startswith("No rank of demo is a straggler. An iteration takes 349 ms, 1.02 times as long")
    assert "On purpose, injections ask for 4.0x on rank 0 (3.9x measured)." in text


def test_a_missing_policy_is_shown_once():
    left = balancing(
        **{**NOTHING, "reason": "rank 3 is 4.0x slower; strategy None leaves the work as it is"}, strategy="None"
    )
    assert "Nothing is taken from it (strategy None). An iteration" in of_status(rank(3, **SLOW), balancing=left)


def test_several_stragglers():
    slow = [rank(n, **{**SLOW, "slowdown": 2.0 + n}, **REDUCED_WORK) for n in range(4)]
    slow[0] = rank(0, **SLOW, prunedRatio=0.5)
    slow[1] = rank(1, **{**SLOW, "slowdown": 2.0}, migratedRatio=0.25)
    text = of_status(*slow, balancing=balancing())
    assert text.startswith(
        "Ranks 3, 0, 2 and 1 slow demo: their matrix products take up to 5.0 times as long as those of a normal rank. "
        "SEMI takes columns from rank 3 (40.1 % deleted, 33.6 % computed by other ranks), rank 0 (50.0 % deleted), "
        "rank 2 (40.1 % deleted, 33.6 % computed by other ranks) and 1 more. "
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([rank(2, injectedSlowdown=2.0)], "On purpose, injections ask for 2.0x on rank 2 (not measured yet)."),
        ([rank(2, **SLOW, injectedSlowdown=2.0)], "That is on purpose: injections ask for 2.0x (not measured yet)."),
        (
            [rank(3, **SLOW), rank(2, **INJECTED)],
            "On purpose, injections ask for 4.0x on rank 2 (3.9x measured).",
        ),
        (
            [rank(n, **SLOW, **INJECTED) for n in range(4)],
            "That is on purpose: injections ask for 4.0x on rank 0 (3.9x measured), 4.0x on rank 1 (3.9x "
            "measured), 4.0x on rank 2 (3.9x measured) and 1 more.",
        ),
    ],
    ids=["not slow yet", "not measured yet", "another rank", "many"],
)
def test_ranks_slowed_by_an_injection_are_named(ranks, words):
    assert words in of_status(*ranks)


def test_a_device_that_cannot_follow_an_injection():
    reported = TrainerRank(
        rank=1, tp_rank=1, device="cpu", injected_slowdown=4.0, measured_slowdown=1.5, injection_problem="too short"
    )
    assert "injections ask for 4.0x on rank 1 (1.5x measured: too short)." in paragraph(
        of_run(run_status(reported), [], "running")
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"predictedIterationSeconds": 0.2}, "An iteration takes 349 ms now, where 200 ms was predicted."),
        ({"predictedIterationSeconds": None}, "An iteration takes 349 ms now. Without"),
        (
            {"untouchedIterationSeconds": 0.3},
            "Without it an iteration would take 300 ms: it costs more than it saves now.",
        ),
        ({"untouchedIterationSeconds": None}, "as predicted (351 ms). Balancing saved 12 min so far."),
        ({"savedSeconds": None}, "over the 130 iterations to come."),
    ],
    ids=str,
)
def test_the_result_of_a_decision_is_shown(changes, words):
    assert words in of_status(rank(2, **SLOW, **REDUCED_WORK), balancing=balancing(**changes))


def test_work_taken_from_a_rank_that_is_not_slow():
    assert of_status(rank(2, prunedRatio=0.5), balancing=balancing()).startswith(
        "No rank of demo is a straggler. SEMI takes columns from rank 2 (50.0 % deleted). "
    )


def test_without_an_end_no_remaining_cost_is_shown():
    text = of_status(rank(2, **SLOW, **REDUCED_WORK), balancing=balancing(), training={"totalIterations": None})
    assert text.endswith("871 ms, 2.5 times as long; balancing saved 12 min so far.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"generation": 5},
            "Generation 5 of the control document is published, 3 is in force: the last change does not hold yet.",
        ),
        (
            {"generation": 5, "problem": "control.json: is not JSON: x"},
            "The last change was refused: control.json: is not JSON: x.",
        ),
    ],
    ids=["not yet", "refused"],
)
def test_a_change_that_does_not_hold(changes, words):
    text = of_status(rank(2, **SLOW, **REDUCED_WORK), balancing=balancing(**changes))
    assert text.endswith(words)
    assert ("is published" in text) == (words.startswith("Generation"))


def test_advice_of_the_operator():
    advised = {"type": "ReplacementAdvised", "status": "True", "message": "rank 3 on node n is 4.0x slower: drain it"}
    text = of_status(rank(3, **SLOW), conditions=[advised])
    assert text.endswith("The operator advises a replacement: rank 3 on node n is 4.0x slower: drain it.")


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (JobView("demo"), "demo is new: the operator has not taken it up yet."),
        (
            JobView("demo", state="Pending", waiting_for="Unschedulable"),
            "demo is Pending: its pods are not there yet; it waits for nodes on which its pods fit (Unschedulable).",
        ),
        (
            JobView("demo", state="Pending", waiting_for="New"),
            "demo is Pending: its pods are not there yet; it waits for (New).",
        ),
        (
            JobView("demo", state="Suspended"),
            "demo is Suspended: it has no pods, and continues from its checkpoint when runPolicy.suspend is false.",
        ),
        (
            JobView(
                "demo",
                state="Succeeded",
                iteration=200,
                saved_seconds=731.0,
                advice=(Advice("ReplacementAdvised", "x"),),
            ),
            "demo has succeeded at iteration 200. Balancing saved 12 min in this run.",
        ),
        (JobView("demo", state="Failed", message="rank 3 exited with 1"), "demo has failed: rank 3 exited with 1."),
        (
            JobView("demo", state="unfinished", iteration=70),
            "demo was killed at iteration 70, and continues from its last checkpoint with `heterotp run --resume`.",
        ),
        (JobView("demo", state="Odd"), "demo is Odd."),
        (
            JobView("demo", state="Running"),
            "demo runs, but no iteration was timed yet: ask again after the first ones.",
        ),
    ],
    ids=lambda value: value.state if isinstance(value, JobView) else "",
)
def test_a_job_that_does_not_train(view, text):
    assert paragraph(view) == text


def test_a_job_that_trains_and_waits():
    text = of_status(waitingFor="Unreachable")
    assert text.startswith(f"demo waits {WAITS['Unreachable']} (Unreachable). Nothing slows demo")


STALL = "no iteration for 12 s; rank 1 is still computing (data, since 11:02:03 UTC)"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"state": "Running", "waiting_for": "Iteration", "iteration_seconds": 0.349, "problem": "no such rank"},
            f"demo stalls: {STALL}. Before that an iteration took 349 ms. The last change was refused: no such rank.",
        ),
        ({"state": "running"}, f"demo stalls: {STALL}."),
        ({"state": "starting"}, f"demo is starting: its ranks do not train yet. demo stalls: {STALL}."),
        (
            {"state": "Running", "waiting_for": "Unreachable"},
            f"demo waits {WAITS['Unreachable']} (Unreachable). demo stalls: {STALL}.",
        ),
    ],
    ids=["on a cluster", "no iteration was timed", "starting", "rank 0 does not answer"],
)
def test_a_stall_comes_before_what_is_of_earlier_iterations(fields, text):
    assert paragraph(JobView("demo", stall=STALL, **fields)) == text


def test_who_is_late_is_named_with_stage_and_cost_also_where_products_are_even():
    blame = [
        {"rank": 1, "stage": "data", "seconds": 0.1, "share": 0.9},
        {"rank": 2, "stage": "ffnForward", "seconds": 0.01, "share": 0.1},
    ]
    even = balancing(**NOTHING, limitIterationSeconds=0.342, strategy="AUTO")
    assert "Other ranks wait for rank 1 in loading data: 100 ms, 29 % of an iteration." in of_status(
        balancing=even, blame=blame
    )


def test_a_rank_that_loses_little_is_not_named():
    blame = [{"rank": 1, "stage": "data", "seconds": 0.01, "share": 1.0}]
    assert "wait for rank" not in of_status(balancing=balancing(**NOTHING), blame=blame)


THROTTLED = {"rank": 3, "kind": "cpuLimit", "share": 0.6, "amount": 0.5}
THROTTLED_WORDS = (
    "Rank 3 is slow: its container was throttled by its CPU limit of 0.5 CPUs 60 % of the time; raise the limit, or "
    "leave it to AUTO. "
)


def test_the_cause_comes_before_what_is_done_about_it():
    left = balancing(**NOTHING, strategy="None")
    text = of_status(rank(3, **SLOW), balancing=left, causes=[THROTTLED])
    assert f"for 12 min now. {THROTTLED_WORDS}Nothing is taken from it" in text


def test_the_cause_of_a_late_rank_whose_products_are_even():
    causes = [{"rank": 1, "kind": "data", "share": 0.3}, {"rank": 1, "kind": "ioPressure", "share": 0.2}]
    text = of_status(balancing=balancing(**NOTHING), causes=causes)
    assert text.startswith("No rank of demo is a straggler. An iteration takes ")
    assert (
        "Rank 1 is slow: it loaded data for longer than the others, by 30 % of an iteration, and processes of its "
        "container waited for a disk 20 % of the time; use a faster disk or more workers of the loader."
    ) in text


def test_an_injection_and_a_kind_of_a_newer_operator_add_no_sentence():
    causes = [{"rank": 3, "kind": "injection", "share": 0.75, "amount": 4.0}, {"rank": 2, "kind": "new", "share": 0.5}]
    assert "is slow:" not in of_status(rank(3, **SLOW), balancing=balancing(**NOTHING), causes=causes)


def test_the_cause_of_a_run_on_this_machine():
    status = run_status(causes=(TrainerCause(rank=3, kind="cpuLimit", share=0.6, amount=0.5),))
    assert THROTTLED_WORDS.strip() in paragraph(of_run(status, (), "running"))
