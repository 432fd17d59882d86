"""The only module that talks to the API server: dict bodies in, raw JSON out, every call bounded and counted.

Calls beyond the limit per second take turns by namespace (rate_limit.py); lists come in bounded pages (page_size.py).

ApiError
├─ Refused      400, 422 and 403: the object itself, a quota or a policy
├─ Conflict     409: another writer was faster
│  └─ NameTaken     409: the name belongs to an object that is not ours
└─ NotFound     404
"""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from heterotp_api import names
from kubernetes.aio import client

from heterotp_operator.answers import decoded, lines
from heterotp_operator.api_clock import ApiClock
from heterotp_operator.metrics import Metrics
from heterotp_operator.page_size import PageSize, read_page
from heterotp_operator.rate_limit import FairLimit, TokenBucket
from heterotp_operator.reconcile.gang_schedulers.registry import SCHEDULERS
from heterotp_operator.store import Json, controller_of

STATUS_MANAGER = "heterotp-status"
ATTEMPT_MANAGER = "heterotp-attempt"
MANAGER = "heterotp-operator"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
GONE = 410  # the code of an answer that says that events, or pages of a list, are not kept any more
WATCH_SECONDS = 300  # after which the API server ends a watch
MAX_MESSAGE = 4096  # of an error: the API server repeats what it refuses, which may be a megabyte


@dataclass(frozen=True)
class Resource:
    """One kind as the API server serves it."""

    api_version: str
    plural: str
    kind: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection or of one object."""
        prefix = "/apis/" if "/" in self.api_version else "/api/"
        parts = [prefix + self.api_version]
        parts += [f"namespaces/{namespace}"] if namespace else []
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


JOBS = Resource(names.API_VERSION, "heterotpjobs", "HeteroTPJob")
POLICIES = Resource(names.API_VERSION, "balancingpolicies", "BalancingPolicy")
INJECTIONS = Resource(names.API_VERSION, "stragglerinjections", "StragglerInjection")
PODS = Resource("v1", "pods", "Pod")
SERVICES = Resource("v1", "services", "Service")
CONFIGMAPS = Resource("v1", "configmaps", "ConfigMap")
EVENTS = Resource("v1", "events", "Event")
SECRETS = Resource("v1", "secrets", "Secret")  # the operator's own key alone
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
WORKLOADS = Resource("kueue.x-k8s.io/v1beta2", "workloads", "Workload")
FLAVORS = Resource(WORKLOADS.api_version, "resourceflavors", "ResourceFlavor")
WORKLOAD_PRIORITIES = Resource(WORKLOADS.api_version, "workloadpriorityclasses", "WorkloadPriorityClass")
PRIORITIES = Resource("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass")
LEASES = Resource("coordination.k8s.io/v1", "leases", "Lease")
PODGROUPS = {  # by gang scheduler
    name: Resource(scheduler.pod_group_api, "podgroups", "PodGroup")
    for name, scheduler in SCHEDULERS.items()
    if scheduler.pod_group_api
}
OWNED = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


def resource_of(body: Json) -> Resource:
    """Return the resource of a body by its apiVersion and kind."""
    known = (
        JOBS,
        POLICIES,
        INJECTIONS,
        PODS,
        SERVICES,
        CONFIGMAPS,
        NETWORK_POLICIES,
        EVENTS,
        LEASES,
        SECRETS,
        WORKLOADS,
    )
    return next(
        r for r in (*known, *PODGROUPS.values()) if (r.api_version, r.kind) == (body["apiVersion"], body["kind"])
    )


class ApiError(Exception):
    """The API server refused a call, or did not answer (code 0)."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message = code, reason, message


class Refused(ApiError):
    """400, 422 or 403: trying the same again changes nothing until the object, a quota or a policy changes."""


class Conflict(ApiError):
    """409: a stale version, or a uid that is no longer there."""


class NameTaken(Conflict):
    """409: an object of another owner has the name."""


class NotFound(ApiError):
    """404."""


ERRORS: dict[int, type[ApiError]] = {400: Refused, 403: Refused, 422: Refused, 409: Conflict, 404: NotFound}


