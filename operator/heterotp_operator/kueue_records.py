"""What a job that Kueue admits needs beside its Workload: flavors and priority, read when they are needed."""

from typing import Protocol

from heterotp_api import names, reasons
from heterotp_api.conditions import FAILED, SUCCEEDED

from heterotp_operator.cluster import FLAVORS, PRIORITIES, WORKLOAD_PRIORITIES, WORKLOADS, ApiError, NotFound, Resource
from heterotp_operator.queue import Key
from heterotp_operator.reconcile.kueue.admission import KueueRecords, assignments, is_admitted
from heterotp_operator.reconcile.objects import at
from heterotp_operator.store import Json, Stores

MOST_FLAVORS = 64  # of one job: 18 groups of a few resources


class Reader(Protocol):
    """The call to the API server that is needed here."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """Return one object. Raises NotFound."""


async def kueue_records(client: Reader, stores: Stores, key: Key, job: Json, kueue: str) -> KueueRecords:
    """Return the Workload of a job, and what is needed to make it or the pods; kueue: `Settings.kueue`.

    No failure is raised: what cannot be read now is named in the result, and is read again later.
    """
    gang = at(job, "spec", "runPolicy", "gang")
    if kueue != "on":
        return KueueRecords()
    workload = stores.workloads.get((key[0], names.workload_name(key[1])))
    if at(gang, "provider") != "kueue" or at(gang, "admission") not in (None, "Workload") or _is_at_rest(job):
        return KueueRecords(workload)
    if workload is None and stores.pods.count_of_job(key):
        try:
            stores.workloads.upsert(await client.get(WORKLOADS, key[0], names.workload_name(key[1])))
        except NotFound:
            return KueueRecords()
        except ApiError as error:  # a list may have failed, too: a gang is not evicted for that
            return KueueRecords(missing=(reasons.KUEUE_UNAVAILABLE, error.message), unknown=True)
        workload = stores.workloads.get((key[0], names.workload_name(key[1])))
    if stores.pods.count_of_job(key) and workload is not None and not _makes_pods(stores, key, job):
        return KueueRecords(workload)
    if is_admitted(workload):
        return await _with_flavors(client, workload)
    return await _with_priority(client, workload, gang)


def _is_at_rest(job: Json) -> bool:
    """Return whether a job is suspended or has ended: it needs neither flavors nor a priority."""
    return bool(at(job, "spec", "runPolicy", "suspend")) or at(job, "status", "phase") in (SUCCEEDED, FAILED)


def _makes_pods(stores: Stores, key: Key, job: Json) -> bool:
    """Return whether pods of a job may be missing, as far as its status says."""
    groups = at(job, "status", "workerGroups") or ()
    return stores.pods.count_of_job(key) < sum(int(group.get("desired") or 0) for group in groups)


async def _with_flavors(client: Reader, workload: Json | None) -> KueueRecords:
    given = assignments(workload).values()
    wanted = sorted({str(name) for each in given for name in (each.get("flavors") or {}).values()})[:MOST_FLAVORS]
    flavors: dict[str, Json] = {}
    for name in wanted:
        try:
            flavors[name] = (await client.get(FLAVORS, None, name)).get("spec") or {}
        except ApiError as error:
            words = f"ResourceFlavor {name}: {error.message}"
            return KueueRecords(workload, missing=(reasons.FLAVOR_MISSING, words))
    return KueueRecords(workload, flavors)


async def _with_priority(client: Reader, workload: Json | None, gang: Json) -> KueueRecords:
    """Return the number of the job's priority: Kueue accepts a class only with it, and reads no class itself."""
    for resource, field in ((WORKLOAD_PRIORITIES, "workloadPriorityClassName"), (PRIORITIES, "priorityClassName")):
        if name := gang.get(field):
            try:
                return KueueRecords(workload, priority=int((await client.get(resource, None, name)).get("value") or 0))
            except ApiError as error:
                words = f"runPolicy.gang.{field}: {resource.kind} {name}: {error.message}"
                reason = reasons.PRIORITY_CLASS_MISSING if isinstance(error, NotFound) else reasons.KUEUE_UNAVAILABLE
                return KueueRecords(workload, missing=(reason, words))
    return KueueRecords(workload)
