"""A small cluster in memory: it carries actions out as the API server does, and plays kubelets and ranks."""

import copy
import json
from dataclasses import dataclass, field

from heterotp_api import names
from heterotp_operator.observe import PodWatch
from heterotp_operator.reconcile.actions import (
    ApplyConfigMap,
    ApplyNetworkPolicy,
    ApplyPodGroup,
    BumpAttempt,
    CreatePod,
    CreateService,
    CreateWorkload,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    DeleteWorkload,
    DryRunPod,
    PatchWorkload,
    ReportWorkload,
    TouchPod,
)
from heterotp_operator.reconcile.gang_secret import OperatorKey
from heterotp_operator.reconcile.job_control import decide_control
from heterotp_operator.reconcile.kueue.admission import KueueRecords
from heterotp_operator.reconcile.network_peers import NetworkPeers
from heterotp_operator.reconcile.observed import Observed, Progress, stamp
from heterotp_operator.reconcile.plan import plan

EPOCH = 1_700_000_000.0


class Killed(Exception):
    """The operator dies here."""


class Stale(Exception):
    """409: the writer's resourceVersion is not the newest."""


@dataclass(frozen=True)
class Settings:
    trainer_image: str = "heterotp/trainer:test"
    injection_lease_seconds: float = 60.0
    network_peers: NetworkPeers | None = None
    kueue: str = "on"


def manifest(name="job", groups=(("a", 1, 1), ("b", 2, 1)), training=True, template=None, **spec):
    """Return a job as the API server holds it; groups are (name, pods, processesPerPod)."""
    template = {"spec": {"containers": [{"name": names.CONTAINER}]}} if template is None else template
    body = {
        "tensorParallelDegree": sum(pods * processes for _, pods, processes in groups),
        "workerGroups": [
            {"name": group, "pods": pods, "processesPerPod": processes, "template": copy.deepcopy(template)}
            for group, pods, processes in groups
        ],
        **spec,
    }
    if training:
        body.setdefault("training", {"iterations": 10})
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    head = {"apiVersion": names.API_VERSION, "kind": "HeteroTPJob"}
    return {**head, "metadata": metadata, "spec": body, "status": {}}


