"""The PodGroup of a job as its gang scheduler's kind has it: read when it is needed, for PodGroups are not watched."""

from typing import Protocol

from heterotp_operator.cluster import PODGROUPS, NotFound, Refused, Resource
from heterotp_operator.queue import Key
from heterotp_operator.reconcile.objects import at
from heterotp_operator.store import Json, Store, controller_of


class Reader(Protocol):
    """The call to the API server that is needed here."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return one object. Raises NotFound."""


async def podgroup_of(client: Reader, store: Store, key: Key, job: Json) -> Json | None:
    """Return the PodGroup of a job's name, None where there is none; a record of another job or kind is read anew."""
    provider = at(job, "spec", "runPolicy", "gang", "provider")
    if not isinstance(provider, str) or provider not in PODGROUPS:
        return None
    resource, known = PODGROUPS[provider], store.get(key)
    if known is not None and _is_of(known, resource, job):
        return known
    if known is not None:  # of an earlier job of that name, or of another gang scheduler
        store.drop(known)
    try:
        found = await client.get(resource, *key)
    except (NotFound, Refused):  # making it gives the error
        return None
    store.upsert(found)
    return store.get(key)


def _is_of(known: Json, resource: Resource, job: Json) -> bool:
    owner = controller_of(known) or {}
    return known.get("apiVersion") == resource.api_version and owner.get("uid") == job["metadata"]["uid"]
