"""Credentials: one source (kubeconfig or the pod's service account) for our client and for kopf's watches."""

import os
import time
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aiohttp
import kopf
from kubernetes.aio import client, config

from heterotp_operator.bounded_lists import BoundedLists
from heterotp_operator.metrics import Metrics

CONNECTIONS = 1024  # more than all workers use at once: a call for the Lease must not wait for one
EXPIRES = timedelta(minutes=10)  # a projected token is replaced on disk long before it ends


async def client_configuration() -> client.Configuration:
    """Return the client's configuration: KUBECONFIG if set, else the service account, else ~/.kube/config."""
    configuration = client.Configuration()
    if "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    # without a proxy to look for, every call would look into ~/.netrc, in a thread
    configuration.client_session_kwargs = {"trust_env": bool(urllib.request.getproxies())}
    configuration.connection_pool_maxsize = CONNECTIONS
    return configuration


def connection(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """Return the same credentials in kopf's form, to be asked for again after ten minutes."""
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token.strip() or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        expiration=datetime.now(UTC) + EXPIRES,
    )


@dataclass
class WatchTrace:
    """Counts the watches that are opened and remembers when, by a clock that never jumps: kopf has no hook for it."""

    metrics: Metrics
    opened: dict[str, float]

    def config(self) -> aiohttp.TraceConfig:
        """Return the trace for an HTTP session."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._started)
        return trace

    async def _started(self, _session: object, _context: object, params: aiohttp.TraceRequestStartParams) -> None:
        if params.url.query.get("watch") == "true":
            self.note(params.url.path.rpartition("/")[2])

    def note(self, resource: str) -> None:
        """Note that the watch of a resource, by its plural, is opened now."""
        self.metrics.watch_reconnects.labels(resource).inc(resource in self.opened)
        self.opened[resource] = time.monotonic()


def session(configuration: client.Configuration, trace: WatchTrace) -> kopf.AiohttpSession:
    """Return kopf's session with the trace in it, and with lists in bounded pages."""
    info = connection(configuration)
    connector = aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context())
    http = aiohttp.ClientSession(
        connector=connector,
        headers=info.as_http_headers(),
        trace_configs=[trace.config()],
        middlewares=[BoundedLists()],
        proxy=configuration.proxy,
    )
    return kopf.AiohttpSession(server=info.server, aiohttp_session=http, expiration=info.expiration)
