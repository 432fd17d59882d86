"""Connections that the NetworkPolicies of chart and operator permit, evaluated as a network plugin does."""

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

import pytest
from heterotp_operator.settings import from_environment
from support.reconcile_world import Settings, World, manifest
from support.rendered_chart import of_kind, one, pod_of, render, selects

ON = ("networkPolicy.enabled=true",)


@dataclass(frozen=True)
class Place:
    """A pod of a namespace and the numbers of its named ports; a pod on the host's network has only an address."""

    namespace: str
    labels: dict
    ports: dict = field(default_factory=dict)
    address: str = "10.244.0.9"


def place(pod, namespace=None):
    ports = {port["name"]: port["containerPort"] for c in pod["spec"]["containers"] for port in c.get("ports", ())}
    return Place(namespace or pod["metadata"]["namespace"], pod["metadata"]["labels"], ports)


def matches(peer, home, other):
    """Return whether a peer of a policy in the namespace `home` matches `other`."""
    if "ipBlock" in peer:
        return ip_address(other.address) in ip_network(peer["ipBlock"]["cidr"])
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace}):
            return False
    elif other.namespace != home:
        return False
    return selects(peer.get("podSelector", {}), other.labels)


def opens(entry, target, port, protocol):
    """Return whether one port of a rule, a number or a name, is a port of `target`."""
    number = target.ports.get(entry["port"], entry["port"])
    return (number, entry.get("protocol", "TCP")) == (port, protocol)


def passes(rule, side, home, other, target, port, protocol):
    """Return whether one rule permits a connection; a rule without peers or ports permits all of them."""
    peers, ports = rule.get(side), rule.get("ports")
    if peers is not None and not any(matches(peer, home, other) for peer in peers):
        return False
    return ports is None or any(opens(each, target, port, protocol) for each in ports)


def allowed(policies, source, target, port, protocol="TCP"):
    """Return whether a pod may open a connection to a port of another."""
    for direction, side, here, other in (("Ingress", "from", target, source), ("Egress", "to", source, target)):
        about = [
            each["spec"]
            for each in policies
            if each["metadata"]["namespace"] == here.namespace
            and selects(each["spec"]["podSelector"], here.labels)
            and direction in each["spec"]["policyTypes"]
        ]
        rules = [rule for spec in about for rule in spec.get(direction.lower(), ())]
        if about and not any(passes(rule, side, here.namespace, other, target, port, protocol) for rule in rules):
            return False
    return True


def gang(objects, name="job", namespace="team", **spec):
    """Return the pods and the NetworkPolicies that the operator of a rendered chart makes for a job."""
    env = {each["name"]: each.get("value") for each in pod_of(objects)["spec"]["containers"][0]["env"]}
    peers = from_environment({"HETEROTP_NETWORK_PEERS": env["HETEROTP_NETWORK_PEERS"]}).network_peers
    job = manifest(name, (("a", 1, 2), ("b", 1, 1)), **spec)
    job["metadata"]["namespace"] = namespace
    world = World(job, settings=Settings(network_peers=peers))
    world.settle()
    policy = world.objects.get("NetworkPolicy")
    return [place(pod) for pod in world.pods.values()], [] if policy is None else [policy]


def policies_of(*sets, **how):
    """Return the NetworkPolicies of the chart and of one job."""
    objects = render(*ON, *sets, **how)
    return of_kind(objects, "NetworkPolicy") + gang(objects)[1]


@pytest.fixture(scope="module")
def places():
    objects = render(*ON)
    rank, peer = gang(objects)[0]
    return {
        "operator": place(pod_of(objects)),
        "test": place(one(objects, "Pod")),
        "rank": rank,
        "peer": peer,
        "stranger's rank": gang(objects, namespace="other")[0][0],
        "another job's rank": gang(objects, "other")[0][0],
        "prometheus": Place("monitoring", {"app": "prometheus"}),
        "neighbour": Place("team", {"app": "web"}),
        "impostor": Place("team", pod_of(objects)["metadata"]["labels"]),
        "api server": Place("kube-system", {}),
        "dns": Place("kube-system", {"k8s-app": "kube-dns"}),
    }


