"""The pods of an attempt: the user's template, completed."""

import json
from typing import Any

from heterotp_api import names
from heterotp_api.names import Env
from heterotp_api.ranks import PodPlace

from heterotp_operator.reconcile.gang_schedulers.registry import join_gang, set_priority_class
from heterotp_operator.reconcile.gang_schedulers.scheduler import GangMember
from heterotp_operator.reconcile.kueue.marks import mark_admitted
from heterotp_operator.reconcile.observed import Body, Observed

USER = 65532
CONTROL_MOUNT = "/etc/heterotp/control"
CHECKPOINT_MOUNT = "/var/lib/heterotp/checkpoints"
GRACE_SECONDS = 60  # for the last checkpoint
SECURITY: Body = {  # of a pod
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED: Body = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}  # of each container
LAUNCHER = ["python3", "-P", "-m", "heterotp_trainer.launch"]  # -P: not from the current directory


def owner_reference(observed: Observed) -> Body:
    """Return the reference that makes the job a child's controller."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "HeteroTPJob",
        "name": observed.name,
        "uid": observed.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child_metadata(observed: Observed, name: str, labels: dict[str, str] | None = None) -> Body:
    """Return the metadata that all children share."""
    return {
        "name": name,
        "namespace": observed.job["metadata"].get("namespace", "default"),
        "labels": {
            **(labels or {}),  # ours win: the operator finds its children by them
            names.LABEL_MANAGED_BY: names.MANAGED_BY,
            names.LABEL_JOB: observed.name,
        },
        "ownerReferences": [owner_reference(observed)],
    }


def pod_body(observed: Observed, place: PodPlace, attempt: int) -> Body:
    """Return one pod of an attempt."""
    template = observed.templates[place.group_index]
    labels = {
        **((template.get("metadata") or {}).get("labels") or {}),
        names.LABEL_GROUP: place.group,
        names.LABEL_INDEX: str(place.index),
        names.LABEL_FIRST_RANK: str(place.first_rank),
        names.LABEL_ATTEMPT: str(attempt),
        names.LABEL_TEMPLATE_HASH: observed.template_hash,
    }
    name = names.pod_name(observed.name, place.group, place.index, attempt)
    metadata = child_metadata(observed, name, labels)
    annotations = {**((template.get("metadata") or {}).get("annotations") or {})}
    annotations.pop(names.ANNOTATION_SECRET, None)
    if observed.secret_id:
        annotations[names.ANNOTATION_SECRET] = observed.secret_id
    if annotations:
        metadata["annotations"] = annotations
    body: Body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**(template.get("spec") or {})}}
    _complete_spec(observed, place, attempt, body["spec"], name)
    gang = observed.spec.run_policy.gang
    if observed.queued:
        set_priority_class(gang, body)
        mark_admitted(observed.kueue, observed.name, place.group, body, template)
    else:
        join_gang(gang, GangMember(observed.name, attempt, len(observed.places), body))
    return body


def _complete_spec(observed: Observed, place: PodPlace, attempt: int, spec: Body, name: str) -> None:
    """Complete the pod spec: fields that are the operator's are set, others keep what the template gives.

    What is below `spec` is the template's, which other pods share: it is replaced, never changed.
    """
    spec["hostname"] = name
    spec["subdomain"] = names.service_name(observed.name)
    spec["restartPolicy"] = "Never"
    spec["automountServiceAccountToken"] = False
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("enableServiceLinks", False)
    spec["securityContext"] = {**SECURITY, **(spec.get("securityContext") or {})}
    for field in ("containers", "initContainers"):  # restricted means the whole pod
        if spec.get(field):
            spec[field] = [_restricted(container) for container in spec[field]]
    containers = spec.setdefault("containers", [])
    container = next((c for c in containers if c.get("name") == names.CONTAINER), None)
    if container is None:
        container = _restricted({"name": names.CONTAINER})
        spec["containers"] = [container, *containers]
    _complete_container(observed, place, attempt, container)
    _add_volumes(observed, place, spec, container)


def _restricted(container: Body) -> Body:
    return {**container, "securityContext": {**RESTRICTED, **(container.get("securityContext") or {})}}


def _complete_container(observed: Observed, place: PodPlace, attempt: int, container: Body) -> None:
    spec = observed.spec
    container.setdefault("image", observed.settings.trainer_image)
    own = [*(container.get("command") or []), *(container.get("args") or [])]
    container["command"] = LAUNCHER if spec.training is not None else [*LAUNCHER, "--", *own]
    container.pop("args", None)
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    ours = environment(observed, place, attempt)
    ours[Env.LAST_WORDS] = container.setdefault("terminationMessagePath", "/dev/termination-log")
    kept = [entry for entry in container.get("env") or [] if str(entry.get("name")) not in ours]
    container["env"] = [*kept, *({"name": key, "value": value} for key, value in ours.items())]
    ports = [
        {"name": f"metrics-{local}", "containerPort": spec.metrics.port + local} for local in range(place.processes)
    ]
    if place.first_rank == 0:
        ports.append({"name": "rendezvous", "containerPort": spec.rendezvous.port})
    container["ports"] = [*(container.get("ports") or []), *ports]
    container["securityContext"].setdefault("readOnlyRootFilesystem", True)


def environment(observed: Observed, place: PodPlace, attempt: int) -> dict[str, str]:
    """Return the pod's environment; the launcher adds what differs between its ranks."""
    spec = observed.spec
    first = observed.places[0]
    master = names.pod_name(observed.name, first.group, first.index, attempt)
    out = {
        Env.JOB: observed.name,
        Env.JOB_UID: observed.uid,
        Env.NAMESPACE: str(observed.job["metadata"].get("namespace", "default")),
        Env.ATTEMPT: str(attempt),
        Env.GROUP: place.group,
        Env.FIRST_RANK: str(place.first_rank),
        Env.PROCESSES: str(place.processes),
        Env.SPEC: observed.slim_spec,
        Env.STATUS_PORT: str(spec.metrics.port),
        Env.DEVICE: json.dumps(spec.worker_groups[place.group_index].device.dump()),
        Env.WORLD_SIZE: str(spec.process_count),
        Env.MASTER_ADDR: f"{master}.{names.service_name(observed.name)}",
        Env.MASTER_PORT: str(spec.rendezvous.port),
    }
    if observed.key is not None and observed.secret_id:
        out[Env.RENDEZVOUS_SECRET] = observed.key.secret(observed.uid, attempt)
    if place.first_rank == 0:
        out[Env.CONTROL_DIR] = CONTROL_MOUNT
        if spec.checkpoint is not None:
            out[Env.CHECKPOINT_DIR] = spec.checkpoint.path or CHECKPOINT_MOUNT
    return out


