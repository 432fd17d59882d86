"""A reverse proxy between an operator and the API server: counts writes, strikes after one, breaks watches, refuses."""

import asyncio
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import aiohttp
import yaml
from aiohttp import web

WRITES = ("POST", "PUT", "PATCH", "DELETE")
PASSED_ON = ("Authorization", "Content-Type", "Accept")


@dataclass(frozen=True)
class Strike:
    """Something that happens in the middle of a request.

    moment: before the request reaches the API server, after the server answered and before the operator has the
    answer, or after that. In the first two cases the connection ends without an answer.
    """

    moment: Literal["before", "during", "after"]
    call: Callable[[], None] = lambda: None


class Proxy:
    """Serves plain HTTP in a thread of its own; Lease writes are not counted."""

    def __init__(self, kube):
        self._kube = kube
        self.writes = []  # what was written: "METHOD path"
        self.of = ""  # of the writes whose path has this in it
        self.fatal = None  # after the write of this number (from 1) ...
        self.strike = None  # ... this is called, before the writer gets its answer
        self.mute = set()  # plurals whose watch events get lost
        # (method, path) -> None, the HTTP code to answer with instead of asking the server, or a Strike
        self.fault = None
        self.delay = 0.0  # seconds that every write of a status takes longer
        self._watches = defaultdict(set)  # plural -> a future per open watch: what ends it
        self._sockets = []  # to the API server, all there ever were
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def arm(self, fatal, strike, of=""):
        """Count from zero and strike after the write of this number; of: count only paths with this in them."""
        self.writes, self.fatal, self.strike, self.of = [], fatal, strike, of

    def disarm(self):
        """Strike no more; return whether it did. A write that comes at this moment is either before or after."""
        return asyncio.run_coroutine_threadsafe(self._disarm(), self._loop).result(10)

    async def _disarm(self):
        struck = self.fatal is not None and len(self.writes) >= self.fatal
        self.fatal = None
        return struck

    def watched(self, plural):
        """Return whether anybody watches a resource now."""
        return bool(self._watches.get(plural))

    def end_watches(self, plural, code=None):
        """End all watches of a resource: by an ERROR event of this code, or by cutting the connection."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": f"fault {code}"}
        line = None if code is None else json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"

        def end():
            for watch in self._watches[plural]:
                if not watch.done():
                    watch.set_result(line)

        self._loop.call_soon_threadsafe(end)

    def kubeconfig(self, path):
        """Write a kubeconfig that leads through the proxy."""
        cluster = {"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        user = {"name": "admin", "user": {"token": self._kube.token}}
        context = {"name": "proxy", "context": {"cluster": "proxy", "user": "admin"}}
        document = {"apiVersion": "v1", "kind": "Config", "current-context": "proxy"}
        path.write_text(yaml.safe_dump({**document, "clusters": [cluster], "users": [user], "contexts": [context]}))
        return path

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self):
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self):
        self._stop = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._kube._context, socket_factory=self._new_socket)
        none = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=none, read_bufsize=1 << 24) as http:
            self._http = http
            app = web.Application(client_max_size=1 << 24)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()
            await connector.close(abort_ssl=True)
        async with asyncio.timeout(10):  # closed transports let go of their sockets in the loop's next rounds
            while any(one.fileno() >= 0 for one in self._sockets):
                await asyncio.sleep(0.01)

    def _new_socket(self, address):
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        self._sockets.append(made)
        return made

    async def _pass_on(self, request):
        fault = self.fault(request.method, request.raw_path) if self.fault else None
        strike = fault if isinstance(fault, Strike) else None
        if isinstance(fault, int):
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault, "message": "a fault"}
            return web.json_response(status, status=fault)
        if strike and strike.moment == "before":
            return _struck(request, strike)
        try:
            response = await self._asked(request, strike)
        except aiohttp.ClientError:  # the API server is gone
            return _cut(request)
        if strike and strike.moment == "after":
            await response.write_eof()
            strike.call()
        return response

    async def _asked(self, request, strike):
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        data = await request.read() or None
        if request.method in WRITES and request.path.endswith("/status"):
            await asyncio.sleep(self.delay)
        url = self._kube.server + request.raw_path
        async with self._http.request(request.method, url, data=data, headers=headers) as answer:
            self._count(request)
            if strike and strike.moment == "during":
                return _struck(request, strike)
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            try:
                await response.prepare(request)
                if request.query.get("watch") == "true":
                    await self._watch(request, answer, response)
                else:
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
            except ConnectionError:  # the operator is gone
                return response
            finally:
                connection = answer.connection
                if connection is not None and connection.transport is not None:
                    connection.transport.abort()  # unfinished, and closing politely takes its time
        return response

    async def _watch(self, request, answer, response):
        plural = request.path.rpartition("/")[2]
        end = self._loop.create_future()
        self._watches[plural].add(end)
        try:
            while not end.done():
                line = asyncio.ensure_future(answer.content.readline())
                try:
                    await asyncio.wait({line, end}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    line.cancel()
                if not end.done() and not line.result():
                    return
                if not end.done() and plural not in self.mute:
                    await response.write(line.result())
            if end.result() is None:
                request.transport.abort()
            else:
                await response.write(end.result())
        finally:
            self._watches[plural].discard(end)

    def _count(self, request):
        if request.method not in WRITES or "/leases" in request.path:
            return
        if self.of not in request.path:
            return
        self.writes.append(f"{request.method} {request.path}")
        if len(self.writes) == self.fatal:
            self.strike()


def _struck(request, strike):
    strike.call()
    return _cut(request)


def _cut(request):
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
