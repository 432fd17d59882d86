"""A reverse proxy between an operator and the API server that counts writes and strikes after a chosen one."""

import asyncio
import threading

import aiohttp
import yaml
from aiohttp import web

WRITES = ("POST", "PUT", "PATCH", "DELETE")
PASSED_ON = ("Authorization", "Content-Type", "Accept")


class Proxy:
    """Serves plain HTTP in a thread of its own; Lease writes are not counted."""

    def __init__(self, kube):
        self._kube = kube
        self.writes = []  # what was written: "METHOD path"
        self.fatal = None  # after the write of this number (from 1) ...
        self.strike = None  # ... this is called, before the writer gets its answer
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def arm(self, fatal, strike):
        """Count from zero and strike after the write of this number."""
        self.writes, self.fatal, self.strike = [], fatal, strike

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
        connector = aiohttp.TCPConnector(limit=0, ssl=self._kube._context)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
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
        for _ in range(10):  # closed transports let go of their sockets in the loop's next rounds
            await asyncio.sleep(0)

    async def _pass_on(self, request):
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        data = await request.read() or None
        url = self._kube.server + request.raw_path
        async with self._http.request(request.method, url, data=data, headers=headers) as answer:
            self._count(request)
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            try:
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except ConnectionError:  # the operator is gone
                return response
        return response

    def _count(self, request):
        if request.method not in WRITES or "/leases" in request.path:
            return
        self.writes.append(f"{request.method} {request.path}")
        if len(self.writes) == self.fatal:
            self.strike()
