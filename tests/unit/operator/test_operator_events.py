"""The event recorder counts equal events up and cannot be made to flood."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from heterotp_operator.cluster import ApiError, NotFound
from heterotp_operator.events import BURST, Recorder

JOB = {
    "apiVersion": "heterotp.io/v1alpha1",
    "kind": "HeteroTPJob",
    "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
}


@dataclass(frozen=True)
class Event:
    type: str = "Warning"
    reason: str = "RankFailed"
    message: str = "rank 1 exited with code 1"


class Client:
    def __init__(self):
        self.created, self.patched, self.error = [], [], None

    async def create(self, body):
        if self.error:
            raise self.error
        self.created.append(body)
        return body

    async def merge(self, resource, namespace, name, patch):
        if self.error:
            error, self.error = self.error, None
            raise error
        self.patched.append((name, patch["count"]))
        return {}


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def recorder(client, clock):
    return Recorder(client, "me", lambda: clock[0], lambda: datetime.fromtimestamp(clock[0], UTC))


async def test_the_first_event_is_created_and_the_next_raise_its_count(recorder, client):
    for _ in range(3):
        await recorder.record(JOB, Event())
    assert len(client.created) == 1
    body = client.created[0]
    assert body["involvedObject"]["uid"] == "u"
    assert (body["type"], body["reason"], body["count"]) == ("Warning", "RankFailed", 1)
    assert client.patched == [(body["metadata"]["name"], 2), (body["metadata"]["name"], 3)]


async def test_another_message_is_another_event(recorder, client):
    await recorder.record(JOB, Event())
    await recorder.record(JOB, Event(message="rank 2 exited with code 1"))
    assert len({body["metadata"]["name"] for body in client.created}) == 2


async def test_an_expired_event_is_created_again(recorder, client, clock):
    await recorder.record(JOB, Event())
    client.error = NotFound(404, "NotFound", "gone")
    clock[0] += 4000
    await recorder.record(JOB, Event())
    assert [body["count"] for body in client.created] == [1, 1]


async def test_events_of_an_object_are_limited_for_a_while(recorder, client, clock):
    for number in range(100):
        await recorder.record(JOB, Event(message=str(number)))
    assert len(client.created) == BURST
    clock[0] += 60
    for number in range(100, 200):
        await recorder.record(JOB, Event(message=str(number)))
    assert len(client.created) == BURST + 2


async def test_a_flood_of_one_object_does_not_silence_another(recorder, client):
    for number in range(100):
        await recorder.record(JOB, Event(message=str(number)))
    other = {**JOB, "metadata": {**JOB["metadata"], "uid": "v"}}
    await recorder.record(other, Event())
    assert client.created[-1]["involvedObject"]["uid"] == "v"


async def test_a_failed_event_write_raises_nothing_and_is_not_counted(recorder, client):
    client.error = ApiError(500, "InternalError", "no")
    await recorder.record(JOB, Event())
    client.error = None
    await recorder.record(JOB, Event())
    assert client.created[0]["count"] == 1


async def test_long_texts_are_cut(recorder, client):
    await recorder.record(JOB, Event(message="x" * 5000))
    assert len(client.created[0]["message"]) == 1024


async def test_of_a_long_message_only_what_is_written_is_kept(recorder, client):
    for end in "ab":
        await recorder.record(JOB, Event(message="x" * 1_000_000 + end))
    assert (len(client.created), len(client.patched)) == (1, 1), "they differ only where nothing is written"
    assert all(len(message) <= 1024 for _, _, message in recorder._counts)
