"""A rank that is slow for a real reason: the status of the gang says why."""

import json

from heterotp_api.trainer_status import TrainerStatus
from heterotp_cli.verbs.explanation import explain
from heterotp_cli.verbs.view import of_run
from support.cgroups import cpu_limit
from support.launched import spec

LIMIT = 0.1  # CPUs; a rank alone would use several times as much


def test_a_rank_under_a_cpu_limit_is_named_with_its_limit_and_no_other_rank_is(launch):
    run = launch(spec(3, epochs=1_000_000))
    run.reach(20)
    with cpu_limit(LIMIT) as put:
        put(run.ranks()[1])
        status = run.until("a cause is named", lambda: limited(run))
        (cause,) = [each for each in status.causes if each.kind == "cpuLimit"]
        assert (cause.rank, cause.amount) == (1, LIMIT)
        text = explain(of_run(status, (), "running"), 0.0, "heterotp policy")
        assert f"Rank 1 is slow: its container was throttled by its CPU limit of {LIMIT:g} CPUs" in text


def limited(run):
    """Return the status once rank 1 has a CPU limit as its main cause."""
    document = run.read("status.json")
    status = TrainerStatus.model_validate_json(json.dumps(document)) if document else None
    main = next((each for each in status.causes if each.rank == 1), None) if status else None
    return status if main is not None and main.kind == "cpuLimit" else None
