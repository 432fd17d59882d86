"""Jobs that wait in a queue of Kueue."""

from support.cluster_job import group, job, template, two_ranks
from support.kueue_queue import LOCAL_QUEUE
from support.patience import PATIENCE_SECONDS

FOREVER = 100_000  # iterations: the test ends it
ONLY_AT_ITS_END = {
    "everyIterations": FOREVER
}  # a checkpoint is written when the gang is asked to end, and at no other time


def gang(**more):
    return {"runPolicy": {"gang": {"provider": "kueue", "queue": LOCAL_QUEUE, **more}}}


def queued(name, iterations=FOREVER, priority=None, checkpoint=None, **more):
    """Return a job of one rank on each worker."""
    chosen = {"workloadPriorityClassName": priority} if priority else {}
    return two_ranks(name, iterations, checkpoint=checkpoint, **gang(**chosen), **more)


def without_node_selectors(body):
    """Let the job run on any node: what binds its ranks to nodes then comes from Kueue."""
    for each in body["spec"]["workerGroups"]:
        each["template"]["spec"].pop("nodeSelector")
    return body


def of_one_group(name, ranks, iterations=FOREVER, annotations=None, **of_group):
    """Return a job of one worker group of so many ranks on any node."""
    only = group("only", "none", 0.05, 0.1) | {"pods": ranks, "template": template()} | of_group
    if annotations:
        only["template"]["metadata"] = {"annotations": annotations}
    training = two_ranks(name, iterations)["spec"]["training"]
    body = job(name, [only], training=training, **gang())
    body["spec"]["tensorParallelDegree"] = ranks
    return body


def trains(run, iteration=3, attempt=None):
    """Wait until the job trains, in its present attempt unless told; return the attempt."""
    attempt = attempt or run.reaches(phase="Running")["attempt"]
    run.trained(attempt, iteration)
    return attempt


def waits(run, seconds=PATIENCE_SECONDS):
    """Wait until the job says that it waits for admission; it has no pods."""
    status = run.reaches(seconds, waitingFor="Admission")
    assert not run.pods()
    return status
