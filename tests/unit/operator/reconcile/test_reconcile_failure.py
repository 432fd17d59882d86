"""Who is to blame when a gang ends, and what follows."""

import json

import pytest
from heterotp_api import names
from heterotp_api.last_words import with_failure
from heterotp_api.run_policy import DISRUPTION, FailureRule
from heterotp_operator.reconcile.failure import Cause, judge
from support.reconcile_world import World, manifest

FIRST, SECOND, THIRD = "job-a-0-1", "job-b-0-1", "job-b-1-1"
ON_NODE = f"(pod {THIRD} on node node-1)"
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "node gone"}


def running(**policy):
    return World(manifest(runPolicy=policy)).started()


def blamed(world):
    """Return the pod that the restart names."""
    world.settle()
    message = world.condition("Restarting")["message"]
    return next(name for name in (FIRST, SECOND, THIRD) if name in message)


@pytest.mark.parametrize(
    ("ends", "culprit"),
    [
        ({FIRST: 75, THIRD: 1}, THIRD),
        ({FIRST: 75, SECOND: 75, THIRD: 137}, THIRD),
        ({FIRST: 143, SECOND: 139}, SECOND),
        ({FIRST: 75, SECOND: 143}, SECOND),
        ({FIRST: 75, SECOND: 75, THIRD: 75}, FIRST),
        ({FIRST: 77, SECOND: 77, THIRD: 1}, THIRD),
    ],
    ids=lambda value: str(value),
)
def test_the_root_cause_among_those_that_ended(ends, culprit):
    world = running()
    for name, code in ends.items():
        world.end(name, code)
    assert blamed(world) == culprit


def test_the_earlier_of_two_failures_is_the_cause():
    world = running()
    world.now += 10
    world.end(FIRST, 1)
    world.now -= 5
    world.end(THIRD, 1)
    world.now += 6
    assert blamed(world) == THIRD


def test_a_deleted_pod_is_the_cause_even_with_exit_code_143():
    world = running()
    world.end(FIRST, 1)
    world.end(THIRD, 143)
    world.pods[THIRD]["status"]["conditions"].append(DISRUPTED)
    assert blamed(world) == THIRD
    assert "node gone" in world.condition("Restarting")["message"]
    assert world.status["restarts"] == 0


def test_a_victim_alone_is_the_cause_after_a_grace():
    world = running()
    world.end(FIRST, names.EXIT_PEER_LOST)
    decision = world.settle()
    assert (world.phase, world.status["attempt"]) == ("Running", 1)
    assert decision.requeue_after == pytest.approx(5)
    world.now += 4
    world.settle()
    assert world.status["attempt"] == 1
    world.now += 1
    assert blamed(world) == FIRST
    assert (world.status["attempt"], world.status["restarts"]) == (2, 1)


@pytest.mark.parametrize("ahead", [-3600, 3600], ids=["behind", "ahead"])
def test_the_clock_of_a_node_changes_no_grace(ahead):
    world = running()
    world.now += ahead  # as the node of this pod has it
    world.end(FIRST, names.EXIT_PEER_LOST)
    world.now -= ahead
    assert world.settle().requeue_after == pytest.approx(5)
    world.now += 5
    assert blamed(world) == FIRST


def test_a_cause_that_appears_within_the_grace_is_named():
    world = running()
    world.end(FIRST, names.EXIT_PEER_LOST)
    world.settle()
    world.now += 2
    world.end(SECOND, 137, "OOMKilled")
    assert blamed(world) == SECOND
    assert "OOMKilled" in world.condition("Restarting")["message"]


def test_a_pod_deleted_from_outside_is_named_and_counts():
    world = running()
    world.take(SECOND)
    assert blamed(world) == SECOND
    assert (world.condition("Restarting")["reason"], world.status["restarts"]) == ("PodDeleted", 1)


def test_a_drained_pod_does_not_count():
    world = running()
    world.take(SECOND)
    world.pods[SECOND]["status"]["conditions"].append(DISRUPTED)
    assert blamed(world) == SECOND
    assert (world.condition("Restarting")["reason"], world.status["restarts"]) == ("DeletionByTaintManager", 0)


