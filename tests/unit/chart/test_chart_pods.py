"""The pods of the chart: security, placement, disruption budget."""

from dataclasses import fields

import pytest
from heterotp_operator.settings import Settings
from support.reconcile_world import World, manifest
from support.rendered_chart import of_kind, one, pod_of, render, selects


def ranks():
    """Return the pods that the operator creates for an empty template."""
    world = World(manifest())
    world.settle()
    return list(world.pods.values())


PODS = {
    "operator": lambda: [pod_of(render())],
    "test": lambda: [one(render(), "Pod")],
    "ranks": ranks,
}


@pytest.mark.parametrize("pods", PODS.values(), ids=PODS)
def test_pods_are_restricted(pods):
    for pod in pods():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec.get("volumes", ()))
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not context.get("privileged")


def test_ranks_can_write_where_torch_does():
    for pod in ranks():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts = {m["mountPath"]: volumes[m["name"]] for c in pod["spec"]["containers"] for m in c["volumeMounts"]}
        assert "emptyDir" in mounts["/tmp"]
        assert mounts["/dev/shm"]["emptyDir"] == {"medium": "Memory"}


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1), (5, 1)])
def test_a_budget_holds_from_two_replicas_on(replicas, budgets):
    assert len(of_kind(render(f"replicas={replicas}"), "PodDisruptionBudget")) == budgets


def test_the_budget_covers_the_operators_pods_alone():
    objects = render("podDisruptionBudget.maxUnavailable=2", "replicas=3")
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 2
    assert selects(budget["selector"], pod_of(objects)["metadata"]["labels"])
    assert not selects(budget["selector"], one(objects, "Pod")["metadata"]["labels"])


def test_the_budget_can_be_left_out():
    assert of_kind(render("podDisruptionBudget.enabled=false"), "PodDisruptionBudget") == []


def test_replicas_spread_over_nodes_where_they_can():
    objects = render()
    (spread,) = pod_of(objects)["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert selects(spread["labelSelector"], pod_of(objects)["metadata"]["labels"])


def test_a_spread_with_a_selector_of_its_own_keeps_it():
    given = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**given, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    objects = render(values={"topologySpreadConstraints": [given, own]})
    filled, kept = pod_of(objects)["spec"]["topologySpreadConstraints"]
    assert selects(filled["labelSelector"], pod_of(objects)["metadata"]["labels"])
    assert kept == own


PLACED = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "system-cluster-critical",
    "imagePullSecrets": [{"name": "pull"}],
}


@pytest.mark.parametrize("field", PLACED)
def test_where_the_operator_runs(field):
    assert pod_of(render(values={field: PLACED[field]}))["spec"][field] == PLACED[field]
    assert field not in pod_of(render())["spec"]


def test_the_test_runs_where_the_operator_does():
    spec = one(render(values=PLACED), "Pod")["spec"]
    for field in ("nodeSelector", "tolerations", "imagePullSecrets"):
        assert spec[field] == PLACED[field]


def test_volumes_and_environment_are_added():
    volume, mount = {"name": "ca", "configMap": {"name": "ca"}}, {"name": "ca", "mountPath": "/etc/ca"}
    variable = {"name": "SSL_CERT_FILE", "value": "/etc/ca/ca.crt"}
    given = {"extraVolumes": [volume], "extraVolumeMounts": [mount], "extraEnv": [variable]}
    spec = pod_of(render(values=given))["spec"]
    container = spec["containers"][0]
    assert (spec["volumes"][-1], container["volumeMounts"][-1], container["env"][-1]) == (volume, mount, variable)
    assert spec["volumes"][0] == {"name": "tmp", "emptyDir": {}}


def test_metrics_and_probes_are_served_by_a_secret():
    secured, plain = (pod_of(render(f"metrics.tlsSecretName={name}"))["spec"] for name in ("operator-tls", ""))
    for spec, scheme in ((secured, "HTTPS"), (plain, "HTTP")):
        probes = (spec["containers"][0][f"{probe}Probe"]["httpGet"]["scheme"] for probe in ("liveness", "readiness"))
        assert set(probes) == {scheme}
    (variable,) = [each for each in secured["containers"][0]["env"] if each not in plain["containers"][0]["env"]]
    (mount,) = [m for m in secured["containers"][0]["volumeMounts"] if m not in plain["containers"][0]["volumeMounts"]]
    (volume,) = [each for each in secured["volumes"] if each not in plain["volumes"]]
    assert variable == {"name": "HETEROTP_METRICS_TLS_DIRECTORY", "value": mount["mountPath"]}
    assert mount["readOnly"] is True and "subPath" not in mount  # a file by itself would never be renewed
    assert volume == {"name": mount["name"], "secret": {"secretName": "operator-tls"}}
    assert variable["name"].removeprefix("HETEROTP_").lower() in {each.name for each in fields(Settings)}


def test_labels_that_are_given_never_replace_the_charts_own():
    given = {"podLabels": {"app.kubernetes.io/name": "mine", "team": "platform"}, "podAnnotations": {"note": "1"}}
    objects = render(values=given)
    metadata, selector = pod_of(objects)["metadata"], one(objects, "Deployment")["spec"]["selector"]
    assert metadata["labels"]["team"] == "platform"
    assert metadata["annotations"] == {"note": "1"}
    assert selects(selector, metadata["labels"])
