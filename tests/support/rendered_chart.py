"""The chart rendered by helm, and queries of its objects."""

import subprocess
from functools import cache

import yaml
from support.places import BIN, ROOT

CHART = ROOT / "charts" / "heterotp"
FIRST_CHART = ROOT / "tests" / "data" / "heterotp-0.1.0.tgz"  # the first installed version
CASES = yaml.safe_load((ROOT / "tests" / "data" / "chart_values.yaml").read_text())
ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
MONITORS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


class _Strict(yaml.CSafeLoader):
    """Refuses duplicate keys: of two equal labels the API server would use the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}\n{node.start_mark}"
        return super().construct_mapping(node, deep)


def helm(*sets, values=None, chart=CHART, release="r", namespace="system", arguments=()):
    """Run `helm template` with --set SETS and a dict of values."""
    command = [BIN / "helm", "template", release, chart, "--namespace", namespace, *arguments]
    command += [part for each in sets for part in ("--set", each)]
    return _ran((*command, "--values", "-"), yaml.safe_dump(values or {}))


@cache
def _ran(command, values):
    """Run helm; results are cached for all tests."""
    return subprocess.run(command, input=values, capture_output=True, text=True)


def render(*sets, **how):
    """Return the objects of the rendered chart, hooks last."""
    done = helm(*sets, **how)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, Loader=_Strict) if document]


@cache
def case(name, version=""):
    """Return the objects of one row of the matrix, for a version of Kubernetes."""
    return render(values=CASES[name], arguments=("--kube-version", version) if version else ())


def installed(objects):
    """Return the installed objects, without hooks."""
    return [each for each in objects if "helm.sh/hook" not in each["metadata"].get("annotations", {})]


def of_kind(objects, *kinds):
    return [each for each in objects if each["kind"] in kinds]


def one(objects, kind, name=None):
    """Return the only object of a kind, or of a kind and a name."""
    found = [each for each in of_kind(objects, kind) if name in (None, each["metadata"]["name"])]
    assert len(found) == 1, f"{kind} {name or ''}: {[each['metadata']['name'] for each in found]}"
    return found[0]


def pod_of(objects):
    """Return the operator's pod, as its Deployment creates it."""
    template = one(objects, "Deployment")["spec"]["template"]
    metadata = {**template["metadata"], "namespace": one(objects, "Deployment")["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def selects(selector, labels):
    """Return whether matchLabels match; the chart uses no other selectors."""
    assert set(selector) <= {"matchLabels"}, selector
    return selector.get("matchLabels", {}).items() <= labels.items()


def identity(each):
    metadata = each["metadata"]
    return each["apiVersion"], each["kind"], metadata.get("namespace"), metadata["name"]