@dataclass
class World:
    """One job, its children, a clock, and what the tests want to know afterwards."""

    job: dict | None
    now: float = EPOCH
    pods: dict[str, dict] = field(default_factory=dict)
    objects: dict[str, dict] = field(default_factory=dict)  # kind -> body
    refusals: dict = field(default_factory=dict)
    refuse: dict = field(default_factory=dict)  # group -> (code, message): the API server's answer
    trainer: object = None
    kill_after: int | None = None
    writes: int = 0
    log: list = field(default_factory=list)
    events: list = field(default_factory=list)
    born: dict[str, int] = field(default_factory=dict)  # pod name -> how often it was made
    settings: Settings = Settings()
    policies: dict[str, dict] = field(default_factory=dict)
    injections: dict[str, dict] = field(default_factory=dict)
    watch: PodWatch = field(default_factory=PodWatch)  # what the operator saw of pods by its own clock
    progress: Progress | None = None
    key: OperatorKey | None = None  # the operator's own
    flavors: dict[str, dict] = field(default_factory=dict)  # name -> spec of a ResourceFlavor of Kueue
    records: KueueRecords | None = None  # what is read of Kueue, where it is not what there is
    clock_ahead: float = 0.0  # the operator's wall clock before its own monotonic one, seconds

    # -- the operator ----------------------------------------------------------------------------------------
    def observe(self):
        ages = self.watch.look(self.pods.values(), self.now)
        seen = Observed(
            job=copy.deepcopy(self.job),
            pods=tuple(copy.deepcopy(self.pods[name]) for name in sorted(self.pods)),
            service=copy.deepcopy(self.objects.get("Service")),
            configmap=copy.deepcopy(self.objects.get("ConfigMap")),
            podgroup=copy.deepcopy(self.objects.get("PodGroup")),
            networkpolicy=copy.deepcopy(self.objects.get("NetworkPolicy")),
            trainer=self.trainer,
            now=self.now + self.clock_ahead,
            settings=self.settings,
            policies=tuple(copy.deepcopy(list(self.policies.values()))),
            injections=tuple(copy.deepcopy(list(self.injections.values()))),
            refusals=dict(self.refusals),
            terminating_for=ages.terminating,
            ended_for=ages.ended,
            progress=self.progress,
            key=self.key,
            kueue=self.records or KueueRecords(copy.deepcopy(self.objects.get("Workload")), self.flavors),
            control=None,
        )
        return seen.with_control(decide_control(seen))

    def plan(self):
        return plan(self.observe())

    def reconcile(self):
        """Plan, act and write the status, as the operator does; return the decision."""
        decision = self.plan()
        for action in decision.actions:
            if not self.act(action):
                decision = self.plan()
                break
        else:
            self.refusals.clear()
        self.show(decision)
        return decision

    def settle(self, most=30):
        """Reconcile until nothing is left to do at this moment."""
        for _ in range(most):
            before = self.picture()
            decision = self.reconcile()
            if self.job is None or (not decision.actions and self.picture() == before):
                return decision
        raise AssertionError(f"still at work after {most} looks: {decision.actions} {self.status}")

    def picture(self):
        return copy.deepcopy((self.job, self.pods, self.objects, self.refusals))

    def show(self, decision):
        if decision.status is not None and self.job is not None:
            json.dumps(decision.status, allow_nan=False)
            assert not {"attempt", "restarts"} & set(decision.status), "the counters are another manager's"
            old = self.job["status"]
            new = {key: old[key] for key in ("attempt", "restarts") if key in old} | decision.status
            if new != old:
                self.job["status"] = copy.deepcopy(new)
                self._write(f"status {new['phase']}")
        self.events += decision.events

    def _write(self, what):
        if self.job is not None:
            self.job["metadata"]["resourceVersion"] = str(int(self.job["metadata"]["resourceVersion"]) + 1)
        self.writes += 1
        self.log.append(what)
        if self.kill_after == self.writes:
            self.kill_after = None
            raise Killed

    def act(self, action):
        """Carry one action out; return False when the API server refuses a child."""
        match action:
            case DryRunPod(group=group):
                return self._admit(group)
            case CreatePod(body=body):
                return self._create(body)
            case BumpAttempt():
                self._bump(action)
            case DeletePod() | DeleteNetworkPolicy():
                self._delete(action)
            case (
                CreateService(body=body)
                | ApplyConfigMap(body=body)
                | ApplyPodGroup(body=body)
                | ApplyNetworkPolicy(body=body)
            ):
                if not self._admit(body["kind"]):
                    return False
                self.objects[body["kind"]] = copy.deepcopy(body)
                self.objects[body["kind"]]["metadata"]["uid"] = f"uid-of-{body['kind']}"
                self._write(f"apply {body['kind']}")
            case CreateWorkload() | PatchWorkload() | ReportWorkload() | DeleteWorkload():
                return self._admit("Workload") and self._write_workload(action)
            case DeleteJob(uid=uid, resource_version=version):
                self._remove_job(uid, version)
            case TouchPod():
                self._touch(action)
        return True

    def _touch(self, action):
        annotations = self.pods[action.name]["metadata"].setdefault("annotations", {})
        annotations[names.ANNOTATION_CONTROL] = str(action.generation)
        self._write(f"touch {action.name}")

    def _delete_network_policy(self, action):
        assert self.objects["NetworkPolicy"]["metadata"]["uid"] == action.uid
        del self.objects["NetworkPolicy"]
        self._write("delete NetworkPolicy")

    def _admit(self, subject):
        if subject in self.refuse:
            self.refusals[subject] = self.refuse[subject]
            return False
        return True

    def _write_workload(self, action):
        """Write a Workload as the API server does."""
        self._write(type(action).__name__)
        workload = self.objects.get("Workload")
        if isinstance(action, CreateWorkload):
            assert workload is None
            workload = copy.deepcopy(action.body) | {"status": {}}
            workload["metadata"] |= {"uid": f"workload-{self.writes}"}
            self.objects["Workload"] = workload
        elif isinstance(action, DeleteWorkload):
            assert workload["metadata"]["uid"] == action.uid
            del self.objects["Workload"]
            return True
        elif isinstance(action, PatchWorkload):
            assert workload["metadata"]["resourceVersion"] == action.patch["metadata"]["resourceVersion"]
            workload["spec"] |= copy.deepcopy(action.patch.get("spec", {}))
            workload["metadata"] |= copy.deepcopy(action.patch["metadata"])
            workload["status"] |= copy.deepcopy(action.patch.get("status", {}))
        else:
            told = {
                c["type"]: c for c in (*workload["status"].get("conditions", ()), *action.body["status"]["conditions"])
            }
            workload["status"] |= {**copy.deepcopy(action.body["status"]), "conditions": list(told.values())}
        workload["metadata"]["resourceVersion"] = str(self.writes)
        return True

    def _create(self, body):
        name, labels = body["metadata"]["name"], body["metadata"]["labels"]
        if not self._admit(labels[names.LABEL_GROUP]):
            return False
        if name not in self.pods:
            pod = copy.deepcopy(body) | {"status": {"phase": "Pending"}}
            self.born[name] = self.born.get(name, 0) + 1
            pod["metadata"] |= {"uid": f"{name}#{self.born[name]}", "creationTimestamp": stamp(self.now)}
            attempts = {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in self.pods.values()}
            assert attempts <= {labels[names.LABEL_ATTEMPT]}, f"two gangs: {attempts} and {name}"
            self.pods[name] = pod
            self._write(f"create {name}")
        return True

    def _bump(self, action):
        if action.resource_version != self.job["metadata"]["resourceVersion"]:
            raise Stale
        self.job["status"] = {**self.job["status"], "attempt": action.attempt, "restarts": action.restarts}
        self._write(f"attempt {action.attempt}")

    def _delete(self, action):
        if isinstance(action, DeleteNetworkPolicy):
            self._delete_network_policy(action)
            return
        pod = self.pods.get(action.name)
        if pod is None or pod["metadata"]["uid"] != action.uid:
            return
        if action.grace_seconds == 0 or pod["status"]["phase"] in ("Succeeded", "Failed"):
            del self.pods[action.name]
        elif not pod["metadata"].get("deletionTimestamp"):
            self.take(action.name)
        self._write(f"delete {action.name}")

    def _remove_job(self, uid, version):
        if (uid, version) == (self.job["metadata"]["uid"], self.job["metadata"]["resourceVersion"]):
            self.job, self.pods, self.objects = None, {}, {}
            self._write("delete job")

    # -- the rest of the world -------------------------------------------------------------------------------
    @property
    def status(self):
        return self.job["status"]

    @property
    def phase(self):
        return self.status.get("phase")

    @property
    def true(self):
        return {c["type"] for c in self.status.get("conditions", ()) if c["status"] == "True"}

    def condition(self, kind):
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    @property
    def control(self):
        """The control document that is in the ConfigMap."""
        return json.loads(self.objects["ConfigMap"]["data"][names.CONTROL_FILE])

    def put(self, body):
        """Apply a policy or an injection, as the API server does."""
        kept = self.policies if body["kind"] == "BalancingPolicy" else self.injections
        name = body["metadata"]["name"]
        if name in kept and kept[name]["spec"] != body["spec"]:
            body["metadata"]["generation"] = kept[name]["metadata"]["generation"] + 1
        kept[name] = body

    def edit(self, **spec):
        self.job["spec"] |= spec
        self.job["metadata"]["generation"] += 1
        self.job["metadata"]["resourceVersion"] = str(int(self.job["metadata"]["resourceVersion"]) + 1)

    def take(self, name, grace=60):
        """Delete a pod from outside: it terminates."""
        self.pods[name]["metadata"] |= {
            "deletionTimestamp": stamp(self.now + grace),
            "deletionGracePeriodSeconds": grace,
        }

    def play(self, name, phase, ready=False, container=None, **status):
        pod = self.pods[name]
        pod["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}], **status}
        if container is not None:
            pod["status"]["containerStatuses"] = [{"name": names.CONTAINER, "state": container}]

    def run(self, *chosen):
        for name in chosen or tuple(self.pods):
            self.play(name, "Running", ready=True)
            self.pods[name]["spec"]["nodeName"] = "node-1"

    def end(self, name, code, reason="Error", message=None, **status):
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": stamp(self.now)}}
        if message is not None:
            state["terminated"]["message"] = message
        self.play(name, "Failed" if code else "Succeeded", container=state, **status)

    def vanish(self):
        """Kubelets are done with what terminates."""
        for name in [name for name, pod in self.pods.items() if pod["metadata"].get("deletionTimestamp")]:
            del self.pods[name]

    def started(self):
        """Bring the gang to Running and return self."""
        self.settle()
        self.run()
        self.settle()
        return self


def policy(name="p", born=0, namespace="team", **spec):
    """Return a BalancingPolicy that the API server made `born` seconds after the world."""
    return _custom("BalancingPolicy", name, born, namespace, {"selector": {"matchLabels": {"a": "b"}}, **spec})


def injection(name="i", born=0, namespace="team", **spec):
    """Return a StragglerInjection of rank 1 of job `job`, unless the spec names others."""
    given = {"slowdown": 4.0, "targets": {"ranks": [1]}, **spec}
    return _custom("StragglerInjection", name, born, namespace, given if "selector" in given else _for_job(given))


def _for_job(spec):
    return {"jobRef": {"name": "job"}, **spec}


def _custom(kind, name, born, namespace, spec):
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    metadata["creationTimestamp"] = stamp(EPOCH + born)
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec, "status": {}}


def labelled(body, **labels):
    """Return a job with these labels."""
    body["metadata"]["labels"] = labels or {"a": "b"}
    return body


def with_policy(**policy):
    """Return a world with a job of this run policy."""
    return World(manifest(runPolicy=policy))
