"""The client of the API server: paths, paging, preconditions, errors and counting, against a small HTTP server."""

import asyncio
import json

import pytest
from aiohttp import web
from heterotp_operator.cluster import (
    EVENTS,
    JOBS,
    LEASES,
    PODS,
    ApiError,
    Conflict,
    NameTaken,
    NotFound,
    Refused,
    connect,
    error_of,
    resource_of,
    same_controller,
)
from heterotp_operator.page_size import FIRST
from kubernetes.aio import client


class Server:
    """Remembers requests and answers what the test has queued: (code, body)."""

    def __init__(self):
        self.requests, self.answers = [], []

    async def handle(self, request):
        text = await request.text()
        self.requests.append(
            (
                request.method,
                request.path,
                dict(request.query),
                json.loads(text) if text else None,
                request.content_type,
            )
        )
        code, body = self.answers.pop(0) if self.answers else (200, {})
        return web.json_response(body, status=code)


@pytest.fixture
async def server():
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
async def cluster(server, metrics):
    configuration = client.Configuration(host=f"http://127.0.0.1:{server.port}")
    cluster = await connect(configuration, metrics, rate=1000.0, timeout=5.0)
    yield cluster
    await cluster.close()


def pod(uid="owner", name="p", owner="j"):
    reference = {"kind": "HeteroTPJob", "name": owner, "uid": uid, "controller": True}
    metadata = {"namespace": "ns", "name": name, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


CONFLICT = 409, {"kind": "Status", "reason": "AlreadyExists", "message": 'pods "p" already exists'}


async def test_paths_of_core_and_group_resources():
    assert PODS.path("ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert JOBS.path(None) == "/apis/heterotp.io/v1alpha1/heterotpjobs"
    assert JOBS.path("ns", "j", "status") == "/apis/heterotp.io/v1alpha1/namespaces/ns/heterotpjobs/j/status"
    assert resource_of(pod()) == PODS


async def test_lists_are_read_in_pages(cluster, server):
    server.answers = [
        (200, {"metadata": {"resourceVersion": "9", "continue": "a=&b"}, "items": [1, 2]}),
        (200, {"metadata": {"resourceVersion": "9"}, "items": None}),
    ]
    assert [page async for page in cluster.pages(PODS, None, "x=y")] == [([1, 2], 9), ([], 9)]
    queries = [request[2] for request in server.requests]
    assert queries == [
        {"limit": str(FIRST), "labelSelector": "x=y"},
        {"limit": str(2 * FIRST), "labelSelector": "x=y", "continue": "a=&b"},
    ]


async def test_no_page_of_many_objects_is_longer_than_its_bound(cluster, server):
    """Ten valid objects of 1.5 MB would take 300 MiB if they were parsed at once."""

    def answer(count, more=""):
        items = [{"x": "x" * 1_500_000}] * count
        return 200, {"metadata": {"resourceVersion": "9"} | ({"continue": more} if more else {}), "items": items}

    server.answers = [answer(10), answer(5), answer(1, "1"), answer(1, "2"), (200, {"metadata": {}, "items": []})]
    assert [len(page) async for page, _ in cluster.pages(JOBS, None)] == [1, 1, 0]
    asked = [(request[2]["limit"], request[2].get("continue")) for request in server.requests]
    assert asked == [("25", None), ("5", None), ("1", None), ("1", "1"), ("1", "2")]


async def test_short_pages_grow_to_the_usual_length(cluster, server):
    server.answers = [(200, {"metadata": {"continue": "more"}, "items": []})] * 5 + [(200, {"metadata": {}})]
    assert len([page async for page in cluster.pages(PODS, None)]) == 6
    assert [request[2]["limit"] for request in server.requests] == ["25", "50", "100", "200", "250", "250"]


async def test_create_over_an_own_object_is_success(cluster, server):
    server.answers = [CONFLICT, (200, pod())]
    assert await cluster.create_owned(pod()) == pod()
    assert [request[0] for request in server.requests] == ["POST", "GET"]


async def test_create_over_a_foreign_object_is_a_conflict(cluster, server):
    server.answers = [CONFLICT, (200, pod(uid="another", owner="other"))]
    with pytest.raises(NameTaken, match="already exists and is not owned by this job"):
        await cluster.create_owned(pod())


async def test_create_over_an_object_of_an_earlier_job_of_the_name_is_tried_again(cluster, server):
    server.answers = [CONFLICT, (200, pod(uid="another"))]
    with pytest.raises(Conflict) as raised:
        await cluster.create_owned(pod())
    assert not isinstance(raised.value, NameTaken)


async def test_a_dry_run_sets_its_parameter(cluster, server):
    await cluster.create(pod(), dry_run=True)
    assert server.requests[0][2]["dryRun"] == "All"


async def test_apply_is_forced_and_has_its_own_manager(cluster, server):
    body = {**pod(), "apiVersion": JOBS.api_version, "kind": JOBS.kind}
    await cluster.apply(body, "heterotp-status", "status")
    method, path, query, sent, content_type = server.requests[0]
    assert (method, path) == ("PATCH", JOBS.path("ns", "p", "status"))
    assert query == {"fieldManager": "heterotp-status", "force": "true"}
    assert (sent, content_type) == (body, "application/apply-patch+yaml")


async def test_delete_names_the_uid_and_the_grace(cluster, server):
    await cluster.delete(PODS, "ns", "p", "uid-1", grace_seconds=0)
    _, path, _, sent, _ = server.requests[0]
    assert path == PODS.path("ns", "p")
    assert sent["preconditions"] == {"uid": "uid-1"}
    assert (sent["gracePeriodSeconds"], sent["propagationPolicy"]) == (0, "Background")


async def test_a_missing_object_counts_as_deleted(cluster, server):
    server.answers = [(404, {})]
    assert await cluster.delete(PODS, "ns", "p", "uid-1") is None


@pytest.mark.parametrize("guard", [{}, {"resourceVersion": "5"}], ids=["uid", "uid and version"])
async def test_a_refused_delete_does_not_count_as_deleted(cluster, server, guard):
    """The object may live: with its pods taken for gone, a second gang began beside the first."""
    server.answers = [(409, {})]
    with pytest.raises(Conflict):
        await cluster.delete(PODS, "ns", "p", "u", resource_version=guard.get("resourceVersion"))
    assert server.requests[0][3]["preconditions"] == {"uid": "u", **guard}


@pytest.mark.parametrize(
    ("code", "kind"), [(403, Refused), (422, Refused), (409, Conflict), (404, NotFound), (500, ApiError)]
)
async def test_errors_carry_the_servers_message_and_are_counted(cluster, server, metrics, code, kind):
    server.answers = [(code, {"reason": "R", "message": "because"})]
    with pytest.raises(kind) as error:
        await cluster.get(PODS, "ns", "p")
    assert type(error.value) is kind
    assert (error.value.code, error.value.reason, error.value.message) == (code, "R", "because")
    labels = {"verb": "get", "resource": "pods", "code": str(code)}
    assert metrics.registry.get_sample_value("heterotp_operator_api_requests_total", labels) == 1


async def test_a_request_without_an_answer_has_code_0(metrics):
    configuration = client.Configuration(host="http://127.0.0.1:1")
    cluster = await connect(configuration, metrics, rate=1000.0, timeout=2.0)
    with pytest.raises(ApiError) as error:
        await cluster.merge(EVENTS, "ns", "e", {"count": 2})
    assert error.value.code == 0
    labels = {"verb": "patch", "resource": "events", "code": "0"}
    assert metrics.registry.get_sample_value("heterotp_operator_api_requests_total", labels) == 1
    await cluster.close()


async def test_a_lease_waits_for_no_other_call(server, metrics):
    configuration = client.Configuration(host=f"http://127.0.0.1:{server.port}")
    cluster = await connect(configuration, metrics, rate=0.001, timeout=5.0)
    waiting = [asyncio.create_task(cluster.get(PODS, "ns", "p")) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await cluster.get(LEASES, "ns", "lease")
    assert [request[1] for request in server.requests] == [LEASES.path("ns", "lease")]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await cluster.close()


def test_objects_without_a_controller_have_no_owner():
    assert same_controller(pod(), pod())
    assert not same_controller({"metadata": {}}, pod())
    assert not same_controller({"metadata": {}}, {"metadata": {}})


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"message": "Invalid value: " + "x" * 1_000_000, "reason": "Invalid"}).encode(),
        json.dumps({"message": ["x" * 1_000_000], "reason": 7}).encode(),
        b"x" * 1_000_000,
    ],
    ids=["what it refuses is repeated", "no text", "no JSON"],
)
def test_an_error_keeps_no_megabyte(answer):
    error = error_of(422, answer)
    assert isinstance(error, Refused) and len(str(error)) < 5000
