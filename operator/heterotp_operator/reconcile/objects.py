"""Policies and injections as they come from the API server: validated once, put in order, matched with jobs."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from heterotp_api.base import Model
from heterotp_api.injection import StragglerInjectionSpec
from heterotp_api.job import Balancing
from heterotp_api.load import first_error
from heterotp_api.policy import BalancingPolicySpec
from heterotp_api.selector import matches
from pydantic import ValidationError

from heterotp_operator.reconcile.packed import Packed, packed

CONTROLLER = "heterotp.io/operator"
REFUSED = "refused"  # key of a stored object whose spec was not kept: why, e.g. "spec is nested deeper than 64 levels"
Body = dict[str, Any]
SpecModel = TypeVar("SpecModel", bound=Model)
REMEMBERED = 4096  # specs: a namespace's policies are read again for each of its jobs
SHORT = 4096  # characters of a spec that is remembered


@lru_cache(REMEMBERED)
def _parsed(model: type[Model], text: str) -> Model | str:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        field, value, message = first_error(error)
        return f"spec.{field}: " + ("" if value is None else f"{value!r} ") + message


def _spec(model: type[SpecModel], body: Body) -> SpecModel | str:
    """Return the spec, or what is wrong with it: the schema of another version may have let it pass."""
    if REFUSED in body:
        return str(body[REFUSED])
    spec = body.get("spec") or {}
    return _read(model, spec if isinstance(spec, Packed) else packed(spec))


def _read(model: type[SpecModel], text: str) -> SpecModel | str:
    """Return what a text holds; what short ones hold is remembered."""
    read = _parsed if len(text) <= SHORT else _parsed.__wrapped__
    return read(model, text)  # type: ignore[return-value]


def policy_spec(body: Body) -> BalancingPolicySpec | str:
    """Return the spec of a BalancingPolicy, or `field: value: what would be right`."""
    return _spec(BalancingPolicySpec, body)


def injection_spec(body: Body) -> StragglerInjectionSpec | str:
    """Return the spec of a StragglerInjection, or `field: value: what would be right`."""
    return _spec(StragglerInjectionSpec, body)


def balancing_of(job: Body) -> Balancing | str:
    """Return spec.balancing of a job, or what is wrong with it."""
    return _read(Balancing, packed(at(job, "spec", "balancing") or {}))


def at(body: Any, *path: str) -> Any:
    """Return what stands at a path of an object, None where there is none: an invalid one may hold anything."""
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def is_ours(job: Body) -> bool:
    """Return whether no other controller manages a job."""
    return at(job, "spec", "runPolicy", "managedBy") in (None, CONTROLLER)


def name_of(body: Body) -> str:
    """Return the name of an object."""
    return str(body["metadata"]["name"])


def in_order(bodies: Iterable[Body]) -> list[Body]:
    """Return the oldest first, by name within the same second; objects that are being deleted are left out."""
    live = [body for body in bodies if not body["metadata"].get("deletionTimestamp")]
    return sorted(live, key=lambda body: (body["metadata"].get("creationTimestamp") or "", name_of(body)))


def policy_selects(policy: Body, job: Body) -> bool:
    """Return whether a policy selects a job: the job names it, or its selector matches."""
    balancing = balancing_of(job)
    reference = balancing.policy_ref if isinstance(balancing, Balancing) else None
    if reference is not None and reference.name == name_of(policy):
        return True
    spec = policy_spec(policy)
    return not isinstance(spec, str) and matches(spec.selector, _labels(job))


def injection_selects(injection: Body, job: Body) -> bool:
    """Return whether an injection selects a job: it names it, or its selector matches."""
    spec = injection_spec(injection)
    if isinstance(spec, str):
        return False
    return name_of(job) == spec.job_ref.name if spec.job_ref is not None else matches(spec.selector, _labels(job))


def injections_of(job: Body, injections: Iterable[Body]) -> Iterator[tuple[Body, StragglerInjectionSpec]]:
    """Yield the injections that select a job, oldest first."""
    for body in in_order(injections):
        spec = injection_spec(body)
        if not isinstance(spec, str) and injection_selects(body, job):
            yield body, spec


def _labels(job: Body) -> Mapping[str, str]:
    return job["metadata"].get("labels") or {}