def test_a_pod_that_failed_without_a_container_has_its_own_reason():
    world = running()
    world.play(SECOND, "Failed", reason="Evicted", message="The node was low on resource: ephemeral-storage.")
    assert blamed(world) == SECOND
    assert "ephemeral-storage" in world.condition("Restarting")["message"]


def test_the_last_line_of_the_log_is_part_of_the_cause():
    world = running()
    world.end(THIRD, names.EXIT_BAD_INPUT)
    state = world.pods[THIRD]["status"]["containerStatuses"][0]["state"]["terminated"]
    state["message"] = "reading spec\nrank 2 (cuda:Tesla P100): bf16 is not supported\n"
    world.settle()
    assert world.condition("Failed")["reason"] == "FailureRule"
    assert world.condition("Failed")["message"].endswith("rank 2 (cuda:Tesla P100): bf16 is not supported")


@pytest.mark.parametrize(
    ("rank", "code", "output", "words"),
    [
        (2, 2, ["error: heads: 5"], f"rank 2 {ON_NODE} ended: Error, exit code 2: error: heads: 5"),
        (3, 2, ["Traceback", "error: heads: 5"], f"rank 3 {ON_NODE} ended: Error, exit code 2: error: heads: 5"),
        (2, 2, [], f"rank 2 {ON_NODE} ended: Error, exit code 2: it wrote no output"),
        (2, 7, ["bang"], f"rank 2 {ON_NODE} ended: Error, exit code 2: the rank's exit code 7: bang"),
    ],
    ids=["first rank", "another rank of the pod", "no output", "another exit code"],
)
def test_the_launchers_document_names_rank_and_words_of_the_cause_and_the_exit_code_once(rank, code, output, words):
    world = running()
    world.end(THIRD, names.EXIT_BAD_INPUT, message=with_failure("", rank, code, output))
    world.settle()
    assert world.condition("Failed")["message"] == words


@pytest.mark.parametrize("last", ["{", '{"kind": "RankFailure"}', "heterotp launcher: rank 9 ended with exit code 7"])
def test_a_last_line_that_is_no_document_is_shown_unchanged(last):
    world = running()
    world.end(THIRD, 1, message=f"before\n{last}\n")
    world.settle()
    assert world.condition("Restarting")["message"].endswith(f"Error, exit code 1: {last}")


def test_bad_input_of_an_own_command_is_an_exit_code_like_others():
    template = {"spec": {"containers": [{"name": names.CONTAINER, "command": ["train"]}]}}
    world = World(manifest(training=False, template=template)).started()
    world.end(THIRD, names.EXIT_BAD_INPUT)
    world.settle()
    assert (world.phase, world.status["restarts"]) == ("Restarting", 1)


def rule(action, codes=None, conditions=None):
    return FailureRule(on_exit_codes=codes, on_pod_conditions=conditions, action=action)


@pytest.mark.parametrize(
    ("code", "conditions", "rules", "verdict"),
    [
        (1, (), [], "RestartGang"),
        (1, (), [rule("FailJob", [1, 3])], "FailJob"),
        (2, (), [DISRUPTION], "FailJob"),
        (78, (), [DISRUPTION], "FailJob"),
        (78, (), [rule("RestartGang", [78])], "RestartGang"),
        (2, (), [rule("RestartGang", [2])], "RestartGang"),
        (4, (), [rule("FailJob", [1, 3])], "RestartGang"),
        (1, ("DisruptionTarget",), [DISRUPTION], "IgnoreCount"),
        (1, ("DisruptionTarget",), [rule("FailJob", [1]), DISRUPTION], "FailJob"),
        (1, ("DisruptionTarget",), [DISRUPTION, rule("FailJob", [1])], "IgnoreCount"),
        (None, ("Ready",), [rule("FailJob", [1]), DISRUPTION], "RestartGang"),
    ],
)
def test_the_first_rule_that_matches_decides(code, conditions, rules, verdict):
    assert judge(Cause("p", "r", "m", code, conditions, trainer=True), rules).action == verdict


OWN = {"spec": {"containers": [{"name": names.CONTAINER, "command": ["train"]}]}}


