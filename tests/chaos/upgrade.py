"""`python -m chaos.upgrade --before TREE`: live gangs across an upgrade of the operator, a rollback, and an upgrade.

The operator and the kinds of another source tree run first, on an API server of their own; then those of this tree take
over, and so on. A gang must keep its attempt, its restarts and its pods.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from support.api_server import api_server, install_crds, remove_leftovers
from support.gang import Gang, groups_of, job
from support.guardian import Guardian
from support.kube import Kube, make_namespace, until
from support.operator_process import OperatorProcess
from support.places import ROOT
from support.rank_zero import RankZero

NAMESPACE = "upgrade"
CRDS = "import json; from heterotp_api.crd import crds; print(json.dumps(crds()))"
JOBS = {  # name -> more of `job`
    "trains": {"backoffLimit": 3},
    "own-command": {
        "training": False,
        "spec": {"workerGroups": groups_of((("a", 2),), command=["python3", "train.py"])},
    },
    "two-groups": {"pods": (("a", 1), ("b", 2)), "progressDeadlineSeconds": 600},
}
POLLS = 3  # that each operator must have made of each rank 0 before it is judged


def packages(tree):
    return os.pathsep.join(str(tree / part) for part in ("api", "operator"))


def kinds(tree):
    """Return the CRDs of a source tree."""
    environ = {**os.environ, "PYTHONPATH": packages(tree)}
    done = subprocess.run(
        [sys.executable, "-c", CRDS], env=environ, cwd="/", capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def facts(gang):
    """Return what no version of the operator may change while a gang runs."""
    status = gang.status
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in gang.pods()}
    return {"attempt": status.get("attempt"), "restarts": status.get("restarts", 0), "pods": pods}


def differences(before, after):
    """Return what differs, as lines."""
    return [f"{name}: {before[name]} became {after[name]}" for name in before if before[name] != after[name]]


class Gangs:
    """Jobs whose ranks train as far as an operator can see."""

    def __init__(self, kube):
        self._zeros, self._all = [], []
        for name, more in JOBS.items():
            zero = RankZero(sum(count for _, count in more.get("pods", (("a", 2),))))
            self._zeros.append(zero)
            spec = {"metrics": {"port": zero.port}, **more.get("spec", {})}
            self._all.append(Gang(kube, NAMESPACE, job(name, **{**more, "spec": spec})))

    def run(self):
        for gang in self._all:
            gang.run_all(1, podIP="127.0.0.1")

    def facts(self):
        return {gang.name: facts(gang) for gang in self._all}

    def judged(self):
        """Wait until the operator of now has polled every rank 0 and written every status."""
        polled = [len(zero.polls) + POLLS for zero in self._zeros]
        for gang, zero, wanted in zip(self._all, self._zeros, polled, strict=True):
            marker = {"status": {"observedGeneration": 0}}
            gang.kube.patch("heterotpjobs", NAMESPACE, gang.name, marker, "status")
            until(f"{gang.name} is polled", lambda zero=zero, wanted=wanted: len(zero.polls) >= wanted)
            until(f"{gang.name} is reconciled", lambda gang=gang: gang.status.get("observedGeneration"))

    def end(self):
        for gang in self._all:
            gang.end_all(1)
            gang.phase("Succeeded")

    def close(self):
        for zero in self._zeros:
            zero.close()


class Change:
    """One operator after the other on the same gangs; found: what has changed that must not."""

    def __init__(self, guardian, kubeconfig, directory, gangs):
        self._guardian, self._kubeconfig, self._directory, self._gangs = guardian, kubeconfig, directory, gangs
        self._known, self.found, self._count = None, [], 0

    def to(self, tree, last=False):
        """Let the operator of a source tree work on the gangs; the first one begins them, `last` sees their end."""
        self._count += 1
        log = self._directory / f"operator-{self._count}.log"
        paths = packages(tree)
        operator = OperatorProcess(self._guardian, self._kubeconfig, NAMESPACE, log, PYTHONPATH=paths).start()
        if self._known is None:
            self._gangs.run()
            self._known = self._gangs.facts()
        self._gangs.judged()
        for name, now in self._gangs.facts().items():
            where = f"operator {self._count} ({tree}): job {name}"
            self.found += [f"{where}: {each}" for each in differences(self._known[name], now)]
        if last and not self.found:
            self._gangs.end()
        assert operator.stop() == 0, log.read_text()
        print(f"operator {self._count} of {tree}: {len(self.found)} differences", flush=True)


def across(guardian, kubeconfig, before, directory):
    """Return what differs after each change of the operator; nothing where all gangs run on."""
    install_crds(kubeconfig, kinds(before))
    with closing(Kube(kubeconfig)) as kube:
        make_namespace(kube, NAMESPACE)
        with closing(Gangs(kube)) as gangs:
            change = Change(guardian, kubeconfig, directory, gangs)
            change.to(before)
            for crd in kinds(ROOT):
                kube.patch("customresourcedefinitions", None, crd["metadata"]["name"], {"spec": crd["spec"]})
            change.to(ROOT)
            change.to(before)
            change.to(ROOT, last=True)
    return change.found


def main():
    """Run; return the exit code: 1 where a gang has not run on."""
    parser = argparse.ArgumentParser(prog="chaos.upgrade", description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="the source tree of the older version")
    before = parser.parse_args().before.resolve()
    guardian = Guardian()
    try:
        remove_leftovers()
        with tempfile.TemporaryDirectory() as directory, api_server(guardian, "-upgrade", ours=False) as kubeconfig:
            found = across(guardian, kubeconfig, before, Path(directory))
    finally:
        guardian.finish()
    print("\n".join(found) or "every gang runs on")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
