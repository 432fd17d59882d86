"""Random manifests, judged by `heterotp validate` and by a real API server as a dry run: the verdicts are the same.

HETEROTP_FUZZ_EXAMPLES=10000 draws so many examples. The exceptions are stated in `excused`.
"""

import json
import os
from contextlib import closing

import pytest
from heterotp_api.job import HeteroTPJob
from heterotp_api.load import KINDS, ManifestError, is_foreign, load_bodies, parse_objects
from heterotp_api.template import checkpoint_error, template_error
from hypothesis import HealthCheck, given, settings
from support.damaged_manifests import damaged
from support.kube import Kube, KubeError

pytestmark = pytest.mark.integration
PLURALS = {"HeteroTPJob": "heterotpjobs", "BalancingPolicy": "balancingpolicies"}
EXAMPLES = int(os.environ.get("HETEROTP_FUZZ_EXAMPLES", "300"))
fuzzed = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
# of metadata: what only the API server writes, and refuses or replaces in a new object
SERVERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "selfLink")
SERVERS_OWN += ("deletionGracePeriodSeconds", "finalizers", "ownerReferences", "managedFields")


@pytest.fixture(scope="module")
def kube(kubeconfig):
    with closing(Kube(kubeconfig)) as kube:
        yield kube


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("alike") / "manifest.json"


def our_complaint(file, body):
    """Return what the commands say of a manifest, and whether the CRD states it, too; None: it is accepted."""
    file.write_text(json.dumps(body))
    try:
        (found,) = parse_objects(load_bodies(file), file)
    except ManifestError as error:
        whole_template = error.field == "spec.training" and error.value is None  # CEL sees that there is one
        return str(error), not whole_template and not is_long(error.value)
    wrong = template_error(found.spec) or checkpoint_error(found.spec) if isinstance(found, HeteroTPJob) else None
    return wrong and (wrong, False)  # a template has no schema in the CRD


def is_long(value):
    return isinstance(value, int) and not -(2**63) <= value < 2**63  # Go rounds it to a float


def servers_complaint(kube, kind, body):
    """Return what the API server says of a manifest, sent as kubectl sends it; None: it is accepted."""
    path = kube.path(PLURALS.get(kind, "stragglerinjections"), "default") + "?dryRun=All&fieldValidation=Strict"
    try:
        kube.request("POST", path, whole(body))
    except KubeError as error:
        assert error.code in (400, 403, 404, 422), error
        return str(error)
    return None


def whole(value):
    """Return the value with 4.0 as 4, as Go writes it."""
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def excused(body):
    """Return whether the verdicts may differ.

    Objects of other projects are not judged, nor is what the API server itself writes; a status is dropped there.
    Whether the namespace exists, only the cluster can say. JSON's pairs of escapes for one character are not YAML's.
    """
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    own = "status" in body or any(name in metadata for name in SERVERS_OWN)
    pairs = max(json.dumps(body, ensure_ascii=False)) > "\uffff"
    return pairs or is_foreign(body) or own or metadata.get("namespace", "default") != "default"


@fuzzed
@given(body=damaged())
def test_the_commands_and_the_api_server_agree(kube, file, body):
    kind = body.get("kind")
    if excused(body) or not (isinstance(kind, str) and kind in KINDS):
        return
    ours, servers = our_complaint(file, body), servers_complaint(kube, kind, body)
    if servers is not None:
        assert ours is not None, f"accepted, but the API server says: {servers}"
    elif ours is not None:
        message, stated = ours
        assert not stated, f"the API server accepts it, but we say: {message}"
