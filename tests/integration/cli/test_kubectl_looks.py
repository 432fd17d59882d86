"""`kubectl heterotp` against a real API server: what it shows, and mistakes.

No operator runs: the tests write the statuses themselves.
"""

import json
from pathlib import Path

import pytest
import yaml
from support.cli_views import job_status
from support.gang import Gang, groups_of, job
from support.played_operator import NAMESPACE, injections, write_status

pytestmark = pytest.mark.integration


def test_top_shows_the_ranks_of_a_job_the_slowest_first(call, demo):
    code, out, errors = call("top", "demo", "-n", NAMESPACE)
    assert (code, errors) == (0, [])
    lines = out.splitlines()
    assert lines[0] == "demo · Running · attempt 1 · 4 ranks · strategy SEMI (policy inline)"
    assert lines[2] == "349 ms/iteration · predicted 351 ms · limit 371 ms · untouched 871 ms · saved 12 min"
    assert lines[5].split() == (
        [
            "2",
            "fast",
            "node-2",
            "25.0",
            "%",
            "241",
            "ms",
            "223",
            "ms",
            "52",
            "ms",
            "4.0x",
            "40.1",
            "%",
            "33.6",
            "%",
            "4.0x",
        ]
    )
    assert [line.split()[0] for line in lines[5:9]] == ["2", "0", "1", "3"]
    assert lines[8].split()[1] == "slow"


@pytest.fixture
def new(kube, demo):
    """A second job, which no operator has seen yet."""
    new = Gang(kube, NAMESPACE, job("new", (("a", 2),)))
    yield new
    new.delete()


def test_top_without_a_job_shows_all(call, new):
    code, out, _ = call("-n", NAMESPACE, "top")
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}
    assert code == 0
    assert lines["demo"] == ["Running", "4", "349", "ms", "rank", "2", "(4.0x)", "SEMI", "inline", "12", "min"]
    assert lines["new"] == ["new", "2", "-", "-", "-", "-", "-"]
    everywhere = [line.split()[:2] for line in call("top", "--all-namespaces")[1].splitlines()]
    assert [NAMESPACE, "new"] in everywhere


def test_top_follows_to_the_end(call, demo):
    write_status(demo, job_status(phase="Succeeded"))
    assert call("top", "demo", "-w", "-n", NAMESPACE)[0] == 0


def test_json_is_what_the_status_says(call, demo):
    for verb in ("top", "describe-ranks"):
        code, out, _ = call(verb, "demo", "-n", NAMESPACE, "-o", "json")
        reported = json.loads(out)
        assert (code, reported["state"], reported["ranks"][2]["measuredSlowdown"]) == (0, "Running", 3.9)


def test_explain_is_one_paragraph(call, demo):
    code, out, _ = call("explain", "demo", "-n", NAMESPACE)
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith("Rank 2 (group fast, node node-2) slows demo: its matrix products take 4.0 times as long as")
    assert "Without it an iteration would take 871 ms, 2.5 times as long" in out


def test_describe_ranks(call, demo):
    code, out, _ = call("describe-ranks", "demo", "-n", NAMESPACE)
    assert code == 0
    assert "balancing  40.1 % of its columns pruned, 33.6 % computed by others" in out


# -- mistakes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["top", "dem"], f"JOB: 'dem': no such HeteroTPJob in namespace {NAMESPACE}; there are demo"),
        (["ui", "dem"], f"JOB: 'dem': no such HeteroTPJob in namespace {NAMESPACE}; there are demo"),
        (["explain", "dem"], f"JOB: 'dem': no such HeteroTPJob in namespace {NAMESPACE}; there are demo"),
        (["inject", "demo", "--rank", "9", "--chi", "4"], "--rank: 9: the job has ranks 0 .. 3"),
        (["inject", "demo", "--group", "new", "--chi", "4"], "--group: 'new': the job has the groups fast, slow"),
        (["inject", "demo", "--node", "n9", "--chi", "4"], "--node: n9: no rank of the job runs there"),
        (["inject", "demo", "--rank", "3", "--chi", "0.5"], "--chi: 0.5 input should be greater than or equal to 1"),
        (
            ["policy", "demo", "--strategy", "FAST"],
            "--strategy: 'FAST' input should be 'None', 'ZERO', 'MIG', 'SEMI', 'RESHARD' or 'AUTO'",
        ),
        (
            ["policy", "demo", "--strategy", "MIG", "--set", "zero.alpha=1"],
            "--set zero: zero belongs to strategy ZERO or AUTO",
        ),
        (
            ["policy", "demo", "--strategy", "ZERO", "--set", "zero.fixedRatio=0.5", "--set", "zero.ranks=[9]"],
            "--set zero.ranks: 9: the job has ranks 0 .. 3",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_2(call, kube, demo, arguments, line):
    assert call(*arguments, "-n", NAMESPACE) == (2, "", [line])
    assert injections(kube) == {}
    assert demo.live()["metadata"]["generation"] == 1


def test_an_empty_namespace_is_named(call, demo):
    assert call("top", "demo", "-n", "default") == (
        2,
        "",
        ["JOB: 'demo': there is no HeteroTPJob in namespace default"],
    )
    assert call("top", "-n", "default") == (0, "there is no job in namespace default\n", [])


def edited(kubeconfig, path, **changes):
    """Write a copy of the kubeconfig with another server or token."""
    document = yaml.safe_load(Path(kubeconfig).read_text())
    document["clusters"][0]["cluster"].update({k: v for k, v in changes.items() if k == "server"})
    document["users"][0]["user"].update({k: v for k, v in changes.items() if k == "token"})
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_an_api_server_that_does_not_answer_is_one_line_and_exit_1(call, kubeconfig, tmp_path):
    unreachable = edited(kubeconfig, tmp_path / "config", server="https://127.0.0.1:1")
    for arguments in (["top"], ["explain", "demo"], ["inject", "demo", "--rank", "3", "--chi", "4"]):
        code, out, errors = call(*arguments, "--kubeconfig", unreachable)
        assert (code, out, len(errors)) == (1, "", 1)
        assert errors[0].startswith("the API server https://127.0.0.1:1 does not answer: ")
        assert errors[0].endswith("Connection refused")


def test_credentials_that_are_refused_are_one_line_and_exit_1(call, kube, kubeconfig, tmp_path):
    stranger = edited(kubeconfig, tmp_path / "config", token="stranger")
    assert call("top", KUBECONFIG=stranger) == (
        1,
        "",
        [f"{kube.server} refuses the credentials of the kubeconfig: Unauthorized"],
    )


def test_a_missing_permission_is_the_api_servers_error(call, kube, kubeconfig, namespace, tmp_path):
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = kube.path("serviceaccounts", namespace, "default", "token")
    token = kube.request("POST", path, request)["status"]["token"]
    reader = edited(kubeconfig, tmp_path / "config", token=token)
    code, out, errors = call("top", "-n", NAMESPACE, KUBECONFIG=reader)
    assert (code, out, len(errors)) == (1, "", 1)
    assert "cannot list resource" in errors[0]


def test_an_own_command_of_unlike_pods_has_its_ranks(call, kube, namespace):
    body = job("own", (("a", 1),), training=False)
    body["spec"]["workerGroups"] = [{**groups_of((("a", 1),))[0], "processesPerPod": 2}]
    body["spec"]["tensorParallelDegree"] = 2
    own = Gang(kube, namespace, body)
    assert call("inject", "own", "--rank", "2", "--chi", "4", "-n", NAMESPACE)[2] == [
        "--rank: 2: the job has ranks 0 .. 1"
    ]
    own.delete()
