"""Rank numbering: group by group, pod by pod, process by process."""

import pytest
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.ranks import pods, rank_table

SPEC = HeteroTPJobSpec.model_validate(
    {
        "tensorParallelDegree": 8,
        "training": {},
        "workerGroups": [
            {"name": "a", "pods": 2, "processesPerPod": 3, "relativeSpeed": 1},
            {"name": "b", "pods": 2, "device": {"type": "cpu"}},
        ],
    }
)


def test_pods_start_where_the_one_before_ended():
    assert [(p.group, p.index, p.first_rank, p.processes) for p in pods(SPEC)] == [
        ("a", 0, 0, 3),
        ("a", 1, 3, 3),
        ("b", 0, 6, 1),
        ("b", 1, 7, 1),
    ]


def test_ranks_are_dense_and_carry_their_group():
    table = rank_table(SPEC)
    assert [place.rank for place in table] == list(range(8))
    assert [(p.group, p.pod_index, p.local_rank) for p in table[4:7]] == [("a", 1, 1), ("a", 1, 2), ("b", 0, 0)]
    assert table[0].relative_speed == 1 and table[7].relative_speed is None
    assert table[7].device.type == "cpu"


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({}, 300),
        ({"training": {}}, 300),
        ({"training": {"collectiveTimeoutSeconds": 20}}, 20),
        ({"runPolicy": {"collectiveTimeoutSeconds": 30}}, 30),
        ({"training": {}, "runPolicy": {"collectiveTimeoutSeconds": 30}}, 30),
    ],
    ids=["default", "default of training", "training", "own command", "runPolicy"],
)
def test_the_collective_timeout_is_that_of_run_policy_or_of_training(more, seconds):
    groups = [{"name": "a", "pods": 2, "template": {"spec": {}}}]
    spec = {"tensorParallelDegree": 2, "workerGroups": groups, **more}
    assert HeteroTPJobSpec.model_validate(spec).collective_timeout_seconds == seconds


def test_shares_are_probed_unless_every_group_declares_its_speed():
    assert SPEC.initial_shares == "probe"
    declared = SPEC.dump()
    declared["workerGroups"][1]["relativeSpeed"] = 0.5
    assert HeteroTPJobSpec.model_validate(declared).initial_shares == "declared"
