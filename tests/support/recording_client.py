"""A client of the API server that records what `apply` asks of it, and the children that it is asked for."""

from heterotp_api import names
from heterotp_operator.cluster import NETWORK_POLICIES
from heterotp_operator.reconcile.actions import CreatePod

JOB = {
    "apiVersion": "heterotp.io/v1alpha1",
    "kind": "HeteroTPJob",
    "metadata": {"name": "j", "namespace": "ns", "uid": "job-uid", "resourceVersion": "10"},
    "spec": {"runPolicy": {"gang": {"provider": "volcano"}}},
    "status": {},
}


class Client:
    """Records calls; answers with what it was sent, as an API server would, or raises what the test planned."""

    def __init__(self):
        self.calls, self.errors, self.version, self.terminating = [], {}, 100, False
        self.live = {}  # (kind, name) -> what the API server holds of a child
        self.meanwhile = lambda: None  # what happens before a delete is answered

    def _record(self, verb, name, *details):
        self.calls.append((verb, name, *details))
        if (verb, name) in self.errors:
            raise self.errors.pop((verb, name))

    def _stored(self, body):
        self.version += 1
        metadata = {"uid": f"uid-{body['metadata']['name']}", **body["metadata"], "resourceVersion": str(self.version)}
        self.live[body["kind"], metadata["name"]] = stored = {**body, "metadata": metadata}
        return stored

    async def create(self, body, dry_run=False):
        self._record("dry-run" if dry_run else "create", body["metadata"]["name"])
        return self._stored(body)

    async def create_owned(self, body):
        self._record("create", body["metadata"]["name"])
        return self._stored(body)

    async def apply(self, body, manager, subresource=""):
        self._record("apply", body["metadata"]["name"], manager, subresource, body)
        return self._stored({**JOB, **body} if body["kind"] == "HeteroTPJob" else body)

    async def get(self, resource, namespace, name):
        return self.live[resource.kind, name]

    async def replace(self, body):
        self._record("replace", body["metadata"]["name"], body)
        return self._stored(body)

    async def merge(self, resource, namespace, name, patch):
        self._record("merge", name, resource, patch)
        return self._stored(
            {"kind": resource.kind, **patch, "metadata": {"namespace": namespace, "name": name, **patch["metadata"]}}
        )

    async def delete(self, resource, namespace, name, uid, resource_version=None, grace_seconds=None):
        self._record("delete", name, resource, uid, resource_version, grace_seconds)
        self.meanwhile()
        if not self.terminating:
            return None
        metadata = {"namespace": namespace, "name": name, "uid": uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"kind": resource.kind, "metadata": metadata | {"resourceVersion": "999"}}


def child(kind, name, group="a", owner="job-uid", owner_name="j"):
    reference = {"kind": "HeteroTPJob", "name": owner_name, "uid": owner, "controller": True}
    labels = {names.LABEL_JOB: "j", names.LABEL_GROUP: group}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def create_pod(body):
    return CreatePod(body["metadata"]["labels"][names.LABEL_GROUP], lambda: body)


def network_policy(owner="job-uid", **spec):
    body = child("NetworkPolicy", "j-gang", owner=owner) | {"apiVersion": NETWORK_POLICIES.api_version}
    return {**body, "spec": {"policyTypes": ["Ingress"], **spec}}
