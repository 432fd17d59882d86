"""The operator's copy of the cluster: trimmed records by (namespace, name); the newest version is kept."""

import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from heterotp_api import names
from heterotp_api.excess import excess_of

from heterotp_operator.excess import MOST_OF_CHILD, job_excess, object_excess
from heterotp_operator.queue import Key
from heterotp_operator.reconcile.control_text import kept_text
from heterotp_operator.reconcile.kueue.own_names import POD_GROUP
from heterotp_operator.reconcile.objects import REFUSED
from heterotp_operator.reconcile.packed import packed, with_packed_templates

Json = dict[str, Any]
Trim = Callable[[Json], Json]
JOB_KIND = "HeteroTPJob"

METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
CHILD_LABELS = (
    *(names.LABEL_MANAGED_BY, names.LABEL_JOB, names.LABEL_GROUP, names.LABEL_INDEX, names.LABEL_FIRST_RANK),
    *(names.LABEL_ATTEMPT, names.LABEL_TEMPLATE_HASH, POD_GROUP),
)
ANNOTATIONS = (names.ANNOTATION_CONTROL, names.ANNOTATION_SECRET)  # of a pod
MOST_ANNOTATION = 64  # characters of one that the operator wrote
OWNER = ("apiVersion", "kind", "name", "uid", "controller")
MOST_OWNERS = 4
PACKED_CHARACTERS = 4096  # a longer spec of a policy or an injection is kept as text
POD_STATUS = ("phase", "reason", "message", "podIP", "startTime")
POD_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
CONTAINER_STATUS = ("name", "ready", "restartCount", "state", "lastState")
MOST_CONDITIONS = 32  # of a Workload
MOST_MESSAGE = 4096
TOMBSTONES = 10_000


