"""The verbs on a cluster: read the job's status; change its spec and StragglerInjections."""

import json
import shlex
from dataclasses import dataclass
from functools import partial
from typing import Any

from heterotp_api.formatting import listed
from heterotp_api.names import GROUP
from heterotp_api.policy import DEFAULT_POLICY, INLINE_POLICY, BalancingSettings
from pydantic import ValidationError

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs import change_requests, change_status
from heterotp_cli.verbs.change_requests import CREATED_BY, RankSelector, SlowdownRequest
from heterotp_cli.verbs.kube import INJECTIONS, JOBS, Body, Kube
from heterotp_cli.verbs.target import Change, ChangeStatus
from heterotp_cli.verbs.view import JobView, of_job, places_of

MOST_LISTED = 5  # jobs in an error message


def open_job(
    name: str | None, namespace: str | None, context: str | None, kubeconfig: str | None, everywhere: bool = False
) -> "ClusterTarget":
    """Return the target of a job, or of a namespace where `name` is None; everywhere: of all namespaces."""
    if name == "":
        raise BadInput("JOB: '': name a HeteroTPJob")
    kube = Kube(kubeconfig, context, namespace)
    given = {"-n": namespace, "--context": context, "--kubeconfig": kubeconfig}
    options = tuple(f"{option} {shlex.quote(value)}" for option, value in given.items() if value is not None)
    return ClusterTarget(kube, name or "", None if everywhere else kube.namespace, options)


