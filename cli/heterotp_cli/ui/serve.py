"""Runs the server of a page until it is stopped: Ctrl-C, or SIGTERM, upon which an open page first sees the end."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable

from aiohttp import web

from heterotp_cli.errors import BadInput
from heterotp_cli.ui.server import LOOPBACK, Feed, PageServer

TOKEN_BYTES = 24


def listen(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address; port 0: a free one. Raise BadInput for one in use."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        why = os.strerror(error.errno or 0)
        raise BadInput(f"--port: {port}: cannot listen: {why}: name another port, or none for a free one") from None
    return listening


def serve(feed: Feed, port: int, started: Callable[[str], None]) -> None:
    """Serve the page of a job until a signal ends it. started: is called with the page's address."""
    with listen(port) as listening:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/{token}/"
        asyncio.run(_run(feed, token, listening, lambda: started(address)))


async def _run(feed: Feed, token: str, listening: socket.socket, started: Callable[[], None]) -> None:
    server, stop = PageServer(feed, token), asyncio.Event()
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        started()
        await stop.wait()
        await server.let_it_end()
    finally:
        await runner.cleanup()
