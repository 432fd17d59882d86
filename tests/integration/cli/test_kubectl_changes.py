"""`kubectl heterotp` against a real API server: what it writes, by command and by the page's buttons.

No operator runs: the tests play it in a thread.
"""

import json
import os
from contextlib import contextmanager

import pytest
from support.cli_process import cli_process
from support.cli_views import job_status
from support.live_page import fetched, posted
from support.played_operator import NAMESPACE, injections, operator, write_status

pytestmark = pytest.mark.integration


def test_inject_makes_an_object_that_says_what_was_asked(call, kube, demo):
    done = call("inject", "demo", "--rank", "3", "--chi", "4", "--for", "10m", "--no-wait", "-n", NAMESPACE)
    assert done == (
        0,
        "StragglerInjection demo-rank-3 slows rank 3 of demo 4x, for 10 min\n"
        f"take it back: kubectl heterotp inject demo -n {NAMESPACE} --rank 3 --off\n",
        [],
    )
    made = injections(kube)["demo-rank-3"]
    assert made["metadata"]["labels"] == {"app.kubernetes.io/created-by": "kubectl-heterotp"}
    assert made["spec"] == {
        "jobRef": {"name": "demo"},
        "targets": {"ranks": [3]},
        "slowdown": 4,
        "stop": {"seconds": 600},
        "pattern": {},
        "paused": False,
    }


def test_inject_again_replaces_the_injection_and_off_removes_it(call, kube, kubeconfig, demo):
    where = ("-n", NAMESPACE)
    with operator(kubeconfig):
        call("inject", "demo", "--rank", "3", "--chi", "4", *where)
        first = injections(kube)["demo-rank-3"]
        code, out, errors = call("inject", "demo", "--rank", "3", "--chi", "2", "--mode", "spin", *where)
        second = injections(kube)["demo-rank-3"]
        assert (code, errors) == (0, [])
        assert out.startswith("StragglerInjection demo-rank-3 slows rank 3 of demo 2x (mode spin), until it is taken")
        assert "replaces the one that was there" in out
        assert "\nin force on all ranks after " in out
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        assert (second["spec"]["slowdown"], second["spec"]["mode"]) == (2, "spin")
        call("inject", "demo", "--group", "fast", "--chi", "2", *where)
        assert injections(kube)["demo-group-fast"]["spec"]["targets"] == {"workerGroups": ["fast"]}
        code, out, _ = call("inject", "demo", "--rank", "3", "--off", *where)
        assert (code, out.splitlines()[0]) == (0, "StragglerInjection demo-rank-3: taken back")
        assert out.splitlines()[1].startswith("in force on all ranks after ")
        assert list(injections(kube)) == ["demo-group-fast"]
    kube.create("stragglerinjections", NAMESPACE, by_hand())
    assert call("inject", "demo", "--off", "--no-wait", *where)[1] == "StragglerInjection demo-group-fast: taken back\n"
    assert list(injections(kube)) == ["by-hand"]
    code, out, errors = call("inject", "demo", "--off", *where)
    assert (code, out, errors) == (2, "", ["--off: no injection was made by this command: nothing to take back"])


def by_hand():
    spec = {"jobRef": {"name": "demo"}, "targets": {"ranks": [1]}, "slowdown": 2}
    return {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "StragglerInjection",
        "metadata": {"name": "by-hand"},
        "spec": spec,
    }


def test_inject_on_a_node(call, kube, demo):
    assert call("inject", "demo", "--node", "node-2", "--chi", "2", "--no-wait", "-n", NAMESPACE)[0] == 0
    assert injections(kube)["demo-node-node-2"]["spec"]["targets"] == {"nodes": ["node-2"]}


def test_an_injection_that_the_operator_refuses_is_exit_1(call, kubeconfig, demo):
    with operator(kubeconfig, refuse="job demo: the control document is full"):
        code, _, errors = call("inject", "demo", "--rank", "3", "--chi", "4", "-n", NAMESPACE)
    assert (code, errors) == (1, ["refused: job demo: the control document is full"])


