"""The server of a rank, over real HTTP."""

import socket
import urllib.error
import urllib.request

import pytest
from heterotp_api.names import LEASE_HEADER
from heterotp_trainer.reporting.http_server import StatusServer


@pytest.fixture
def port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_server_serves_and_stops(port):
    server = StatusServer(port, lambda: '{"a": 1}', lambda accept: (b"m 1\n", "text/x-metrics"), host="127.0.0.1")
    server.start()
    assert fetch(port, "/status") == ("application/json; charset=utf-8", '{"a": 1}')
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
        server = StatusServer(port, lambda: "", lambda accept: (b"", "text/plain"), host="127.0.0.1")
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

    server = StatusServer(port, lambda: "{}", lambda accept: nothing, polled, host="127.0.0.1")
    server.start()
    fetch(port, "/status")
    fetch(port, "/metrics")
    poll = urllib.request.Request(f"http://127.0.0.1:{port}/status", headers={LEASE_HEADER: "operator-1"})
    with urllib.request.urlopen(poll, timeout=30) as answer:
        assert answer.headers["X-More"] == "1"
    server.stop()
    assert polls == [None, "operator-1"]