@pytest.mark.parametrize("own", [{}, {"training": False, "template": OWN}], ids=["built-in", "own command"])
def test_a_loss_that_is_not_finite_fails_the_job_without_a_restart(own):
    world = World(manifest(**own)).started()
    words = "error: iteration 7: the loss or the norm of the gradients is not finite (nan)"
    world.end(FIRST, names.EXIT_PEER_LOST)
    world.end(THIRD, names.EXIT_NON_FINITE, message=with_failure("", 2, names.EXIT_NON_FINITE, [words]))
    world.settle()
    assert (world.phase, world.status["restarts"]) == ("Failed", 0)
    assert world.condition("Failed")["reason"] == "NonFiniteLoss"
    assert words in world.condition("Failed")["message"]


def test_a_gang_that_its_ranks_ended_for_want_of_progress_is_restarted_as_that():
    world = running()
    words = "error: no iteration for 301 s; rank 2 is still computing (forward, since 10:00:00 UTC)"
    world.end(FIRST, names.EXIT_PEER_LOST)
    world.end(THIRD, names.EXIT_NO_PROGRESS, message=with_failure("", 2, names.EXIT_NO_PROGRESS, [words]))
    world.settle()
    restarting = world.condition("Restarting")
    assert (restarting["status"], restarting["reason"]) == ("True", "NoProgress")
    assert words in restarting["message"] and world.status["restarts"] == 1


def test_an_own_rule_for_the_exit_code_is_told_as_that():
    world = running(failureRules=[{"onExitCodes": [names.EXIT_NON_FINITE], "action": "FailJob"}])
    world.end(THIRD, names.EXIT_NON_FINITE)
    world.settle()
    assert world.condition("Failed")["reason"] == "FailureRule"


def test_ignored_failures_do_not_use_up_the_limit():
    world = running(backoffLimit=0, failureRules=[{"onExitCodes": [9], "action": "IgnoreCount"}])
    for attempt in (1, 2, 3):
        world.end(f"job-a-0-{attempt}", 9)
        world.settle()
        world.vanish()
        world.started()
    assert (world.phase, world.status["attempt"], world.status["restarts"]) == ("Running", 4, 0)


def ended_container(name, code):
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}


def test_a_sidecar_that_fails_counts_only_when_it_takes_the_pod_down():
    world = running()
    for phase in ("Running", "Succeeded"):  # a native sidecar is ended by a signal once the trainer is done
        world.play(SECOND, phase, ready=True)
        world.pods[SECOND]["status"]["initContainerStatuses"] = [ended_container("proxy", 143)]
        world.settle()
        assert world.phase == "Running"
    world.play(SECOND, "Failed")
    world.pods[SECOND]["status"]["initContainerStatuses"] = [ended_container("proxy", 3)]
    assert blamed(world) == SECOND
    assert "ended: container proxy: Error, exit code 3" in world.condition("Restarting")["message"]


def test_a_sidecars_exit_code_is_not_the_trainers():
    world = running()
    world.play(SECOND, "Failed")
    both = [ended_container("logger", names.EXIT_BAD_INPUT), ended_container(names.CONTAINER, 137)]
    world.pods[SECOND]["status"]["containerStatuses"] = both
    assert blamed(world) == SECOND
    assert "exit code 137" in world.condition("Restarting")["message"]

    alone = running()
    alone.play(SECOND, "Failed")
    alone.pods[SECOND]["status"]["containerStatuses"] = both[:1]
    alone.settle()
    assert (alone.phase, alone.status["restarts"]) == ("Restarting", 1), "2 means bad input from the trainer only"


def test_a_pod_that_is_cleaned_up_after_its_rank_was_done_restarts_nothing():
    world = running()
    document = {"schemaVersion": 1, "job": "job", "attempt": 1, "state": "succeeded", "startedAt": 1.0, "iteration": 9}
    world.end(FIRST, 0, message=json.dumps(document))
    world.end(THIRD, 0)
    del world.pods[THIRD]
    world.end(SECOND, 0)
    world.settle()
    assert (world.phase, world.status["attempt"]) == ("Succeeded", 1)


def test_a_job_with_a_rank_still_at_work_has_not_succeeded():
    world = running()
    world.end(FIRST, 0)
    world.end(SECOND, 0)
    world.settle()
    assert world.phase == "Running"
    world.end(THIRD, 0)
    world.settle()
    assert (world.phase, world.true & {"Succeeded"}) == ("Succeeded", {"Succeeded"})
