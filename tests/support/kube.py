"""A small synchronous client of the API server for tests: dicts in, dicts out."""

import base64
import http.client
import json
import ssl
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import yaml
from support.patience import PATIENCE_SECONDS

GROUP = "/apis/heterotp.io/v1alpha1"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class KubeError(Exception):
    """An error status of the API server: its HTTP code and message."""

    def __init__(self, code, status):
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code, self.message = code, status.get("message", "")


def _refusal(text):
    """Return the Status object of an error; the answer of a proxied server may be of another form."""
    try:
        status = json.loads(text)
    except ValueError:
        status = None
    return status if isinstance(status, dict) else {"message": text.decode(errors="replace")}


def _tls(cluster, user):
    """Return the TLS context of a kubeconfig (files or embedded data); None without a certificate authority."""
    embedded = cluster.get("certificate-authority-data")
    if not embedded and "certificate-authority" not in cluster:
        return None
    data = base64.b64decode(embedded).decode() if embedded else None
    context = ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=data)
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as both:
            both.write(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
            both.flush()
            context.load_cert_chain(both.name)
    return context


class Kube:
    """A client with one connection, for one thread."""

    def __init__(self, kubeconfig):
        document = yaml.safe_load(Path(kubeconfig).read_text())
        cluster = document["clusters"][0]["cluster"]
        self.server = cluster["server"]
        user = document["users"][0]["user"]
        self.authority = cluster.get("certificate-authority")
        self.token = user.get("token", "")
        self._context = _tls(cluster, user)
        self._connection = None

    def _connect(self):
        host = urlsplit(self.server).netloc
        if self._context is None:
            return http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
        return http.client.HTTPSConnection(host, timeout=PATIENCE_SECONDS, context=self._context)

    def request(self, method, path, body=None, content_type="application/json"):
        """Return the object of the answer."""
        text = self.text(method, path, body, content_type)
        return json.loads(text) if text else {}

    def text(self, method, path, body=None, content_type="application/json"):
        """Return the body of the answer; raise KubeError for a status of 400 or more."""
        headers = {"Content-Type": content_type}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body)
        for last in (False, True):
            if self._connection is None:
                self._connection = self._connect()
            try:
                self._connection.request(method, path, data, headers)
                answer = self._connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, ConnectionError, ssl.SSLEOFError):
                self.close()  # the server closed an idle connection
                if last:
                    raise
        if answer.status >= 400:
            raise KubeError(answer.status, _refusal(text))
        return text

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # paths
    def path(self, plural, namespace=None, name=None, sub=None):
        prefix = {
            "heterotpjobs": GROUP,
            "balancingpolicies": GROUP,
            "stragglerinjections": GROUP,
            "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
            "workloads": KUEUE,
            "resourceflavors": KUEUE,
            "topologies": KUEUE,
            "clusterqueues": KUEUE,
            "localqueues": KUEUE,
            "workloadpriorityclasses": KUEUE,
            "leases": "/apis/coordination.k8s.io/v1",
            "networkpolicies": "/apis/networking.k8s.io/v1",
            "roles": "/apis/rbac.authorization.k8s.io/v1",
            "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
        }.get(plural, "/api/v1")
        parts = [prefix, *(["namespaces", namespace] if namespace else []), plural]
        return "/".join([*parts, *([quote(name)] if name else []), *([sub] if sub else [])])

    # verbs
    def get(self, plural, namespace, name):
        try:
            return self.request("GET", self.path(plural, namespace, name))
        except KubeError as error:
            if error.code == 404:
                return None
            raise

    def list(self, plural, namespace=None, selector=""):
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        return self.request("GET", self.path(plural, namespace) + query)["items"]

    def create(self, plural, namespace, body):
        return self.request("POST", self.path(plural, namespace), body)

    def patch(self, plural, namespace, name, body, sub=None, content_type=MERGE):
        return self.request("PATCH", self.path(plural, namespace, name, sub), body, content_type)

    def delete(self, plural, namespace, name, **options):
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return self.request("DELETE", self.path(plural, namespace, name), body)


def until(what, check, seconds=PATIENCE_SECONDS, every=0.05):
    """Return the first true value of check(), called every `every` seconds; fail with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(every)


def make_namespace(kube, name):
    kube.create("namespaces", None, {"metadata": {"name": name}})
    until(f"{name} has its service account", lambda: kube.get("serviceaccounts", name, "default"))
    return name
