"""Starts API servers without nodes (etcd, kube-apiserver, controller manager) and installs CRDs on them."""

import os
import re
import subprocess
from contextlib import closing, contextmanager
from pathlib import Path

from heterotp_api.crd import crds
from support.kube import Kube, KubeError, until
from support.places import ROOT, RUN

TOOLS = ROOT / "tools" / "cluster"
API_SERVER = re.compile(r"cp-it-(\d+)(-\w+)?$")


def remove_leftovers():
    """Remove the API servers of earlier test runs whose process has ended."""
    for left in RUN.glob("cp-it-*"):
        match = API_SERVER.search(left.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            subprocess.run([TOOLS / "cp-down.sh", left.name.removeprefix("cp-")], check=True)


@contextmanager
def api_server(guardian, suffix="", more=(), ours=True, without="kwok scheduler", **variables):
    """Yield the kubeconfig path of a new API server with our CRDs and more, removed also when this process is killed.

    without, variables: the programs that cp-up.sh leaves out, and more of its variables.
    Raises AssertionError when it does not start.
    """
    name = f"it-{os.getpid()}{suffix}"
    down = [str(TOOLS / "cp-down.sh"), name]
    guardian.at_end(down)
    path = _start(name, {"CP_WITHOUT": without, **variables})
    try:
        install_crds(path, [*(crds() if ours else ()), *more])
        yield path
    finally:
        subprocess.run(down, check=True)


def _start(name, variables):
    done = subprocess.run(
        [TOOLS / "cp-up.sh", name],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"no API server (make test builds it): {done.stderr}"
    return Path(done.stdout.strip())


def install_crds(kubeconfig, wanted):
    """Create the CRDs and wait until every version of every kind is served."""
    with closing(Kube(kubeconfig)) as kube:
        for crd in wanted:
            kube.create("customresourcedefinitions", None, crd)
        for crd in wanted:
            name = crd["metadata"]["name"]
            until(f"{name} is established", lambda name=name: established(kube, name))
            for path in collections_of(crd):
                until(f"{path} is served", lambda path=path: served(kube, path))


def collections_of(crd):
    """Return the paths of all objects of a CRD, one for each version that is served."""
    spec = crd["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in versions]


def served(kube, path):
    """Return whether a list request succeeds: shortly after a CRD is established it does not (404, 429)."""
    try:
        return kube.request("GET", path)
    except KubeError as error:
        if error.code not in (404, 429):
            raise
        return False


def established(kube, name):
    conditions = kube.get("customresourcedefinitions", None, name).get("status", {}).get("conditions")
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions or ())  # null at first
