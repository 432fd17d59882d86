"""The server of a page: whom it answers, what its buttons write, what it refuses. A real server on a real socket."""

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from heterotp_cli.errors import Failed
from heterotp_cli.run_lock import lock
from heterotp_cli.ui import server as page_server
from heterotp_cli.ui.local_feed import LocalFeed
from heterotp_cli.ui.serve import listen
from heterotp_cli.ui.server import MOST_BODY, PageServer, refusal
from heterotp_cli.verbs.local import open_run
from heterotp_cli.workdir import write_json
from support.patience import PATIENCE_SECONDS
from support.played_run import MANIFEST_INJECTION, Run, append_history, history_entry

TOKEN = "secret-token"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr("heterotp_cli.verbs.target.WAIT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def run(tmp_path):
    """A live run."""
    place = tmp_path / "demo"
    place.mkdir()
    with lock(place):
        run = Run(place)
        append_history(place, *(history_entry(i) for i in range(1, 4)))
        yield run


@asynccontextmanager
async def served(run, every=0.05):
    """Serve the page of a run; give its server, and a function that sends a request."""
    server = PageServer(LocalFeed(open_run(str(run.place))), TOKEN, every)
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    with listen(0) as listening:
        await web.SockSite(runner, listening).start()
        root = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with ClientSession() as session:

            async def ask(path, method="GET", **settings):
                async with session.request(method, f"{root}{path}", **settings) as answer:
                    return answer.status, answer.headers, await answer.text()

            try:
                yield server, ask
            finally:
                await runner.cleanup()


async def post(ask, name, body, **settings):
    status, _, text = await ask(f"/{TOKEN}/{name}", "POST", json=body, **settings)
    return status, json.loads(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80", "localhost:9", "LOCALHOST", "[::1]:9"])
def test_names_of_this_machine_are_answered(host):
    assert refusal(host, None, f"/{TOKEN}/", TOKEN) == ""
    assert refusal(host, f"http://{host}", f"/{TOKEN}/data", TOKEN) == ""


@pytest.mark.parametrize(
    ("host", "origin", "path"),
    [
        ("evil.example", None, f"/{TOKEN}/"),
        ("127.0.0.1.evil.example:80", None, f"/{TOKEN}/"),
        ("localhost@evil.example", None, f"/{TOKEN}/"),
        ("192.168.0.1", None, f"/{TOKEN}/"),
        ("", None, f"/{TOKEN}/"),
        ("[::1", None, f"/{TOKEN}/"),
        ("127.0.0.1", "http://evil.example", f"/{TOKEN}/"),
        ("127.0.0.1:8000", "http://127.0.0.1:9000", f"/{TOKEN}/"),
        ("127.0.0.1", "null", f"/{TOKEN}/"),
        ("127.0.0.1", None, "/"),
        ("127.0.0.1", None, "/wrong/"),
        ("127.0.0.1", None, f"/{TOKEN}x/"),
        ("127.0.0.1", None, f"//{TOKEN}/"),
        ("127.0.0.1", None, "/\udcff/"),
        ("127.0.0.1", None, ""),
    ],
)
def test_others_are_refused(host, origin, path):
    assert refusal(host, origin, path, TOKEN)


def test_only_the_loopback_address_listens():
    with listen(0) as listening:
        assert listening.family == socket.AF_INET and listening.getsockname()[0] == "127.0.0.1"


async def test_the_page_is_for_whoever_has_the_address(run):
    async with served(run) as (_, ask):
        status, headers, text = await ask(f"/{TOKEN}/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert (headers["Cache-Control"], headers["X-Frame-Options"]) == ("no-store", "DENY")
        assert "connect-src 'self'" in text and "http-equiv" in text
        assert "Access-Control-Allow-Origin" not in headers
        assert (await ask(f"/{TOKEN}"))[::2] == (200, text)  # typed without the last slash
        for path in ("/", "/wrong/", "/wrong/data", f"/{TOKEN[:-1]}/", "/favicon.ico"):
            status, headers, text = await ask(path)
            assert (status, headers["Cache-Control"]) == (403, "no-store"), path
            assert TOKEN not in text
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            assert (await ask(f"/{TOKEN}/data", headers=headers))[0] == 403
            assert (await ask(f"/{TOKEN}/policy", "POST", json={"default": True}, headers=headers))[0] == 403
        assert run.control.generation == 1


@pytest.mark.parametrize(
    "path",
    ["control.json", "../control.json", "%2e%2e/control.json", "..%2fcontrol.json", "data/../../etc/passwd", "x"],
)
async def test_nothing_else_is_served(run, path):
    async with served(run) as (_, ask):
        status, _, text = await ask(f"/{TOKEN}/{path}")
        assert status in (403, 404)
        assert "generation" not in text and "root:" not in text


async def test_the_data_is_what_a_browser_lacks(run):
    async with served(run) as (_, ask):
        _, _, text = await ask(f"/{TOKEN}/data?columns=nonsense")
        found = json.loads(text)
        assert found["iteration"] == [1, 2, 3]
        append_history(run.place, history_entry(4))
        live = found["live"]
        query = f"key={live['key']}&columns=3&decided={live['decided']}&mark={live['mark']}"
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while (answer := await ask(f"/{TOKEN}/data?{query}"))[0] == 204 or json.loads(answer[2])["iteration"] == [3]:
            assert asyncio.get_running_loop().time() < deadline
        news = json.loads(answer[2])
        assert (news["live"]["first"], news["iteration"], news["decisions"]) == (2, [3, 4], None)


async def test_many_pages_look_at_the_run_once(run, monkeypatch):
    async with served(run, every=3600) as (server, ask):
        looks = []
        look = server._feed.look
        monkeypatch.setattr(server._feed, "look", lambda: looks.append(1) or look())
        await asyncio.gather(*(ask(f"/{TOKEN}/data") for _ in range(20)))
        assert len(looks) == 1


async def test_what_is_sent_is_not_changed_meanwhile(run, monkeypatch):
    async with served(run, every=0) as (server, ask):
        looks, asked, go = [], [], threading.Event()
        look, make = server._feed.look, page_server.document
        monkeypatch.setattr(server._feed, "look", lambda: looks.append(1) or look())
        monkeypatch.setattr(page_server, "refusal", lambda *given: asked.append(1) or "")
        monkeypatch.setattr(page_server, "document", lambda *given: go.wait(PATIENCE_SECONDS) and make(*given))
        both = [asyncio.create_task(ask(f"/{TOKEN}/data")) for _ in range(2)]
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while len(asked) < 2 or not looks:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        assert len(looks) == 1  # the second look waits until the first document is made
        go.set()
        assert [status for status, *_ in await asyncio.gather(*both)] == [200, 200]
        assert len(looks) == 2


async def test_a_job_that_cannot_be_read_keeps_its_last_picture(run, monkeypatch):
    async with served(run, every=0) as (server, ask):

        def fails():
            raise Failed("the API server does not answer")

        look = server._feed.look
        monkeypatch.setattr(server._feed, "look", fails)
        assert (await ask(f"/{TOKEN}/data"))[0] == 503
        monkeypatch.setattr(server._feed, "look", look)
        await ask(f"/{TOKEN}/data")
        monkeypatch.setattr(server._feed, "look", fails)
        found = json.loads((await ask(f"/{TOKEN}/data"))[2])
        assert found["iteration"] == [1, 2, 3]
        assert found["live"]["note"] == "not up to date: the API server does not answer"


# -- buttons --------------------------------------------------------------------------------------------------


async def test_buttons_write_the_control_document_and_wait_until_it_is_in_force(run):
    with run.obeying():
        async with served(run) as (_, ask):
            status, told = await post(ask, "policy", {"strategy": "SEMI", "maxPrunedShare": 0.25})
            assert (status, told["verdict"]) == (200, "in force")
            assert (run.control.balancing.strategy, run.control.balancing.max_pruned_share) == ("SEMI", 0.25)
            status, told = await post(ask, "injection", {"rank": 2, "slowdown": 3, "seconds": 60})
            assert (status, told["verdict"]) == (200, "in force")
            assert run.injections["inject/demo-rank-2/3"] == ([2], 3)
            assert run.control.injections[-1].stop.seconds == 60
            status, told = await post(ask, "injection", {"rank": 2, "stop": True})
            assert (status, list(run.injections)) == (200, [MANIFEST_INJECTION["uid"]])
            await post(ask, "policy", {"default": True})
            assert run.control.balancing.strategy == "AUTO"


@pytest.mark.parametrize(
    ("name", "body", "named"),
    [
        ("policy", {"strategy": "FASTEST"}, "FASTEST"),
        ("policy", {"strategy": "SEMI", "maxPrunedShare": 7}, "--max-pruned-share"),
        ("policy", {"strategy": ["SEMI"]}, "strategy"),
        ("policy", {}, "strategy: is required"),
        ("policy", {"strategy": "SEMI", "command": "x"}, "command"),
        ("injection", {"slowdown": 2}, "rank: is required"),
        ("injection", {"rank": 9, "slowdown": 2}, "--rank"),
        ("injection", {"rank": -1, "slowdown": 2}, "--rank"),
        ("injection", {"rank": 2}, "--chi"),
        ("injection", {"rank": 2, "slowdown": 0.5}, "--chi"),
        ("injection", {"rank": 2, "slowdown": 2, "seconds": 0}, "seconds"),
        ("injection", {"rank": "2", "slowdown": 2}, "rank: '2'"),
        ("injection", {"rank": 2, "stop": True}, "nothing to take back"),
    ],
)
async def test_what_a_job_cannot_have_is_refused_with_its_name(run, name, body, named):
    async with served(run) as (_, ask):
        status, told = await post(ask, name, body)
    assert (status, told["verdict"], "\n" in told["message"]) == (409, "refused", False)
    assert named in told["message"]
    assert run.control.generation == 1


async def test_a_refusal_of_the_ranks_is_told_and_spoils_no_later_change(run):
    before = run.control
    with run.obeying(refuse="window: 5 is too much"):
        async with served(run) as (_, ask):
            _, told = await post(ask, "policy", {"strategy": "SEMI"})
    assert told["verdict"] == "refused"
    assert "window: 5 is too much; what was in force before is back" in told["message"]
    assert run.control == before.model_copy(update={"generation": before.generation + 2})


async def test_a_run_that_is_over_is_not_changed(tmp_path):
    run = Run(tmp_path)
    write_json(tmp_path / "report.json", {"job": "demo", "state": "succeeded"})
    async with served(run) as (_, ask):
        for name, body in (("policy", {"strategy": "SEMI"}), ("injection", {"rank": 1, "slowdown": 2})):
            status, told = await post(ask, name, body)
            assert status == 409
            assert "no run is alive there (succeeded)" in told["message"]
    assert run.control.generation == 1


async def test_requests_that_are_no_small_json_objects_are_refused(run):
    async with served(run) as (_, ask):
        at, form = f"/{TOKEN}/policy", {"Content-Type": "application/x-www-form-urlencoded"}
        json_type = {"Content-Type": "application/json"}
        assert (await ask(at, "POST", data='{"default": true}', headers=form))[0] == 415
        for text in ("", "{", "[]", "null", "[" * 10_000):
            assert (await ask(at, "POST", data=text, headers=json_type))[0] == 400, text[:5]
        assert (await ask(at, "POST", data="1" * (MOST_BODY + 1), headers=json_type))[0] == 413
        assert (await ask(at, "PUT", json={"default": True}))[0] == 405
        assert (await ask(at))[0] == 405
    assert run.control.generation == 1


async def test_one_change_at_a_time(run):
    async with served(run) as (_, ask):
        first = asyncio.create_task(post(ask, "policy", {"strategy": "SEMI"}))
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while run.control.generation == 1:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        status, told = await post(ask, "policy", {"strategy": "ZERO"})
        assert (status, told["verdict"]) == (409, "refused")
        with run.obeying():
            assert (await first)[1]["verdict"] == "in force"
    assert run.control.balancing.strategy == "SEMI"


async def test_an_open_page_sees_the_end_before_the_server_stops(run, monkeypatch):
    monkeypatch.setattr("heterotp_cli.ui.server.LINGER_SECONDS", 10 * PATIENCE_SECONDS)
    async with served(run) as (server, ask), asyncio.timeout(PATIENCE_SECONDS):
        await ask(f"/{TOKEN}/data")
        ending = asyncio.create_task(server.let_it_end())
        await asyncio.sleep(0)
        assert not ending.done()
        write_json(
            run.place / "status.json", {**json.loads((run.place / "status.json").read_text()), "state": "succeeded"}
        )
        while not ending.done():
            seen = json.loads((await ask(f"/{TOKEN}/data"))[2])
        assert seen["state"] == "succeeded"
    async with served(run) as (server, _), asyncio.timeout(PATIENCE_SECONDS):
        await server.let_it_end()  # nobody looks: nothing to wait for
