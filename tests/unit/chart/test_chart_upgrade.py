"""From the first version of the chart to this one: no immutable field has changed."""

import pytest
from support.rendered_chart import ADMISSION, FIRST_CHART, identity, installed, of_kind, render

VALUES = {
    "default": {},
    "namespaced": {"namespaces": ["team-a"], "replicas": 1},
    "filled": {
        "image": {"repository": "mine/operator", "tag": "v1", "pullPolicy": "Always"},
        "trainerImage": {"repository": "mine/trainer", "tag": "v1"},
        "imagePullSecrets": [{"name": "pull"}],
        "gangProviders": ["volcano"],
        "crds": {"enabled": True, "keep": True},
        "rbac": {"create": True},
        "serviceAccount": {"create": True, "name": "given", "annotations": {"a": "b"}},
        "resources": {"limits": {"cpu": 2}},
        "extraEnv": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "global": {"a": "b"},
        "enabled": True,
    },
}


@pytest.fixture(params=VALUES.values(), ids=VALUES)
def both(request):
    """The installed objects of the first chart and of this one, by identity, for the same values."""
    versions = (installed(render(values=request.param, **chart)) for chart in ({"chart": FIRST_CHART}, {}))
    return tuple({identity(each): each for each in objects} for objects in versions)


def test_every_object_is_still_there(both):
    old, new = both
    assert len(old) > 5
    assert set(old) <= set(new)


IMMUTABLE = (("spec", "selector"), ("roleRef",), ("spec", "scope"), ("spec", "group"), ("spec", "names"))


def at(body, path):
    for name in path:
        body = (body or {}).get(name)
    return body


@pytest.mark.parametrize("path", IMMUTABLE, ids=".".join)
def test_what_is_immutable_is_the_same(both, path):
    old, new = both
    fields = {key: at(each, path) for key, each in old.items() if at(each, path) is not None}
    assert fields
    assert {key: at(new[key], path) for key in fields} == fields


def test_crds_stay_and_serve_what_they_served(both):
    old, new = (of_kind(objects.values(), "CustomResourceDefinition") for objects in both)
    assert len(old) == 3
    for before, after in zip(old, new, strict=True):
        assert after["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        served = [{v["name"] for v in crd["spec"]["versions"] if v["served"]} for crd in (before, after)]
        assert served[0] <= served[1]


def test_nothing_new_reaches_out_by_default(both):
    old, new = both
    more = {kind for _, kind, _, name in set(new) - set(old) if name != "r-key"}  # rights on a Secret of its own
    assert more <= {"Service", "PodDisruptionBudget", "ClusterRole", *ADMISSION}


def leaves(path, value):
    """Yield place and value of everything in an object."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves(f"{path}.{name}", each)
    else:
        yield path, value


def defaults(schema, path=""):
    """Yield place and value of every default of a structural schema, of objects each field."""
    if "default" in schema:
        yield from leaves(path, schema["default"])
    for name, each in schema.get("properties", {}).items():
        yield from defaults(each, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from defaults(schema[inner], f"{path}[]")


def test_no_field_gets_a_default_that_stored_objects_lack(both):
    """A default is read into every stored object: its spec would change with the upgrade, and its gang restart."""
    old, new = (
        {
            (body["spec"]["names"]["kind"], *each)
            for body in objects.values()
            if body["kind"] == "CustomResourceDefinition"
            for each in ((path, repr(value)) for path, value in defaults(schema_of(body)["properties"]["spec"]))
        }
        for objects in both
    )
    assert len(new) > 20
    assert new - old == set()


def schema_of(crd):
    (version,) = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]