def key_of(body: Json) -> Key:
    """Return the (namespace, name) of an object."""
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def version_of(body: Json) -> int:
    """Return the resourceVersion as a number (0 where it is none)."""
    version = str(body["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0


def controller_of(body: Json) -> Json | None:
    """Return the ownerReference of the controller, if there is one."""
    references = body["metadata"].get("ownerReferences", ())
    return next((reference for reference in references if reference.get("controller")), None)


def _pick(source: Json, fields: tuple[str, ...]) -> Json:
    return {field: _compact(source[field]) for field in fields if source.get(field) is not None}


@lru_cache(maxsize=8192)
def _one_of(*fields: tuple[str, Any]) -> Json:
    return dict(fields)


def _shared(source: Json, fields: tuple[str, ...]) -> Json:
    """Pick fields into a record that all equal ones share: the pods of a gang have one owner, and come up together."""
    picked = _pick(source, fields)
    short = all(isinstance(each, bool) or (isinstance(each, str) and len(each) <= 64) for each in picked.values())
    return _one_of(*picked.items()) if short else picked


def _compact(value: Any) -> Any:
    """Return the value with equal short strings shared: 8,000 pods repeat the same few hundred."""
    if isinstance(value, str):
        return sys.intern(value) if len(value) <= 64 else value
    if isinstance(value, dict):
        return {sys.intern(key): _compact(inner) for key, inner in value.items()}
    return [_compact(inner) for inner in value] if isinstance(value, list) else value


def _child_metadata(body: Json) -> Json:
    """Return what is read of a child's metadata: anybody may write a megabyte of labels and annotations."""
    metadata = body["metadata"]
    kept = {
        **_pick(metadata, METADATA),
        "labels": _pick(metadata.get("labels") or {}, CHILD_LABELS),
        "ownerReferences": [_shared(owner, OWNER) for owner in _owners(metadata)],
    }
    return {field: value for field, value in kept.items() if value not in ({}, [])}


def _owners(metadata: Json) -> list[Json]:
    """Return the controller first, then other jobs."""
    given = metadata.get("ownerReferences") or ()
    known = [each for each in given if each.get("controller") or each.get("kind") == JOB_KIND]
    return sorted(known, key=lambda each: not each.get("controller"))[:MOST_OWNERS]


def trim_job(body: Json) -> Json:
    """Return a job: status whole, metadata without annotations and managedFields, templates as text.

    A spec beyond what any job needs is not kept, only that it was beyond: the code behind may recurse into what it is
    given, and copies it.
    """
    if (excess := job_excess(body)) is not None:
        return _refused(body, excess)
    return _custom(body, with_packed_templates(body.get("spec") or {}))


def trim_custom(body: Json) -> Json:
    """Return a policy or an injection likewise; a long spec is kept as text."""
    if (excess := object_excess(body)) is not None:
        return _refused(body, excess)
    spec = body.get("spec") or {}
    text = packed(spec)
    return _custom(body, text if len(text) > PACKED_CHARACTERS else spec)


def _custom(body: Json, spec: Any) -> Json:
    head = {"apiVersion": body.get("apiVersion", names.API_VERSION), "kind": body.get("kind", JOB_KIND)}
    metadata = _pick(body["metadata"], (*METADATA, "labels"))
    return {**head, "metadata": metadata, "spec": spec, "status": _compact(body.get("status") or {})}


def _refused(body: Json, excess: str) -> Json:
    kept = _custom(body, {})
    kept["metadata"].pop("labels", None)
    return {**kept, REFUSED: excess}


def trim_pod(body: Json) -> Json:
    """Return the fields of a pod that the plan reads: identity, node, phase, conditions, container states."""
    status = body.get("status", {})
    kept = _pick(status, POD_STATUS)
    kept["conditions"] = [_shared(condition, POD_CONDITION) for condition in status.get("conditions", ())]
    for field in ("containerStatuses", "initContainerStatuses"):
        if status.get(field):
            kept[field] = [_pick(container, CONTAINER_STATUS) for container in status[field]]
    spec = _pick(body.get("spec", {}), ("nodeName", "terminationGracePeriodSeconds"))
    metadata, given = _child_metadata(body), body["metadata"].get("annotations") or {}
    if annotations := {name: given[name][:MOST_ANNOTATION] for name in ANNOTATIONS if given.get(name)}:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec, "status": kept}


def trim_child(body: Json) -> Json:
    """Return what is compared of a Service, ConfigMap, PodGroup or NetworkPolicy; a spec larger than ours is not kept.

    A ConfigMap keeps the control document if its name and its controller say that it is a job's: anybody may set the
    label by which they are found.
    """
    kept: Json = {field: body[field] for field in ("apiVersion", "kind") if field in body}
    spec = body.get("spec")
    if spec is not None and excess_of(spec, MOST_OF_CHILD) is None:
        kept["spec"] = _compact(spec)
    owner = controller_of(body)
    if owner is not None and owner.get("kind") == JOB_KIND and _is_control(body, owner):
        text = (body.get("data") or {}).get(names.CONTROL_FILE)
        kept["data"] = {names.CONTROL_FILE: kept_text(text)}
    return {**kept, "metadata": _child_metadata(body)}


def _is_control(body: Json, owner: Json) -> bool:
    return bool(body["metadata"]["name"] == names.control_name(str(owner.get("name"))))


def trim_workload(body: Json) -> Json:
    """Return what is read of a Workload: whether it is active, conditions, what was admitted, of which spec it is."""
    metadata, status = _child_metadata(body), body.get("status") or {}
    given = (body["metadata"].get("annotations") or {}).get(names.ANNOTATION_WORKLOAD)
    if given:
        metadata["annotations"] = {names.ANNOTATION_WORKLOAD: given[:MOST_ANNOTATION]}
    kept: Json = {"conditions": [_condition(each) for each in (status.get("conditions") or ())[:MOST_CONDITIONS]]}
    found = {field: status[field] for field in ("admissionChecks", "reclaimablePods") if status.get(field)}
    if status.get("admission"):
        found["admission"] = _without_places(status["admission"])
    kept |= {field: _compact(value) for field, value in found.items() if excess_of(value, MOST_OF_CHILD) is None}
    head: Json = {field: body[field] for field in ("apiVersion", "kind") if field in body}
    return {**head, "metadata": metadata, "spec": _pick(body.get("spec") or {}, ("active",)), "status": kept}


def _condition(condition: Json) -> Json:
    kept = _pick(condition, (*POD_CONDITION, "observedGeneration"))
    return {**kept, "message": str(kept.get("message") or "")[:MOST_MESSAGE]}


def _without_places(admission: Json) -> Json:
    """Return an admission without the list of its nodes, only whether there is one: Kueue itself places the pods."""
    sets = [
        {**each, "topologyAssignment": True} if each.get("topologyAssignment") else each
        for each in admission.get("podSetAssignments") or ()
    ]
    return {**admission, "podSetAssignments": sets}


class Store:
    """Records of one kind; a record never goes back to an older version or comes back after its deletion."""

    def __init__(self, trim: Trim) -> None:
        self._trim = trim
        self._records: dict[Key, Json] = {}
        self._gone: OrderedDict[str, float] = OrderedDict()  # uid -> last version it can have had
        self._by_job: dict[Key, set[Key]] = {}
        self._by_namespace: dict[str, dict[Key, Json]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._records))

    def get(self, key: Key) -> Json | None:
        """Return the record of a key, or None."""
        return self._records.get(key)

    def of_job(self, job: Key) -> list[Json]:
        """Return the records whose label names the job, in order of their names."""
        return [self._records[key] for key in sorted(self._by_job.get(job, ()))]

    def count_of_job(self, job: Key) -> int:
        """Return the number of records whose label names the job."""
        return len(self._by_job.get(job, ()))

    def in_namespace(self, namespace: str) -> tuple[Json, ...]:
        """Return the records of a namespace."""
        return tuple(self._by_namespace.get(namespace, {}).values())

    def upsert(self, body: Json) -> bool:
        """Store the trimmed object; return whether anything but its version changed."""
        key, uid = key_of(body), body["metadata"].get("uid", "")
        if version_of(body) < self._gone.get(uid, -1):
            return False
        old = self._records.get(key)
        if old is not None and old["metadata"].get("uid") == uid and version_of(body) <= version_of(old):
            return False
        new = self._trim(body)
        self._records[key] = new
        self._by_namespace.setdefault(key[0], {})[key] = new
        self._index(key, old, new)
        return old is None or _content(old) != _content(new)

    def drop(self, body: Json) -> bool:
        """Forget an object that is gone as of its version, without one for good; return whether it was known.

        To a watch by label an object that loses the label is deleted too, at the very version that it lives on with.
        """
        key, uid = key_of(body), body["metadata"].get("uid", "")
        if uid:
            self._gone[uid] = version_of(body) or math.inf
            while len(self._gone) > TOMBSTONES:
                self._gone.popitem(last=False)
        old = self._records.get(key)
        if old is None or (uid and old["metadata"].get("uid") != uid):
            return False
        del self._records[key]
        neighbours = self._by_namespace[key[0]]
        del neighbours[key]
        if not neighbours:
            del self._by_namespace[key[0]]
        self._index(key, old, None)
        return True

    def clear(self) -> None:
        """Forget all records, not that some are gone for good."""
        self._records.clear()
        self._by_job.clear()
        self._by_namespace.clear()

    def vanished(self, listed: set[str], version: int, namespace: str | None) -> list[Json]:
        """Return the records that a complete list taken at `version` would hold if they still existed."""
        return [
            record
            for key, record in self._records.items()
            if record["metadata"].get("uid") not in listed
            and version_of(record) <= version
            and namespace in (None, key[0])
        ]

    def _index(self, key: Key, old: Json | None, new: Json | None) -> None:
        before, after = job_key(old), job_key(new)
        if before is not None and before != after:
            children = self._by_job[before]
            children.discard(key)
            if not children:
                del self._by_job[before]
        if after is not None:
            self._by_job.setdefault(after, set()).add(key)