@dataclass(frozen=True)
class ClusterTarget:
    """One job of a namespace; `options` are the command-line options that select cluster and namespace."""

    kube: Kube
    name: str
    namespace: str | None  # None: all of them
    options: tuple[str, ...] = ()

    def look(self) -> JobView:
        """Return the job."""
        return of_job(self._job())

    def jobs(self) -> list[JobView]:
        """Return the jobs of the namespace, or of all."""
        return [of_job(body) for body in self.kube.all(JOBS, self.namespace)]

    def where(self) -> str:
        """Return where `jobs` looks."""
        return f"in namespace {self.namespace}" if self.namespace is not None else "in any namespace"

    def command(self, verb: str) -> str:
        """Return what to type for another verb on this job."""
        return " ".join(["kubectl heterotp", verb, self.name, *self.options])

    def inject(self, selector: RankSelector, slowdown: SlowdownRequest) -> Change:
        """Create the injection of these ranks, after deleting an older one: an edited one would keep its age."""
        body, view = self._live()
        made = change_requests.injection(self.name, self._namespace, selector, slowdown)
        self._check_targets(made.spec.targets, body, view)
        old = self._injection(made.metadata.name)
        if old is not None and not _ours(old):
            raise BadInput(
                f"{selector.options()}: StragglerInjection '{made.metadata.name}' was not made by this command: "
                "edit it with kubectl, or delete it first"
            )
        if old is not None:
            self.kube.delete(INJECTIONS, self._namespace, made.metadata.name)
        self.kube.create(INJECTIONS, self._namespace, _manifest(made.dump()))
        description = (
            f"StragglerInjection {made.metadata.name} slows {selector.description()} of {self.name} "
            f"{slowdown.description()}{'; replaces the one that was there' if old is not None else ''}"
        )
        status = partial(self._injection_status, view, made.metadata.name)
        return Change(description, f"{self.command('inject')} {selector.options()} --off", status)

    def remove_injections(self, selector: RankSelector) -> Change:
        """Delete injections of the job that this command line created."""
        view = self.look()
        wanted = change_requests.injection_name(self.name, selector) if selector else None
        existing = self.kube.all(INJECTIONS, self._namespace, ",".join(f"{k}={v}" for k, v in CREATED_BY.items()))
        names = [each["metadata"]["name"] for each in existing if _of_job(each, self.name)]
        removed = [name for name in names if wanted in (None, name)]
        if not removed:
            raise BadInput(change_requests.no_injection_text(selector))
        for name in removed:
            self.kube.delete(INJECTIONS, self._namespace, name)
        known = any(_phase(each) not in ("", "Failed") for each in existing if each["metadata"]["name"] in removed)
        status = partial(self._removal_status, view) if known else change_status.never_applied_status
        return Change(f"StragglerInjection {listed(removed)}: taken back", "", status)

    def set_policy(self, strategy: str, max_pruned_share: float | None, sets: tuple[str, ...]) -> Change:
        """Write a policy into the job."""
        body, view = self._live()
        request = change_requests.policy_request(strategy, max_pruned_share, sets, view.rank_count)
        return self._balance(body, view, {"policy": request.given}, f"policy {request.description()}")

    def set_default(self) -> Change:
        """Take policy and policyRef out of the job."""
        policy = "the default policy: the oldest BalancingPolicy that selects the job, else AUTO without loss"
        return self._balance(*self._live(), {}, policy)

    def _balance(self, body: Body, view: JobView, balancing: Body, policy: str) -> Change:
        patch = [{"op": "add", "path": "/spec/balancing", "value": balancing}]
        new = self.kube.patch(JOBS, self._namespace, self.name, patch)
        old = body["spec"].get("balancing") or {}
        description = f"HeteroTPJob {self.name}: {policy}; replaces {_replaced(old, view.policy)}"
        undo_command = self._restore(old) if old != new["spec"].get("balancing", {}) else ""
        generation = int(new["metadata"].get("generation") or 0)
        return Change(description, undo_command, partial(self._policy_status, generation))

    def _restore(self, old: Body) -> str:
        """Return the command that gives the job its former spec.balancing; empty where none can."""
        if old.get("policyRef"):
            patch = json.dumps([{"op": "add", "path": "/spec/balancing", "value": {"policyRef": old["policyRef"]}}])
            parts = ["kubectl patch", f"{JOBS}.{GROUP}", self.name, *self.options, "--type json -p", shlex.quote(patch)]
            return " ".join(parts)
        if not old.get("policy"):
            return f"{self.command('policy')} --default"
        try:
            settings = BalancingSettings.model_validate(old["policy"])
            return f"{self.command('policy')} {change_requests.options_of(settings)}"
        except ValidationError:  # of a newer version
            return ""

    # -- the status of changes ------------------------------------------------------------------------------------

    def _policy_status(self, wanted: int, passed: float) -> ChangeStatus:
        body = self._job()
        seen = int((body.get("status") or {}).get("observedGeneration") or 0)
        return change_status.job_policy_status(of_job(body), seen, wanted, passed)

    def _injection_status(self, before: JobView, name: str, passed: float) -> ChangeStatus:
        live = self._injection(name)
        if live is None:
            return ChangeStatus("refused", f"StragglerInjection {name} was deleted")
        message = str((live.get("status") or {}).get("message") or "")
        return change_status.job_injection_status(before, self.look(), _phase(live), message, passed)

    def _removal_status(self, before: JobView, passed: float) -> ChangeStatus:
        return change_status.job_removal_status(before, self.look())

    # -- the objects of the cluster ---------------------------------------------------------------------------

    @property
    def _namespace(self) -> str:
        return self.namespace or self.kube.namespace

    def _job(self) -> Body:
        """Return the job; raise BadInput listing the existing jobs where there is none of that name."""
        body = self.kube.get(JOBS, self._namespace, self.name)
        if body is None:
            names = [each["metadata"]["name"] for each in self.kube.all(JOBS, self._namespace)]
            raise BadInput(f"JOB: '{self.name}': {_no_such_job(self._namespace, names)}")
        return body

    def _live(self) -> tuple[Body, JobView]:
        """Return the job; raise BadInput where it has ended."""
        body = self._job()
        view = of_job(body)
        if view.ended:
            raise BadInput(f"JOB: '{self.name}': it has {view.state}: nothing changes any more")
        return body, view

    def _injection(self, name: str) -> Body | None:
        return self.kube.get(INJECTIONS, self._namespace, name)

    def _check_targets(self, targets: Any, body: Body, view: JobView) -> None:
        """Raise BadInput for targets that the job does not have; nodes only where the node of every rank is known."""
        nodes = {rank.rank: rank.node for rank in view.ranks if rank.node}
        if targets.nodes is not None and len(nodes) < (view.rank_count or 0):
            return  # not all pods are bound, or not all ranks are shown: the operator judges
        change_requests.target_ranks(targets, places_of(body["spec"].get("workerGroups") or ()), nodes)


def _manifest(body: Body) -> Body:
    """Return an object without the models' defaults, so that the API server sets its own."""
    spec = {key: value for key, value in body["spec"].items() if key not in ("pattern", "paused")}
    return {**body, "spec": spec}


def _ours(body: Body) -> bool:
    return CREATED_BY.items() <= (body["metadata"].get("labels") or {}).items()


def _of_job(body: Body, job: str) -> bool:
    return bool(((body.get("spec") or {}).get("jobRef") or {}).get("name") == job)


def _phase(body: Body) -> str:
    return str((body.get("status") or {}).get("phase") or "")


def _replaced(balancing: Body, governing: str | None) -> str:
    """Return the policy of a job before a change; `governing` is the policy that the operator found for it."""
    if balancing.get("policyRef"):
        return f"policyRef {balancing['policyRef']['name']}"
    if balancing.get("policy"):
        return f"the inline policy {balancing['policy'].get('strategy', 'AUTO')}"
    if governing not in (None, DEFAULT_POLICY, INLINE_POLICY):
        return f"BalancingPolicy {governing}, which selects the job"
    return "the default policy"


def _no_such_job(namespace: str, names: list[str]) -> str:
    if not names:
        return f"there is no HeteroTPJob in namespace {namespace}"
    return f"no such HeteroTPJob in namespace {namespace}; there are {listed(sorted(names), MOST_LISTED)}"