def error_of(code: int, text: bytes) -> ApiError:
    """Return the error for an answer, with the API server's own message."""
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    message = str(status.get("message") or text[:500].decode(errors="replace").strip())
    return ERRORS.get(code, ApiError)(code, str(status.get("reason") or ""), message[:MAX_MESSAGE])


class PageTooLongError(Exception):
    """A page of a list is longer than may be parsed at once."""


class Cluster:
    """The API server as the operator uses it."""

    def __init__(self, api: client.ApiClient, metrics: Metrics, rate: float = 200.0, timeout: float = 30.0) -> None:
        self._api, self._metrics = api, metrics
        self._limit = FairLimit(TokenBucket(rate))
        self.clock = ApiClock()
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(10.0, timeout))

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def request(
        self,
        verb: str,
        resource: Resource,
        path: str,
        body: Json | None = None,
        content_type: str = "application/json",
        namespace: str | None = None,
    ) -> Json:
        """Send one request and return its JSON. Raises ApiError.

        namespace: whose turn it takes; a Lease waits for nobody: without it the process ends.
        """
        if resource is not LEASES:
            await self._limit.wait(namespace or "")
        code, data = await self._timed(verb, resource, path, body, content_type)
        if code >= 400:
            raise error_of(code, data)
        return decoded(data)

    async def _timed(
        self,
        verb: str,
        resource: Resource,
        path: str,
        body: Json | None = None,
        content_type: str = "application/json",
        most: int | None = None,
    ) -> tuple[int, bytes]:
        """Send one request and count it; return code and body. Raises ApiError and PageTooLongError."""
        started, code = time.monotonic(), 0
        method = {"list": "GET", "get": "GET", "create": "POST", "update": "PUT"}.get(verb, verb.upper())
        try:
            answer = await self._send(method, path, body, content_type)
            self.clock.heard(answer.headers.get("Date"), started)
            code, data = answer.status, await read_page(answer.response, most)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, type(error).__name__, str(error)) from error
        finally:
            self._metrics.api_requests.labels(verb, resource.plural, str(code)).inc()
            self._metrics.api_seconds.labels(verb).observe(time.monotonic() - started)
        if data is None:
            raise PageTooLongError
        return code, data

    async def _send(
        self,
        method: str,
        path: str,
        body: Json | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> Any:
        method, url, headers, _, form = await self._api.param_serialize(
            method,
            path,
            header_params={"Accept": "application/json", "Content-Type": content_type},
            auth_settings=["BearerToken"],
        )
        # the body is JSON already: given above, the client would copy all of it in search of its own models
        return await self._api.call_api(method, url, headers, body, form, _request_timeout=timeout or self._timeout)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """Return one object. Raises NotFound."""
        return await self.request("get", resource, resource.path(namespace, name), namespace=namespace)

    async def pages(
        self, resource: Resource, namespace: str | None, selector: str = ""
    ) -> AsyncIterator[tuple[list[Json], int]]:
        """Yield pages of bounded length, each with the resourceVersion that the whole list is of."""
        query, size = {"labelSelector": selector} if selector else {}, PageSize()
        while True:
            answer = await self._page(resource, namespace, query, size)
            version = answer["metadata"].get("resourceVersion", "")
            yield answer.get("items") or [], int(version) if version.isdigit() else 0
            token = answer["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token

    async def _page(self, resource: Resource, namespace: str | None, query: dict[str, str], size: PageSize) -> Json:
        """Return the next page of a list, of as many objects as a bounded answer holds."""
        while True:
            await self._limit.wait("")
            path = f"{resource.path(namespace)}?{urlencode({'limit': size.objects, **query})}"
            try:
                code, data = await self._timed("list", resource, path, most=size.most_bytes)
            except PageTooLongError:
                size.was_too_long()
                continue
            if code >= 400:
                raise error_of(code, data)
            size.was(len(data))
            answer: Json = json.loads(data)  # not by orjson, which takes more memory for a page
            return answer

    async def watch(
        self, resource: Resource, namespace: str | None, version: int, selector: str
    ) -> AsyncIterator[Json]:
        """Yield events after a resourceVersion until the API server ends the watch; bookmarks too. Raises ApiError."""
        asked = {"watch": "true", "allowWatchBookmarks": "true", "labelSelector": selector}
        query = urlencode({**asked, "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS})
        timeout = aiohttp.ClientTimeout(total=WATCH_SECONDS + 10, connect=10)
        path = f"{resource.path(namespace)}?{query}"
        try:
            answer = await self._send("GET", path, None, "application/json", timeout)
            if answer.status >= 400:
                raise error_of(answer.status, await answer.response.read())
            try:
                async for line in lines(answer.response.content):
                    yield decoded(line)
            finally:
                answer.response.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiError(0, type(error).__name__, str(error)) from error

    async def create(self, body: Json, dry_run: bool = False) -> Json:
        """Create an object. Raises Conflict if the name is taken, Refused if it is not acceptable."""
        resource = resource_of(body)
        query = {"fieldManager": MANAGER} | ({"dryRun": "All"} if dry_run else {})
        path = f"{resource.path(body['metadata']['namespace'])}?{urlencode(query)}"
        return await self.request("create", resource, path, body, namespace=body["metadata"]["namespace"])

    async def create_owned(self, body: Json) -> Json:
        """Create an object, or return the one there is if the same controller made it.

        Raises NameTaken when the name belongs to something else.
        """
        try:
            return await self.create(body)
        except Conflict as conflict:
            metadata = body["metadata"]
            found = await self.get(resource_of(body), metadata["namespace"], metadata["name"])
            if same_controller(found, body):
                return found
            if of_namesake(found, body):  # an earlier job's: the store will know it in a moment
                raise
            raise NameTaken(409, "AlreadyExists", f"{conflict.message} and is not owned by this job") from conflict

    async def apply(self, body: Json, manager: str, subresource: str = "") -> Json:
        """Server-side apply with force; a uid or resourceVersion in the body must still be true. Raises Conflict."""
        resource, metadata = resource_of(body), body["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], subresource)
        query = urlencode({"fieldManager": manager, "force": "true"})
        return await self.request("patch", resource, f"{path}?{query}", body, APPLY, metadata["namespace"])

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Json, subresource: str = "") -> Json:
        """Merge-patch one object, or a part of it."""
        path = f"{resource.path(namespace, name, subresource)}?{urlencode({'fieldManager': MANAGER})}"
        return await self.request("patch", resource, path, patch, MERGE, namespace)

    async def replace(self, body: Json) -> Json:
        """Replace an object; its resourceVersion must be the current one. Raises Conflict."""
        resource, metadata = resource_of(body), body["metadata"]
        path = f"{resource.path(metadata['namespace'], metadata['name'])}?{urlencode({'fieldManager': MANAGER})}"
        return await self.request("update", resource, path, body, namespace=metadata["namespace"])

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> Json | None:
        """Delete exactly the object with this uid; None: it is gone already.

        Raises Conflict where another object has the name now, but also where another writer was faster: then it lives.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        body["propagationPolicy"] = "Background"
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            return await self.request("delete", resource, resource.path(namespace, name), body, namespace=namespace)
        except NotFound:
            return None


def same_controller(found: Json, wanted: Json) -> bool:
    """Return whether both objects have the same controller uid."""
    ours, theirs = controller_of(wanted), controller_of(found)
    return ours is not None and theirs is not None and bool(ours["uid"] == theirs["uid"])


def of_namesake(found: Json, wanted: Json) -> bool:
    """Return whether the controllers of both objects have the same kind and name, whatever their uids are."""
    ours, theirs = controller_of(wanted), controller_of(found)
    return ours is not None and theirs is not None and (ours["kind"], ours["name"]) == (theirs["kind"], theirs["name"])


async def connect(configuration: Any, metrics: Metrics, rate: float, timeout: float) -> Cluster:
    """Return a Cluster over a client with this configuration."""
    return Cluster(client.ApiClient(configuration), metrics, rate, timeout)
