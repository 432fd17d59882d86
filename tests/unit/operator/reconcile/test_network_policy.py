"""The NetworkPolicy of a job: made before its pods, corrected as a whole, removed where jobs have none."""

import copy

import pytest
from heterotp_api import names
from heterotp_operator.reconcile.actions import ApplyNetworkPolicy, CreatePod
from heterotp_operator.reconcile.network_peers import NetworkPeers
from heterotp_operator.reconcile.observed import Refusal
from support.reconcile_world import Settings, World, manifest

OPERATOR = {"namespaceSelector": {"matchLabels": {"name": "system"}}, "podSelector": {"matchLabels": {"app": "us"}}}
SCRAPER = {"podSelector": {}}
GANG = {"matchLabels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_JOB: "job"}}


def peers(**fields):
    return NetworkPeers.model_validate({"operator": [OPERATOR], "scrapers": [SCRAPER], **fields})


def world(given=None, **spec):
    given = peers() if given is None else given
    return World(manifest(groups=(("a", 1, 3), ("b", 2, 1)), **spec), settings=Settings(network_peers=given))


def policy_of(a_world):
    a_world.settle()
    return a_world.objects.get("NetworkPolicy")


def tcp(*ports):
    return [{"protocol": "TCP", "port": port} for port in ports]


def test_a_policy_names_the_gang_the_operator_and_the_scrapers():
    policy = policy_of(world(metrics={"port": 9500}))
    assert policy["metadata"]["name"] == "job-gang"
    (owner,) = policy["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-job", True)
    assert policy["spec"] == {
        "podSelector": GANG,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": GANG}]},
            {"from": [OPERATOR], "ports": tcp(9500)},
            {"from": [SCRAPER], "ports": tcp(9500, 9501, 9502)},
        ],
    }


def test_no_rule_is_without_peers():
    # to the API server an empty list means everybody
    assert all(rule["from"] for rule in policy_of(world(peers(scrapers=[])))["spec"]["ingress"])


def test_the_policy_is_there_before_the_first_pod():
    kinds = [type(action) for action in world().plan().actions]
    assert kinds.index(ApplyNetworkPolicy) < kinds.index(CreatePod)


def test_a_refused_policy_keeps_the_pods_back():
    refusing = world()
    refusing.refuse["NetworkPolicy"] = Refusal(403, "Forbidden", "networkpolicies is forbidden")
    refusing.reconcile()
    assert refusing.pods == {}
    assert "NetworkPolicy: networkpolicies is forbidden" in refusing.condition("Created")["message"]


def widened(policy):
    policy["spec"]["ingress"].append({})


def with_a_peer(policy):
    policy["spec"]["ingress"][0]["from"].append({"podSelector": {}})


def of_all_namespaces(policy):
    policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"] = {}


def without_ports(policy):
    del policy["spec"]["ingress"][1]["ports"]


def of_fewer_pods(policy):
    policy["spec"]["podSelector"]["matchLabels"]["more"] = "x"


def with_egress(policy):
    policy["spec"]["policyTypes"].append("Egress")


def unlabelled(policy):
    del policy["metadata"]["labels"][names.LABEL_JOB]


def unowned(policy):
    policy["metadata"]["ownerReferences"] = []


def gone(policy):
    policy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "damage",
    [widened, with_a_peer, of_all_namespaces, without_ports, of_fewer_pods, with_egress, unlabelled, unowned, gone],
)
def test_a_changed_policy_is_put_right_and_the_gang_goes_on(damage):
    running = world().started()
    before = copy.deepcopy(running.objects["NetworkPolicy"])
    damage(running.objects["NetworkPolicy"])
    pods = copy.deepcopy(running.pods)
    running.settle()
    assert running.objects["NetworkPolicy"]["spec"] == before["spec"]
    assert running.objects["NetworkPolicy"]["metadata"]["labels"] == before["metadata"]["labels"]
    assert running.pods == pods


def test_labels_of_others_stay():
    running = world().started()
    running.objects["NetworkPolicy"]["metadata"]["labels"]["team"] = "mine"
    assert not running.plan().actions


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ({"podSelector": {"matchLabels": {}}}, {"podSelector": {}}),
        (
            {"podSelector": {"matchLabels": {"a": "b"}, "matchExpressions": []}},
            {"podSelector": {"matchLabels": {"a": "b"}}},
        ),
        ({"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}),
        ({"podSelector": {}, "namespaceSelector": None}, {"podSelector": {}}),
    ],
    ids=["no labels", "no expressions", "no exceptions", "null"],
)
def test_peers_are_compared_as_the_api_server_returns_them(given, served):
    running = world(peers(scrapers=[given])).started()
    assert running.objects["NetworkPolicy"]["spec"]["ingress"][-1]["from"] == [served]


def test_a_gang_that_runs_gets_a_policy_when_they_are_switched_on():
    running = World(manifest()).started()
    pods = copy.deepcopy(running.pods)
    running.settings = Settings(network_peers=peers())
    assert policy_of(running) is not None
    assert running.pods == pods


def ended(a_world):
    for name in list(a_world.pods):
        a_world.end(name, 0)


def suspended(a_world):
    a_world.edit(runPolicy={"suspend": True})


@pytest.mark.parametrize("then", [lambda a_world: None, ended, suspended], ids=["running", "ended", "suspended"])
def test_switched_off_the_policy_goes_whatever_the_job_does(then):
    job = world().started()
    then(job)
    job.settle()
    assert "NetworkPolicy" in job.objects
    job.settings = Settings(network_peers=peers(policies=False))
    assert policy_of(job) is None


def test_another_owners_policy_of_that_name_is_not_removed():
    job = world().started()
    job.objects["NetworkPolicy"]["metadata"]["ownerReferences"][0]["uid"] = "another"
    job.settings = Settings(network_peers=peers(policies=False))
    assert policy_of(job) is not None


def test_without_the_setting_policies_are_left_alone():
    job = world().started()
    job.settings = Settings()
    assert policy_of(job) is not None
    assert policy_of(World(manifest())) is None