@pytest.fixture(scope="module")
def policies():
    return policies_of()


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        ("peer", "rank", 29500),  # the rendezvous
        ("peer", "rank", 41234),  # gloo and NCCL: a port that the system picked
        ("rank", "peer", 41234),
        ("rank", "dns", 53),
        ("operator", "rank", 9400),
        ("operator", "api server", 443),
        ("operator", "api server", 6443),
        ("prometheus", "rank", 9400),
        ("prometheus", "rank", 9401),
        ("prometheus", "operator", 8080),
        ("test", "operator", 8080),
        ("test", "api server", 443),
    ],
)
def test_what_must_pass(policies, places, source, target, port):
    assert allowed(policies, places[source], places[target], port)


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_the_operator_asks_for_names(policies, places, protocol):
    assert allowed(policies, places["operator"], places["dns"], 53, protocol)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        ("neighbour", "rank", 29500),
        ("neighbour", "rank", 9400),
        ("stranger's rank", "rank", 29500),
        ("another job's rank", "rank", 29500),
        ("another job's rank", "rank", 9400),
        ("prometheus", "rank", 9402),
        ("impostor", "rank", 9400),  # labelled as the operator, but elsewhere
        ("operator", "rank", 29500),
        ("prometheus", "rank", 29500),
        ("neighbour", "operator", 8080),
        ("prometheus", "operator", 22),
        ("operator", "neighbour", 80),
    ],
)
def test_what_must_not_pass(policies, places, source, target, port):
    assert not allowed(policies, places[source], places[target], port)
    assert allowed([], places[source], places[target], port)


def test_ports_are_the_jobs(places):
    objects = render(*ON)
    (rank, _), policies = gang(objects, metrics={"port": 9500})
    policies += of_kind(objects, "NetworkPolicy")
    for source, ports in (("prometheus", {9500, 9501}), ("operator", {9500})):
        assert {port for port in range(9390, 9510) if allowed(policies, places[source], rank, port)} == ports


def test_nobody_scrapes_where_nobody_is_listed(places):
    policies = policies_of(values={"networkPolicy": {"scrapers": []}})
    assert not allowed(policies, places["prometheus"], places["rank"], 9400)
    assert not allowed(policies, places["prometheus"], places["operator"], 8080)
    assert allowed(policies, places["test"], places["operator"], 8080)
    assert allowed(policies, places["peer"], places["rank"], 41234)


@pytest.mark.parametrize(
    ("ranges", "reached"), [((), []), (("10.9.0.0/16",), ["10.9.0.7"]), (("fd00::/64", "10.8.0.0/16"), ["10.8.0.7"])]
)
def test_the_operator_reaches_ranks_on_the_hosts_network_where_it_is_told_so(places, ranges, reached):
    policies = policies_of(values={"networkPolicy": {"hostNetworkRanks": list(ranges)}})
    nodes = [Place("", {}, address=address) for address in ("10.9.0.7", "10.8.0.7")]
    assert [node.address for node in nodes if allowed(policies, places["operator"], node, 9400)] == reached
    assert allowed(policies, places["operator"], places["rank"], 9400)
    assert not allowed(policies, nodes[0], places["operator"], 8080)


@pytest.mark.parametrize("values", [(), ("namespaces={team,other}",)], ids=["cluster", "namespaced"])
def test_every_job_is_shielded_and_the_chart_makes_no_policy_for_ranks(values):
    objects = render(*ON, *values)
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert policy["metadata"]["name"] == "r-operator"
    for namespace in ("team", "other"):
        (policy,) = gang(objects, namespace=namespace)[1]
        assert (policy["metadata"]["namespace"], policy["metadata"]["name"]) == (namespace, "job-gang")
    assert gang(render(*ON, *values, "networkPolicy.jobs=false"))[1] == []


def test_policies_are_off_by_default():
    assert of_kind(render(), "NetworkPolicy") == []
