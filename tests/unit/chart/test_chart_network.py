"""Connections that the chart's NetworkPolicies permit, evaluated as a network plugin does."""

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

import pytest
from heterotp_api import names
from support.reconcile_world import World, manifest
from support.rendered_chart import of_kind, one, pod_of, render, selects

ON = ("networkPolicy.enabled=true", "networkPolicy.rankNamespaces={team}")


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


def ranks(namespace="team"):
    world = World(manifest(groups=(("a", 1, 2), ("b", 1, 1))))
    world.settle()
    return [place(pod, namespace) for pod in world.pods.values()]


@pytest.fixture(scope="module")
def places():
    objects = render(*ON)
    rank, peer = ranks()
    return {
        "operator": place(pod_of(objects)),
        "test": place(one(objects, "Pod")),
        "rank": rank,
        "peer": peer,
        "stranger's rank": ranks("other")[0],
        "prometheus": Place("monitoring", {"app": "prometheus"}),
        "neighbour": Place("team", {"app": "web"}),
        "impostor": Place("team", pod_of(objects)["metadata"]["labels"]),
        "api server": Place("kube-system", {}),
        "dns": Place("kube-system", {"k8s-app": "kube-dns"}),
    }


@pytest.fixture(scope="module")
def policies():
    return of_kind(render(*ON), "NetworkPolicy")


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


def test_every_port_that_a_rank_can_have_may_be_scraped(policies):
    policy = one(policies, "NetworkPolicy", "r-ranks")
    most = {f"metrics-{local}" for local in range(16)}
    assert {port["port"] for port in policy["spec"]["ingress"][-1]["ports"]} == most


def test_nobody_scrapes_where_nobody_is_listed(places):
    policies = of_kind(render(*ON, values={"networkPolicy": {"scrapers": []}}), "NetworkPolicy")
    assert not allowed(policies, places["prometheus"], places["rank"], 9400)
    assert not allowed(policies, places["prometheus"], places["operator"], 8080)
    assert allowed(policies, places["test"], places["operator"], 8080)
    assert allowed(policies, places["peer"], places["rank"], 41234)


@pytest.mark.parametrize(
    ("ranges", "reached"), [((), []), (("10.9.0.0/16",), ["10.9.0.7"]), (("fd00::/64", "10.8.0.0/16"), ["10.8.0.7"])]
)
def test_the_operator_reaches_ranks_on_the_hosts_network_where_it_is_told_so(places, ranges, reached):
    policies = of_kind(render(*ON, values={"networkPolicy": {"hostNetworkRanks": list(ranges)}}), "NetworkPolicy")
    nodes = [Place("", {}, address=address) for address in ("10.9.0.7", "10.8.0.7")]
    assert [node.address for node in nodes if allowed(policies, places["operator"], node, 9400)] == reached
    assert allowed(policies, places["operator"], places["rank"], 9400)
    assert not allowed(policies, nodes[0], places["operator"], 8080)


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        ((), set()),
        (("networkPolicy.rankNamespaces={a,b}",), {"a", "b"}),
        (("namespaces={a,b}", "networkPolicy.rankNamespaces={b}"), {"a", "b"}),
    ],
    ids=["none", "listed", "served"],
)
def test_ranks_are_shielded_in_the_namespaces_that_are_known(values, namespaces):
    found = of_kind(render("networkPolicy.enabled=true", *values), "NetworkPolicy")
    shields = [each for each in found if each["metadata"]["name"] == "r-ranks"]
    assert sorted(each["metadata"]["namespace"] for each in shields) == sorted(namespaces)
    assert all(
        each["spec"]["podSelector"]["matchLabels"] == {names.LABEL_MANAGED_BY: names.MANAGED_BY} for each in shields
    )


def test_policies_are_off_by_default():
    assert of_kind(render(), "NetworkPolicy") == []
