"""What tests need besides Python: markers name it, and a missing program ends the test run before its first test.

A test has the marker of its folder (unit, distributed, integration, e2e, kueue, gangs) and those of its helpers.
"""

import os
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

from support.places import BIN, ROOT

HELPERS = {
    "support.rendered_chart": "helm",
    "support.promtool": "prometheus",
    "support.prometheus_server": "prometheus",
    "support.chromium": "browser",
}
BUILT = {
    "helm": ["helm"],
    "integration": ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"],
    "e2e": ["helm", "kubectl"],
    "kueue": ["helm", "kubectl"],
    "gangs": ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kwok"],
}
OWN = {  # built by a command of their own
    "gangs": ["coscheduling-scheduler", "coscheduling-controller", "volcano-scheduler", "volcano-controller"]
}
INSTALLED = {"prometheus": ["prometheus", "promtool"], "browser": ["chromium"]}
KUBECONFIGS = {  # of the cluster that tests with a marker run on: the variable that names it, how to get one
    "e2e": ("HETEROTP_KIND_KUBECONFIG", "run `make test`, or `make cluster-up` and export it"),
    "kueue": ("HETEROTP_KUEUE_KUBECONFIG", "run `make test-kueue`"),
}


@cache
def markers(path: Path, module: ModuleType) -> frozenset[str]:
    """Return the markers of the tests of a file."""
    imported = {getattr(value, "__module__", None) for value in vars(module).values()}
    helpers = {marker for helper, marker in HELPERS.items() if helper in imported}
    return frozenset({path.relative_to(ROOT / "tests").parts[0], *helpers})


def missing(needed: Iterable[str]) -> str:
    """Return one line that names what is missing for tests with these markers and how to get it; "" for nothing."""
    needed = set(needed)
    built = _absent(BUILT, needed, lambda name: os.access(BIN / name, os.X_OK))
    own = _absent(OWN, needed, lambda name: os.access(BIN / name, os.X_OK))
    installed = _absent(INSTALLED, needed, lambda name: shutil.which(name) is not None)
    found = []
    if built:
        found.append(f"missing in {BIN}: {', '.join(built)}; `tools/cluster/ensure.sh programs` builds them with Go")
    if own:
        found.append(f"missing in {BIN}: {', '.join(own)}; `make test-gangs` builds them with Go")
    if installed:
        found.append(
            f"missing in PATH: {', '.join(installed)}; `tools/prometheus.sh` and `tools/chromium.sh` install them"
        )
    for marker, (variable, remedy) in KUBECONFIGS.items():
        if marker in needed and not Path(os.environ.get(variable) or "/nowhere").is_file():
            found.append(f"{variable} names no file; {remedy}")
    return "; ".join(found)


def _absent(programs, needed, there):  # type: ignore[no-untyped-def]
    names = dict.fromkeys(name for marker, each in programs.items() if marker in needed for name in each)
    return [name for name in names if not there(name)]
