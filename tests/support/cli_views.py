"""Jobs as the API server returns them, and statuses as rank 0 writes them, for tests of the verbs."""

from heterotp_api.trainer_status import TrainerRank, TrainerStatus

REASON = "rank 2 is 4.0x slower: rank 2 40% pruned, 34% migrated; 0.871 s -> 0.351 s an iteration predicted"
SINCE = "2026-01-01T00:00:00Z"
NOW = 1767225600.0 + 740  # twelve minutes later
TIMES = {"computeSeconds": 0.241, "matmulSeconds": 0.223, "waitSeconds": 0.0524}
REDUCED_WORK = {"prunedRatio": 0.401, "migratedRatio": 0.336}
INJECTED = {"injectedSlowdown": 4.0, "measuredSlowdown": 3.9}
SLOW = {"slowdown": 4.01, "straggler": True, "stragglingSince": SINCE}
EMULATED = {"type": "emulated", "teraflops": 0.02}


def rank(number, **more):
    """Return a row of status.ranks."""
    where = {"rank": number, "tpRank": number, "pod": f"demo-{number}", "node": f"node-{number}", "device": "cpu"}
    return {**where, **TIMES, "relativeSpeed": 1.0, "slowdown": 1.0, "share": 0.25, "straggler": False, **more}


def balancing(**more):
    """Return status.balancing of a policy that acts; None takes a field away."""
    given = {
        "policy": "inline",
        "strategy": "SEMI",
        "generation": 3,
        "appliedGeneration": 3,
        "predictedIterationSeconds": 0.351,
        "limitIterationSeconds": 0.371,
        "untouchedIterationSeconds": 0.871,
        "savedSeconds": 731.0,
        "reason": REASON,
        **more,
    }
    return {key: value for key, value in given.items() if value is not None}


def job_status(*ranks, balancing=None, training=None, **more):
    """Return the status of a running job of four ranks, of which these are not as the others."""
    reported = {each["rank"]: each for each in ranks}
    return {
        "phase": "Running",
        "attempt": 1,
        "observedGeneration": 1,
        "ranks": [reported.get(number, rank(number)) for number in range(4)],
        "training": {
            "epoch": 1,
            "iteration": 70,
            "totalIterations": 200,
            "iterationSeconds": 0.349,
            "loss": 1.168,
            "accuracy": 0.426,
            "etaSeconds": 45.4,
            **(training or {}),
        },
        "balancing": balancing or {},
        **more,
    }


def job_body(status=None, **metadata):
    """Return a HeteroTPJob as the API server holds it."""
    groups = [{"name": "fast", "pods": 1, "processesPerPod": 3}, {"name": "slow", "pods": 1, "processesPerPod": 1}]
    return {
        "metadata": {"name": "demo", "namespace": "default", "generation": 1, **metadata},
        "spec": {"tensorParallelDegree": 4, "workerGroups": groups},
        **({"status": status} if status is not None else {}),
    }


def balanced_job():
    """Return a job whose rank 2 is slow on purpose, and whose work SEMI reduces."""
    return job_body(job_status(rank(2, **SLOW, **REDUCED_WORK, **INJECTED), balancing=balancing()))


def run_status(*ranks, **changes):
    """Return what rank 0 of a local run writes."""
    reported = {each.rank: each for each in ranks}
    fields = {
        "job": "demo",
        "attempt": 1,
        "state": "running",
        "started_at": 0.0,
        "iteration": 70,
        "total_iterations": 200,
        "iteration_seconds": 0.349,
        "control_generation": 1,
        "applied_generation": 1,
        "strategy": "AUTO",
        "ranks": tuple(
            reported.get(number, TrainerRank(rank=number, tp_rank=number, device="cpu")) for number in range(4)
        ),
        **changes,
    }
    return TrainerStatus(**fields)