def job_key(body: Json | None) -> Key | None:
    """Return the key of the job that an object's label names, or None."""
    if body is None:
        return None
    name = body["metadata"].get("labels", {}).get(names.LABEL_JOB)
    return (body["metadata"].get("namespace", ""), name) if name else None


def _content(record: Json) -> Json:
    metadata = {k: v for k, v in record["metadata"].items() if k != "resourceVersion"}
    return {**record, "metadata": metadata}


class PodStore(Store):
    """The pods of jobs; those that say that they are of rank 0 are found without a look at all."""

    def __init__(self) -> None:
        super().__init__(trim_pod)
        self._leaders: dict[Key, dict[Key, Json]] = {}

    def leaders(self, job: Key) -> list[Json]:
        """Return the job's pods with the label of rank 0: at most one of each attempt, but anybody can write labels."""
        return list(self._leaders.get(job, {}).values())

    def clear(self) -> None:
        """Forget all records, not that some are gone for good."""
        super().clear()
        self._leaders.clear()

    def _index(self, key: Key, old: Json | None, new: Json | None) -> None:
        super()._index(key, old, new)
        if (before := _leads(old)) is not None and (pods := self._leaders.get(before)) is not None:
            pods.pop(key, None)
            if not pods:
                del self._leaders[before]
        if new is not None and (after := _leads(new)) is not None:
            self._leaders.setdefault(after, {})[key] = new


def _leads(body: Json | None) -> Key | None:
    """Return the job whose rank 0 starts in a pod, by the pod's labels."""
    if body is None or body["metadata"].get("labels", {}).get(names.LABEL_FIRST_RANK) != "0":
        return None
    return job_key(body)


class Stores:
    """One Store per kind."""

    def __init__(self) -> None:
        self.jobs = Store(trim_job)
        self.policies = Store(trim_custom)
        self.injections = Store(trim_custom)
        self.pods = PodStore()
        self.services = Store(trim_child)
        self.configmaps = Store(trim_child)
        self.podgroups = Store(trim_child)
        self.networkpolicies = Store(trim_child)
        self.workloads = Store(trim_workload)