def _add_volumes(observed: Observed, place: PodPlace, spec: Body, container: Body) -> None:
    """Add scratch space everywhere; rank 0's pod also has the control document and the checkpoints."""
    wanted: list[tuple[str, str, Body]] = [
        ("heterotp-tmp", "/tmp", {"emptyDir": {}}),
        ("heterotp-shm", "/dev/shm", {"emptyDir": {"medium": "Memory"}}),
    ]
    if place.first_rank == 0:
        control = {"configMap": {"name": names.control_name(observed.name)}}
        wanted.append(("heterotp-control", CONTROL_MOUNT, control))
        checkpoint = observed.spec.checkpoint
        if checkpoint is not None and checkpoint.persistent_volume_claim:
            claim: Body = {"persistentVolumeClaim": {"claimName": checkpoint.persistent_volume_claim}}
            wanted.append(("heterotp-checkpoints", CHECKPOINT_MOUNT, claim))
        elif checkpoint is not None and not checkpoint.path:  # a place to write, gone with the pod
            wanted.append(("heterotp-checkpoints", CHECKPOINT_MOUNT, {"emptyDir": {}}))
    mounts: list[Any] = [*(container.get("volumeMounts") or [])]
    volumes: list[Any] = [*(spec.get("volumes") or [])]
    taken = {str(mount.get("mountPath")).rstrip("/") for mount in mounts}
    for name, path, source in wanted:
        if path not in taken:
            volumes.append({"name": name, **source})
            mounts.append({"name": name, "mountPath": path})
    spec["volumes"], container["volumeMounts"] = volumes, mounts
