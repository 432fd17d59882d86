"""`kubectl heterotp` against a real API server: what it shows, what it writes, what it refuses.

No operator runs: the tests write the statuses themselves, or play the operator in a thread.
"""

import json
import os
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml
from support.cli_process import cli_process, run_cli
from support.cli_views import INJECTED, REDUCED_WORK, SLOW, balancing, job_status, rank
from support.gang import Gang, groups_of, job
from support.kube import Kube, KubeError, make_namespace
from support.live_page import fetched, posted

pytestmark = pytest.mark.integration
NAMESPACE = "plugin"


@pytest.fixture(scope="module")
def namespace(kube):
    return make_namespace(kube, NAMESPACE)


@pytest.fixture
def call(kubeconfig):
    """A function that runs the plugin as a process, and returns exit code, output and the lines of errors."""

    def run(*arguments, **env):
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), **env}
        done = run_cli(*arguments, module="heterotp_cli.plugin", env=env)
        return done.returncode, done.stdout, done.stderr.splitlines()

    return run


@pytest.fixture
def demo(kube, namespace):
    """A job of four ranks on two groups, in whose status rank 2 is slowed on purpose and has reduced work."""
    demo = Gang(kube, namespace, job("demo", (("fast", 3), ("slow", 1))))
    write_status(demo, job_status(rank(2, **SLOW, **REDUCED_WORK, **INJECTED), balancing=balancing()))
    yield demo
    demo.delete()
    for each in kube.list("stragglerinjections", namespace):
        kube.delete("stragglerinjections", namespace, each["metadata"]["name"])


def write_status(gang, status):
    gang.kube.patch("heterotpjobs", gang.namespace, gang.name, {"status": status}, "status")


@contextmanager
def operator(kubeconfig, refuse=""):
    """Play the operator of the job demo: all that is written is published, and applied, or refused."""
    stop = threading.Event()

    def reconcile(kube):
        body = kube.get("heterotpjobs", NAMESPACE, "demo")
        reported = body["status"]["balancing"]
        listed = {each["metadata"]["uid"]: each for each in kube.list("stragglerinjections", NAMESPACE)}
        seen = (body["metadata"]["generation"], sorted(listed))
        if seen == reconcile.seen:
            return
        reconcile.seen = seen
        for each in listed.values():
            phase = {"phase": "Failed", "message": refuse} if refuse else {"phase": "Injecting"}
            kube.patch("stragglerinjections", NAMESPACE, each["metadata"]["name"], {"status": phase}, "status")
        generation = reported["generation"] + 1
        news = {"problem": refuse} if refuse else {"appliedGeneration": generation}
        status = {"observedGeneration": seen[0], "balancing": {"generation": generation, **news}}
        kube.patch("heterotpjobs", NAMESPACE, "demo", {"status": status}, "status")

    def play():
        with closing(Kube(kubeconfig)) as kube:
            body = kube.get("heterotpjobs", NAMESPACE, "demo")
            listed = kube.list("stragglerinjections", NAMESPACE)
            reconcile.seen = (body["metadata"]["generation"], sorted(each["metadata"]["uid"] for each in listed))
            ready.set()
            while not stop.wait(0.05):
                try:
                    reconcile(kube)
                except KubeError as error:
                    if error.code != 404:  # deleted this very moment
                        raise

    ready = threading.Event()
    thread = threading.Thread(target=play)
    thread.start()
    assert ready.wait(240)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def injections(kube):
    return {each["metadata"]["name"]: each for each in kube.list("stragglerinjections", NAMESPACE)}


# -- looking --------------------------------------------------------------------------------------------------


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


# -- changing -------------------------------------------------------------------------------------------------


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


# -- the page -------------------------------------------------------------------------------------------------


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


# -- mistakes -------------------------------------------------------------------------------------------------


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
