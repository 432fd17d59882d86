"""The verbs on a cluster: the job's status tells; its spec and StragglerInjections are changed."""

import json
import shlex
from dataclasses import dataclass
from functools import partial
from typing import Any

from heterotp_api.names import GROUP
from heterotp_api.policy import BalancingSettings
from pydantic import ValidationError

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs import change_requests as orders
from heterotp_cli.verbs import change_status as standing
from heterotp_cli.verbs.change_requests import CREATED_BY, Aim, Slow
from heterotp_cli.verbs.kube import INJECTIONS, JOBS, Body, Kube
from heterotp_cli.verbs.target import Change, Standing
from heterotp_cli.verbs.view import JobView, of_job, places_of

NAMED = 5


def open_job(
    name: str | None, namespace: str | None, context: str | None, kubeconfig: str | None, everywhere: bool = False
) -> "ClusterTarget":
    """Return the target of a job, or of its namespace where none is named."""
    if name == "":
        raise BadInput("JOB: '': name a HeteroTPJob")
    kube = Kube(kubeconfig, context, namespace)
    given = {"-n": namespace, "--context": context, "--kubeconfig": kubeconfig}
    options = tuple(f"{option} {shlex.quote(value)}" for option, value in given.items() if value is not None)
    return ClusterTarget(kube, name or "", None if everywhere else kube.namespace, options)


@dataclass(frozen=True)
class ClusterTarget:
    """One job of a namespace; `options` are those that find it again."""

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

    def inject(self, aimed: Aim, how: Slow) -> Change:
        """Create the injection of these targets anew: what is edited goes on where it was, and may be over already."""
        body, view = self._live()
        made = orders.injection(self.name, self._namespace, aimed, how)
        self._check_targets(made.spec.targets, body, view)
        old = self._injection(made.metadata.name)
        if old is not None and not _ours(old):
            raise BadInput(
                f"{aimed.options()}: StragglerInjection '{made.metadata.name}' was not made by this command: "
                "edit it with kubectl, or delete it first"
            )
        if old is not None:
            self.kube.delete(INJECTIONS, self._namespace, made.metadata.name)
        self.kube.create(INJECTIONS, self._namespace, _manifest(made.dump()))
        said = f"StragglerInjection {made.metadata.name} slows {aimed.words()} of {self.name} {how.words()}"
        said += "; replaces the one that was there" if old is not None else ""
        stands = partial(self._injection_stands, view, made.metadata.name)
        return Change(said, f"{self.command('inject')} {aimed.options()} --off", stands)

    def take_back(self, aimed: Aim) -> Change:
        """Delete injections of the job that this command made."""
        view = self.look()
        wanted = orders.injection_name(self.name, aimed) if aimed else None
        listed = self.kube.all(INJECTIONS, self._namespace, ",".join(f"{k}={v}" for k, v in CREATED_BY.items()))
        names = [each["metadata"]["name"] for each in listed if _of_job(each, self.name)]
        gone = [name for name in names if wanted in (None, name)]
        if not gone:
            raise BadInput(orders.nothing_made(aimed))
        for name in gone:
            self.kube.delete(INJECTIONS, self._namespace, name)
        known = any(_phase(each) not in ("", "Failed") for each in listed if each["metadata"]["name"] in gone)
        stands = partial(self._taken_back_stands, view) if known else standing.never_held
        return Change(f"StragglerInjection {', '.join(gone)}: taken back", "", stands)

    def set_policy(self, strategy: str, max_pruned_share: float | None, sets: tuple[str, ...]) -> Change:
        """Write a policy into the job."""
        body, view = self._live()
        wished = orders.wish(strategy, max_pruned_share, sets, view.rank_count)
        return self._balance(body, view, {"policy": wished.given}, f"policy {wished.words()}")

    def set_default(self) -> Change:
        """Take policy and policyRef out of the job."""
        words = "the default policy: the oldest BalancingPolicy that selects the job, else AUTO without loss"
        return self._balance(*self._live(), {}, words)

    def _balance(self, body: Body, view: JobView, balancing: Body, words: str) -> Change:
        patch = [{"op": "add", "path": "/spec/balancing", "value": balancing}]
        new = self.kube.patch(JOBS, self._namespace, self.name, patch)
        old = body["spec"].get("balancing") or {}
        said = f"HeteroTPJob {self.name}: {words}; replaces {_replaced(old, view.policy)}"
        take_back = self._restore(old) if old != new["spec"].get("balancing", {}) else ""
        return Change(said, take_back, partial(self._policy_stands, view, int(new["metadata"].get("generation") or 0)))

    def _restore(self, old: Body) -> str:
        """Return what to type to have a job's former balancing again."""
        if old.get("policyRef"):
            patch = json.dumps([{"op": "add", "path": "/spec/balancing", "value": {"policyRef": old["policyRef"]}}])
            words = ["kubectl patch", f"{JOBS}.{GROUP}", self.name, *self.options, "--type json -p", shlex.quote(patch)]
            return " ".join(words)
        if not old.get("policy"):
            return f"{self.command('policy')} --default"
        try:
            return f"{self.command('policy')} {orders.options_of(BalancingSettings.model_validate(old['policy']))}"
        except ValidationError:  # of a newer version
            return ""

    # -- how changes stand ------------------------------------------------------------------------------------

    def _policy_stands(self, before: JobView, wanted: int, passed: float) -> Standing:
        body = self._job()
        seen = int((body.get("status") or {}).get("observedGeneration") or 0)
        return standing.policy_of_job(before, of_job(body), seen, wanted, passed)

    def _injection_stands(self, before: JobView, name: str, passed: float) -> Standing:
        live = self._injection(name)
        if live is None:
            return Standing("refused", f"StragglerInjection {name} was deleted")
        said = live.get("status") or {}
        return standing.injection_of_job(before, self.look(), _phase(live), str(said.get("message") or ""), passed)

    def _taken_back_stands(self, before: JobView, passed: float) -> Standing:
        return standing.taken_back_of_job(before, self.look())

    # -- what is there ----------------------------------------------------------------------------------------

    @property
    def _namespace(self) -> str:
        return self.namespace or self.kube.namespace

    def _job(self) -> Body:
        """Return the job; raise BadInput naming those that there are."""
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
        """Raise BadInput for targets that the job does not have, as far as its status can tell."""
        nodes = {rank.rank: rank.node for rank in view.ranks if rank.node}
        if targets.nodes is not None and len(nodes) < (view.rank_count or 0):
            return  # not all pods are bound, or not all ranks are shown: the operator judges
        orders.struck(targets, places_of(body["spec"].get("workerGroups") or ()), nodes)