def test_policy_writes_what_was_asked(call, kube, kubeconfig, demo):
    with operator(kubeconfig):
        asked = ["--strategy", "semi", "--max-pruned-share", "0.1", "--set", "semi.zero.selection=Rd"]
        code, out, errors = call("policy", "demo", *asked, "-n", NAMESPACE)
    lines = out.splitlines()
    assert (code, errors) == (0, [])
    assert lines[:2] == [
        "HeteroTPJob demo: policy SEMI (maxPrunedShare 0.1, semi.zero.selection Rd); replaces the default policy",
        f"take it back: kubectl heterotp policy demo -n {NAMESPACE} --default",
    ]
    assert lines[2].startswith("in force on all ranks after ")
    policy = demo.live()["spec"]["balancing"]["policy"]
    assert (policy["strategy"], policy["maxPrunedShare"], policy["semi"]["zero"]["selection"]) == ("SEMI", 0.1, "Rd")
    assert call("policy", "demo", "--default", "--no-wait", "-n", NAMESPACE)[0] == 0
    assert demo.live()["spec"]["balancing"] == {}


def test_policy_replaces_a_reference_and_says_how_to_have_it_again(call, kube, demo):
    demo.patch({"balancing": {"policyRef": {"name": "semi"}}})
    _, out, _ = call("policy", "demo", "--strategy", "MIG", "--no-wait", "-n", NAMESPACE)
    assert "replaces policyRef semi" in out
    assert demo.live()["spec"]["balancing"]["policy"]["strategy"] == "MIG"
    patch = json.loads(out.splitlines()[1].partition("-p ")[2].strip("'"))
    kube.patch("heterotpjobs", NAMESPACE, "demo", patch, content_type="application/json-patch+json")
    assert demo.live()["spec"]["balancing"] == {"policyRef": {"name": "semi"}}


def test_a_policy_that_is_refused_is_exit_1(call, kubeconfig, demo):
    with operator(kubeconfig, refuse="control.json: balancing: no"):
        code, _, errors = call("policy", "demo", "--strategy", "MIG", "-n", NAMESPACE)
    assert (code, errors) == (1, ["refused: control.json: balancing: no"])


def test_a_job_that_does_not_run_takes_changes_for_later(call, kube, demo):
    write_status(demo, {"phase": "Suspended"})
    for arguments in (["policy", "demo", "--strategy", "MIG"], ["inject", "demo", "--rank", "3", "--chi", "4"]):
        code, out, errors = call(*arguments, "-n", NAMESPACE)
        assert (code, errors, out.splitlines()[-1]) == (
            0,
            [],
            "takes effect as soon as the job runs; it is Suspended now",
        )
    write_status(demo, {"phase": "Succeeded"})
    code, _, errors = call("policy", "demo", "--strategy", "MIG", "-n", NAMESPACE)
    assert (code, errors) == (2, ["JOB: 'demo': it has Succeeded: nothing changes any more"])


# -- the page --------------------------------------------------------------------------------------------------


@contextmanager
def served(kubeconfig):
    """Give the address of the page of the job demo, served by the command."""
    arguments = ("ui", "demo", "-n", NAMESPACE)
    with cli_process(*arguments, module="heterotp_cli.plugin", env=os.environ | {"KUBECONFIG": str(kubeconfig)}) as ui:
        line = ui.stdout.readline()
        assert line.startswith("page of demo: http://127.0.0.1:"), line
        yield line.split()[-1]


def test_ui_shows_a_job_and_its_buttons_change_it(kube, kubeconfig, demo):
    with operator(kubeconfig), served(kubeconfig) as address:
        shown = fetched(f"{address}data")
        assert (shown["job"], shown["state"], shown["iteration"], shown["seconds"]) == (
            "demo",
            "Running",
            [70],
            [0.349],
        )
        assert [rank["slowdown"] for rank in shown["ranks"]] == [1.0, 1.0, 4.01, 1.0]
        assert shown["live"]["explanation"].startswith("Rank 2 (group fast, node node-2) slows demo: ")
        assert posted(f"{address}policy", {"strategy": "MIG"})["verdict"] == "in force"
        assert demo.live()["spec"]["balancing"]["policy"]["strategy"] == "MIG"
        assert posted(f"{address}injection", {"rank": 3, "slowdown": 4, "seconds": 600})["verdict"] == "in force"
        assert injections(kube)["demo-rank-3"]["spec"]["stop"] == {"seconds": 600}
        assert posted(f"{address}injection", {"rank": 3, "stop": True})["verdict"] == "in force"
        assert injections(kube) == {}
        told = posted(f"{address}injection", {"rank": 9, "slowdown": 4})
        assert (told["verdict"], told["message"]) == ("refused", "--rank: 9: the job has ranks 0 .. 3")
        write_status(demo, job_status(phase="Succeeded"))
        told = posted(f"{address}policy", {"default": True})
        assert told == {"verdict": "refused", "message": "JOB: 'demo': it has Succeeded: nothing changes any more"}
