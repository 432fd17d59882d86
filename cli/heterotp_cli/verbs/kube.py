"""The API server; every error is one line."""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import urllib3
import yaml
from heterotp_api.names import API_VERSION, GROUP, VERSION
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException, OpenApiException
from kubernetes.config.config_exception import ConfigException

from heterotp_cli.errors import BadInput, Failed

Body = dict[str, Any]
JOBS, INJECTIONS = "heterotpjobs", "stragglerinjections"
TIMEOUTS = (5, 30)  # seconds to connect, to answer
JSON_PATCH = "application/json-patch+json"
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Missing(Exception):
    """The API server has the kind, but not the object."""


def failure(status: int | None, text: str, server: str) -> Exception:
    """Return the exception for an API server's refusal. Pure."""
    try:
        status_object = json.loads(text)
    except ValueError:
        status_object = None
    message = (
        " ".join(str(status_object.get("message") or text).split())
        if isinstance(status_object, dict)
        else " ".join(text.split())
    )
    if status == 404 and not (isinstance(status_object, dict) and (status_object.get("details") or {}).get("name")):
        return Failed(f"HeteroTP is not installed in this cluster: {server} has no kinds of {API_VERSION}")
    if status == 404:
        return Missing(message)
    if status == 401:
        return Failed(f"{server} refuses the credentials of the kubeconfig: {message or 'Unauthorized'}")
    if status in (400, 422):
        return BadInput(message)
    return Failed(f"{server}: {message or f'answered {status}'}")


def unreachable(error: Exception, server: str) -> Failed:
    """Return the error for a server that does not answer, without the Python objects that urllib3 names. Pure."""
    reason = getattr(error, "reason", None) or error
    cause = re.sub(r"^(<[^>]*>|\w+\([^)]*\)): ", "", " ".join(str(reason).split()))
    return Failed(f"the API server {server} does not answer: {cause}")


class _Kept(logging.Handler):
    """Keeps the client's last warning, e.g. of a failed credential plugin, which it logs but does not raise."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.last = " ".join(record.getMessage().split())


class Kube:
    """Custom objects of one cluster; `namespace` is the default one."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        self._log = _Kept()
        logging.getLogger().addHandler(self._log)
        urllib3.disable_warnings(
            urllib3.exceptions.InsecureRequestWarning
        )  # where the kubeconfig switches verification off
        settings = client.Configuration()
        found = _configured(settings, kubeconfig, context)
        settings.retries = cast(Any, False)  # each retry would log a line; `top -w` repeats by itself
        self.server, self.namespace = settings.host, namespace or found
        self._api = client.CustomObjectsApi(client.ApiClient(settings))

    def get(self, plural: str, namespace: str, name: str) -> Body | None:
        """Return an object, None where there is none."""
        try:
            with self._translated():
                return _body(self._api.get_namespaced_custom_object(*_at(namespace, plural), name, **_common()))
        except Missing:
            return None

    def all(self, plural: str, namespace: str | None, selector: str = "") -> list[Body]:
        """Return the objects of a namespace, or of all."""
        more = {"label_selector": selector, **_common()}
        with self._translated():
            if namespace is None:
                found = self._api.list_cluster_custom_object(GROUP, VERSION, plural, **more)
            else:
                found = self._api.list_namespaced_custom_object(*_at(namespace, plural), **more)
        return cast(list[Body], _body(found)["items"])

    def create(self, plural: str, namespace: str, body: Body) -> Body:
        """Create an object."""
        with self._translated():
            at = _at(namespace, plural)
            return _body(self._api.create_namespaced_custom_object(*at, body, field_validation="Strict", **_common()))

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object, if it exists."""
        try:
            with self._translated():
                self._api.delete_namespaced_custom_object(*_at(namespace, plural), name, **_common())
        except Missing:
            return

    def patch(self, plural: str, namespace: str, name: str, patch: list[Body]) -> Body:
        """Apply a JSON patch."""
        with self._translated():
            more = {"field_validation": "Strict", "_content_type": JSON_PATCH, **_common()}
            return _body(self._api.patch_namespaced_custom_object(*_at(namespace, plural), name, patch, **more))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ApiException as error:
            body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
            if not error.status:  # TLS, wrapped by the client
                raise unreachable(Exception(error.reason), self.server) from None
            text = body or error.reason or ""
            if error.status == 401:
                text = self._log.last or text
            raise failure(error.status, text, self.server) from None
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(error, self.server) from None
        except (OpenApiException, ValueError) as error:
            raise Failed(" ".join(str(error).split())) from None


def _configured(settings: client.Configuration, kubeconfig: str | None, context: str | None) -> str:
    """Set server and credentials as kubectl finds them; return the namespace of the context."""
    try:
        if kubeconfig is None and context is None and _in_a_pod():
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            return POD_NAMESPACE.read_text(encoding="utf-8").strip()
        config.load_kube_config(kubeconfig, context, settings, persist_config=False)  # type: ignore[no-untyped-call]
        contexts, active = config.list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, yaml.YAMLError, TypeError, AttributeError) as error:
        raise BadInput(f"{_where(kubeconfig, context)}: {' '.join(str(error).split())}") from None
    chosen = next((each for each in contexts if each["name"] == context), active)
    return str((chosen.get("context") or {}).get("namespace") or "default")


def _in_a_pod() -> bool:
    """Return whether the only credentials are those of the pod's service account."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ or "KUBECONFIG" in os.environ:
        return False
    return not Path(config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser().exists()


def _where(kubeconfig: str | None, context: str | None) -> str:
    if kubeconfig is not None:
        return f"--kubeconfig: '{kubeconfig}'"
    return f"--context: '{context}'" if context is not None else "kubeconfig"


def _at(namespace: str, plural: str) -> tuple[str, str, str, str]:
    return GROUP, VERSION, namespace, plural


def _common() -> Body:
    return {"_request_timeout": TIMEOUTS}


def _body(found: object) -> Body:
    return cast(Body, found)
