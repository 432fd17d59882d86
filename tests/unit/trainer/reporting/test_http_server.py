"""The server of a rank, over real HTTP."""

import http.client
import json
import socket
import urllib.error
import urllib.request

import pytest
from heterotp_api.names import LEASE_HEADER
from heterotp_api.trainer_news import PLACE_HEADER
from heterotp_api.trainer_status import TrainerStatus
from heterotp_trainer.reporting.http_server import StatusServer

STATUS = TrainerStatus(job="j", attempt=1, state="running", started_at=1.0, epoch=2, iteration=7)


@pytest.fixture
def port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_server_serves_and_stops(port):
    server = StatusServer(port, lambda: STATUS, lambda accept: (b"m 1\n", "text/x-metrics"), host="127.0.0.1")
    server.start()
    assert fetch(port, "/status") == ("application/json; charset=utf-8", STATUS.model_dump_json(by_alias=True))
    assert fetch(port, "/metrics") == ("text/x-metrics", "m 1\n")
    assert fetch(port, "/healthz")[1] == "ok\n"
    server.stop()
    with pytest.raises(urllib.error.URLError):
        fetch(port, "/healthz")


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = StatusServer(port, lambda: STATUS, lambda accept: (b"", "text/plain"), host="127.0.0.1")
        with pytest.raises(ValueError, match=rf"metrics.port: {port}: cannot listen"):
            server.start()
        server._thread.join(10)
        server.stop()  # what a failing rank does next


def test_headers_of_a_poll_are_handed_on_and_answered(port):
    polls = []
    nothing = b"", "text/plain"

    def polled(headers):
        polls.append(headers.get(LEASE_HEADER))
        return {"X-More": "1"}

    server = StatusServer(port, lambda: STATUS, lambda accept: nothing, polled, host="127.0.0.1")
    server.start()
    fetch(port, "/status")
    fetch(port, "/metrics")
    poll = urllib.request.Request(f"http://127.0.0.1:{port}/status", headers={LEASE_HEADER: "operator-1"})
    with urllib.request.urlopen(poll, timeout=30) as answer:
        assert answer.headers["X-More"] == "1"
    server.stop()
    assert polls == [None, "operator-1"]


def polled(port, token=None):
    """Poll as an operator does; return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    condition = {"If-None-Match": token} if token else {}
    connection.request("GET", "/status", headers={LEASE_HEADER: "operator-1", **condition})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def test_a_poll_that_names_its_document_gets_no_body_while_there_is_no_news(port):
    now = [STATUS]
    server = StatusServer(port, lambda: now[0], None, lambda headers: {"X-More": "1"}, host="127.0.0.1")
    server.start()
    _, headers, body = polled(port)
    assert json.loads(body)["iteration"] == 7
    now[0] = STATUS.model_copy(update={"iteration": 8, "loss": 2.0})
    status, unchanged, nothing = polled(port, headers["ETag"])
    assert (status, nothing, unchanged[PLACE_HEADER], unchanged["X-More"]) == (304, b"", "2.8", "1")
    assert unchanged["ETag"] == headers["ETag"]
    now[0] = STATUS.model_copy(update={"state": "stopping"})
    status, newer, body = polled(port, headers["ETag"])
    assert (status, json.loads(body)["state"], newer["ETag"] != headers["ETag"]) == (200, "stopping", True)
    assert polled(port, 'W/"unknown"')[0] == 200
    assert json.loads(fetch(port, "/status")[1])["state"] == "stopping", "who is no operator gets it whole"
    server.stop()
