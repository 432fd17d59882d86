"""The watch of pods: events are taken in, a watch goes on where it ended, and what may be missing is listed again."""

import asyncio

import pytest
from heterotp_api import names
from heterotp_operator.cluster import JOBS, OWNED, PODS, ApiError
from heterotp_operator.informers import Informers
from heterotp_operator.login import WatchTrace
from heterotp_operator.pod_events import REOPEN_SECONDS, RETRY_SECONDS, PodEvents

LISTED = 100  # the resourceVersion of every list


class Over(Exception):
    """The test has seen enough."""


def pod(name, version=1, uid=None):
    metadata = {"namespace": "ns", "name": name, "uid": uid or name, "labels": {names.LABEL_JOB: "j"}}
    return {"metadata": {**metadata, "resourceVersion": str(version)}, "spec": {}, "status": {}}


def event(kind, body):
    return {"type": kind, "object": body}


def bookmark(version):
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def error(code):
    return event("ERROR", {"kind": "Status", "code": code, "reason": "Expired", "message": "too old"})


class Watches:
    """Answers one watch after the other by a list of events, or by raising an error."""

    def __init__(self, *answers):
        self.answers, self.asked, self.lists, self.pauses = list(answers), [], [], []

    async def watch(self, resource, namespace, version, selector):
        assert (resource, selector) == (PODS, OWNED)
        self.asked.append((namespace, version))
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        for each in answer:
            yield each

    async def list_pods(self, namespace):
        self.lists.append(namespace)
        return LISTED

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        if not self.answers:
            raise Over


@pytest.fixture
def opened():
    return {}


@pytest.fixture
def follow(stores, metrics, opened):
    """Run the watch over the answers until they are used up; return what it asked for and the keys enqueued."""

    def run(*answers, namespace=None):
        watches, keys = Watches(*answers), []
        informers = Informers(stores, lambda kind, key: keys.append((kind, key)))
        trace = WatchTrace(metrics, opened)
        events = PodEvents(watches, informers, watches.list_pods, metrics, trace, namespace, watches.sleep)
        with pytest.raises(Over):
            asyncio.run(events.run())
        return watches, keys

    return run


def test_pods_are_listed_once_and_their_events_enqueue_their_job(follow, stores):
    watches, keys = follow([event("ADDED", pod("a", 101)), event("MODIFIED", pod("a", 102))], [], namespace="ns")
    assert watches.lists == ["ns"]
    assert keys[0] == (JOBS, ("ns", "j"))
    assert stores.pods.get(("ns", "a"))["metadata"]["resourceVersion"] == "102"


def test_a_pod_that_is_deleted_leaves_the_store(follow, stores):
    _, keys = follow([event("ADDED", pod("a", 101)), event("DELETED", pod("a", 103))])
    assert stores.pods.get(("ns", "a")) is None
    assert keys == [(JOBS, ("ns", "j"))] * 2


def test_a_watch_that_ended_goes_on_after_the_last_event_or_bookmark(follow):
    watches, _ = follow([event("ADDED", pod("a", 101))], [bookmark(140)], [])
    assert [version for _, version in watches.asked] == [LISTED, 101, 140]
    assert watches.lists == [None]
    assert watches.pauses == [REOPEN_SECONDS] * 3


@pytest.mark.parametrize("gone", [[error(410)], ApiError(410, "Expired", "too old")], ids=["event", "answer"])
def test_events_that_are_not_kept_any_more_make_a_new_list(follow, gone):
    watches, _ = follow([event("ADDED", pod("a", 101))], gone, [])
    assert watches.lists == [None, None]
    assert [version for _, version in watches.asked] == [LISTED, 101, LISTED]


def test_an_error_is_tried_again_later_where_the_watch_ended(follow):
    watches, _ = follow([bookmark(120)], ApiError(0, "ClientConnectorError", ""), [error(500)], [])
    assert watches.lists == [None]
    assert [version for _, version in watches.asked] == [LISTED, 120, 120, 120]
    assert watches.pauses == [REOPEN_SECONDS, RETRY_SECONDS, RETRY_SECONDS, REOPEN_SECONDS]


def test_a_list_that_fails_is_tried_again(follow, monkeypatch):
    failures = [ApiError(500, "", "")]
    known = Watches.list_pods

    async def fails_once(self, namespace):
        if failures:
            raise failures.pop()
        return await known(self, namespace)

    monkeypatch.setattr(Watches, "list_pods", fails_once)
    watches, _ = follow([])
    assert watches.lists == [None] and watches.pauses == [RETRY_SECONDS, REOPEN_SECONDS]


def test_a_pod_that_cannot_be_taken_in_holds_up_no_other(follow, stores):
    odd = pod("odd", 101)
    odd["metadata"]["labels"] = 7
    follow([event("ADDED", odd), event("ADDED", pod("a", 102))])
    assert stores.pods.get(("ns", "a")) is not None


def test_events_and_reopened_watches_are_counted_and_the_last_opening_is_known(follow, metrics, opened):
    follow([event("ADDED", pod("a", 101)), bookmark(102)], [])
    value = metrics.registry.get_sample_value
    assert value("heterotp_operator_watch_events_total", {"resource": "pods", "type": "ADDED"}) == 1
    assert value("heterotp_operator_watch_events_total", {"resource": "pods", "type": "BOOKMARK"}) is None
    assert value("heterotp_operator_watch_reconnects_total", {"resource": "pods"}) == 1
    assert opened["pods"] > 0
