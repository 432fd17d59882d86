"""Settings of the operator process, read from environment variables."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from uuid import uuid4

from heterotp_api.load import first_error
from pydantic import ValidationError

from heterotp_operator.reconcile.network_peers import NetworkPeers

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
SWITCH = ("on", "off")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Settings:
    """One field per environment variable HETEROTP_<FIELD>; durations in seconds.

    namespaces: watch these only (comma-separated); none means the whole cluster.
    lease_namespace: where the Lease is; the pod's own namespace unless given.
    api_requests_per_second: bound of the operator's own calls, a burst of twice as many is let through.
    key_secret_name: the Secret in lease_namespace that holds the operator's own key; it is made where there is none.
    network_peers: who may connect to ranks, as JSON; none: the operator neither makes nor reads NetworkPolicies.
    kueue: "on": jobs may wait for the admission of a Workload of Kueue; "off": Workloads are neither made nor read.
    injections: "off": StragglerInjections are neither listed nor watched, and act nowhere.
    injection_lease_seconds: injections are dropped when no poll has reached rank 0 for so long.
    identity: the name of this process in the Lease; unique per process unless given. A pod that is restarted under the
      same name takes its own Lease over at once.
    trainer_image: the image where a template's container gives none.
    metrics_tls_directory: tls.crt and tls.key by which metrics and probes are served; none means plain HTTP.
    """

    namespaces: tuple[str, ...] = ()
    trainer_image: str = "heterotp/trainer:latest"
    workers: int = 24
    metrics_host: str = "0.0.0.0"
    metrics_port: int = 8080
    metrics_tls_directory: str = ""
    lease_name: str = "heterotp-operator"
    lease_namespace: str = "default"
    key_secret_name: str = "heterotp-operator-key"
    lease_seconds: float = 15.0
    lease_renew_deadline_seconds: float = 10.0
    lease_retry_seconds: float = 2.0
    resync_seconds: float = 300.0
    relist_resync_seconds: float = 5.0
    poll_seconds: float = 5.0
    poll_timeout_seconds: float = 3.0
    poll_workers: int = 32
    network_peers: NetworkPeers | None = None
    kueue: str = "off"
    injections: str = "on"
    injection_lease_seconds: float = 60.0
    api_requests_per_second: float = 200.0
    api_timeout_seconds: float = 30.0
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{uuid4().hex[:8]}")
    log_level: str = "INFO"

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self) if isinstance(f.default, int | float)):
            if getattr(self, name) <= 0:
                raise ValueError(f"{_variable(name)}: {getattr(self, name)} is not greater than 0")
        if self.log_level not in LEVELS:
            raise ValueError(f"HETEROTP_LOG_LEVEL: {self.log_level!r} is none of {', '.join(LEVELS)}")
        for name in ("injections", "kueue"):
            if getattr(self, name) not in SWITCH:
                raise ValueError(f"{_variable(name)}: {getattr(self, name)!r} is none of {', '.join(SWITCH)}")
        if self.injection_lease_seconds < 3 * self.poll_seconds:
            raise ValueError(
                f"HETEROTP_INJECTION_LEASE_SECONDS: {self.injection_lease_seconds} is less than three polls "
                f"(HETEROTP_POLL_SECONDS {self.poll_seconds}): injections would come and go"
            )
        if not self.lease_retry_seconds < self.lease_renew_deadline_seconds < self.lease_seconds:
            raise ValueError(
                "HETEROTP_LEASE_RETRY_SECONDS < HETEROTP_LEASE_RENEW_DEADLINE_SECONDS < HETEROTP_LEASE_SECONDS "
                f"does not hold: {self.lease_retry_seconds}, {self.lease_renew_deadline_seconds}, {self.lease_seconds}"
            )


def _variable(name: str) -> str:
    return f"HETEROTP_{name.upper()}"


def _parse(name: str, default: object, text: str) -> object:
    if name == "namespaces":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if name == "network_peers":
        return _peers(text)
    try:
        return type(default)(text) if isinstance(default, int | float) else text
    except ValueError:
        wanted = "a whole number" if isinstance(default, int) else "a number"
        raise ValueError(f"{_variable(name)}: {text!r} is not {wanted}") from None


def _peers(text: str) -> NetworkPeers:
    try:
        return NetworkPeers.model_validate_json(text)
    except ValidationError as error:
        field, value, message = first_error(error, NetworkPeers)
        where = f"{_variable('network_peers')}:" + (f" {field}:" if field else "")
        raise ValueError(f"{where} {'' if value is None else f'{value!r:.80} '}{message}") from None


def own_namespace() -> str:
    """Return the namespace of the pod this runs in, "default" outside of a cluster."""
    path = SERVICE_ACCOUNT / "namespace"
    return path.read_text().strip() if path.is_file() else "default"


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings that the environment gives; an empty variable means the default.

    Raises ValueError naming the variable and its value.
    """
    given = {
        f.name: _parse(f.name, f.default, environ[_variable(f.name)])
        for f in fields(Settings)
        if environ.get(_variable(f.name))
    }
    return Settings(**{"lease_namespace": own_namespace(), **given})  # type: ignore[arg-type]
