"""kopf is the informer and nothing else: its registry holds on.event and the login, and handlers only take in."""

import kopf
import pytest
from heterotp_api import names
from heterotp_operator.cluster import CONFIGMAPS, JOBS, OWNED, SERVICES
from heterotp_operator.handlers import build_registry, kopf_settings
from heterotp_operator.informers import Informers
from heterotp_operator.settings import Settings


@pytest.fixture
def enqueued():
    return []


@pytest.fixture
def relisted():
    return []


@pytest.fixture
def registry(stores, enqueued, relisted, metrics):
    async def login():
        raise AssertionError("this test must not log in")

    return build_registry(
        Informers(stores, lambda kind, key: enqueued.append((kind, key))), metrics, login, lambda: relisted.append(1)
    )


def body(name, version=1, job=None, kind="Pod"):
    labels = {names.LABEL_JOB: job} if job else {}
    metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    return {"kind": kind, "metadata": metadata, "spec": {}, "status": {}}


async def send(registry, resource, kind, obj):
    handlers = {handler.id: handler.fn for handler in registry._watching.get_all_handlers()}
    await handlers[f"take-{resource.plural}"](event={"type": kind, "object": obj})


def test_nothing_but_on_event_and_login_is_registered(registry):
    watching = registry._watching.get_all_handlers()
    assert sorted(handler.id for handler in watching) == [
        "take-balancingpolicies",
        "take-configmaps",
        "take-heterotpjobs",
        "take-services",
        "take-stragglerinjections",
    ]
    for other in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
        assert other.get_all_handlers() == []
    assert len(registry._activities.get_all_handlers()) == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_network_policies_are_watched_by_their_label_and_only_where_there_are_rights_on_them(stores, metrics, wanted):
    informers = Informers(stores, lambda kind, key: None)
    registry = build_registry(informers, metrics, lambda: None, lambda: None, network_policies=wanted)
    assert ("take-networkpolicies" in {each.id for each in registry._watching.get_all_handlers()}) is wanted
    assert kopf_settings(Settings()).watching.label_selectors["networking.k8s.io", "v1", "networkpolicies"] == OWNED


def test_the_default_registry_is_left_alone(registry):
    default = kopf.get_default_registry()
    assert default._watching.get_all_handlers() == []


@pytest.mark.parametrize("resource", [SERVICES, CONFIGMAPS], ids=lambda r: r.plural)
async def test_a_child_enqueues_its_job_and_only_when_it_changed(registry, enqueued, resource):
    await send(registry, resource, "ADDED", body("p", job="j"))
    await send(registry, resource, "MODIFIED", body("p", 2, job="j"))
    assert enqueued == [(JOBS, ("ns", "j"))]
    await send(registry, resource, "DELETED", body("p", 3, job="j"))
    await send(registry, resource, "DELETED", body("p", 3, job="j"))
    assert enqueued == [(JOBS, ("ns", "j"))] * 2


async def test_a_child_whose_label_moves_enqueues_both_jobs(registry, enqueued):
    await send(registry, CONFIGMAPS, "ADDED", body("p", job="j"))
    await send(registry, CONFIGMAPS, "MODIFIED", body("p", 2, job="k"))
    assert sorted(key for _, key in enqueued[1:]) == [("ns", "j"), ("ns", "k")]


async def test_a_job_enqueues_itself_and_its_deletion_too(registry, enqueued, stores):
    await send(registry, JOBS, "ADDED", body("j", kind="HeteroTPJob"))
    await send(registry, JOBS, "DELETED", body("j", 2, kind="HeteroTPJob"))
    assert enqueued == [(JOBS, ("ns", "j"))] * 2
    assert len(stores.jobs) == 0


async def test_only_objects_of_a_list_report_a_relist(registry, relisted):
    await send(registry, JOBS, "ADDED", body("j"))
    assert relisted == []
    await send(registry, JOBS, None, body("k"))
    assert relisted == [1]


async def test_events_are_counted_by_resource_and_type(registry, metrics):
    await send(registry, SERVICES, None, body("p"))
    await send(registry, SERVICES, "MODIFIED", body("p", 2))
    for kind in ("LISTED", "MODIFIED"):
        labels = {"resource": "services", "type": kind}
        assert metrics.registry.get_sample_value("heterotp_operator_watch_events_total", labels) == 1


def test_settings_of_kopf_write_nothing_to_objects():
    settings = kopf_settings(Settings())
    assert settings.posting.enabled is False
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert (settings.watching.server_timeout, settings.watching.client_timeout) == (300, 310)
    assert settings.queueing.idle_timeout == 0.2
    assert (settings.networking.request_timeout, settings.networking.enforce_retry_after) == (30, True)


def test_injections_that_are_switched_off_are_not_watched(stores, metrics):
    informers = Informers(stores, lambda kind, key: None)
    made = build_registry(informers, metrics, lambda: None, lambda: None, Settings(injections="off").injections)
    watched = {handler.id for handler in made._watching.get_all_handlers()}
    assert "take-stragglerinjections" not in watched and {"take-heterotpjobs", "take-services"} <= watched


@pytest.mark.parametrize("plural", ["services", "configmaps"])
def test_only_our_own_children_are_watched(plural):
    class Resource:
        group, version, kind, singular = "", "v1", "X", "x"
        shortcuts = categories = frozenset()
        preferred = True

        def __init__(self):
            self.plural = plural

    selectors = kopf_settings(Settings()).watching.label_selectors.collect(Resource())
    assert selectors == ["app.kubernetes.io/managed-by=heterotp-operator"]


def test_storages_of_kopf_write_nothing():
    persistence = kopf_settings(Settings()).persistence
    assert persistence.diffbase_storage.build(body={}, extra_fields=None) == {}
    assert persistence.diffbase_storage.fetch(body={}) is None
    assert persistence.progress_storage.fetch(key="x", body={}) is None
    patch = {}
    persistence.progress_storage.store(key="x", record={}, body={}, patch=patch)
    persistence.diffbase_storage.store(body={}, patch=patch, essence={})
    persistence.progress_storage.touch(body={}, patch=patch, value="x")
    persistence.progress_storage.purge(key="x", body={}, patch=patch)
    assert patch == {}