def _manifest(body: Body) -> Body:
    """Return an object without the defaults of the models: the API server's own shall hold."""
    spec = {key: value for key, value in body["spec"].items() if key not in ("pattern", "paused")}
    return {**body, "spec": spec}


def _ours(body: Body) -> bool:
    return CREATED_BY.items() <= (body["metadata"].get("labels") or {}).items()


def _of_job(body: Body, job: str) -> bool:
    return bool(((body.get("spec") or {}).get("jobRef") or {}).get("name") == job)


def _phase(body: Body) -> str:
    return str((body.get("status") or {}).get("phase") or "")


def _replaced(balancing: Body, governing: str | None) -> str:
    """Return what a job's balancing said before; `governing` is the policy that the operator found for it."""
    if balancing.get("policyRef"):
        return f"policyRef {balancing['policyRef']['name']}"
    if balancing.get("policy"):
        return f"the inline policy {balancing['policy'].get('strategy', 'AUTO')}"
    if governing not in (None, "default", "inline"):
        return f"BalancingPolicy {governing}, which selects the job"
    return "the default policy"


def _no_such_job(namespace: str, names: list[str]) -> str:
    if not names:
        return f"there is no HeteroTPJob in namespace {namespace}"
    listed = ", ".join(sorted(names)[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return f"no such HeteroTPJob in namespace {namespace}; there are {listed}"
