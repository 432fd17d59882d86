"""`python -m chaos`: a run of random faults by a seed, or the check of a history that a run wrote."""

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path

from chaos.checker import check
from chaos.history import read
from chaos.run import run_on_api, run_on_kind, summary
from support.api_server import api_server, remove_leftovers
from support.guardian import Guardian
from support.kube import Kube
from support.release import Release, remove_at_end


def main():
    """Run or check; return the exit code: 1 for a violation."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--where", choices=["api", "kind"], default="api")
    parser.add_argument("--directory", type=Path, help="where the history goes")
    parser.add_argument("--check", type=Path, metavar="DIRECTORY", help="only check this history again")
    given = parser.parse_args()
    directory = given.check or given.directory or Path("runs") / f"chaos-{given.seed}"
    violations = check(read(directory)) if given.check else _run(given, directory.resolve())
    print("\n".join(summary(read(directory))))
    print("\n".join(map(str, violations)) or "no violation")
    print(f"history: {directory}")
    return 1 if violations else 0


def _run(given, directory):
    guardian = Guardian()
    try:
        if given.where == "kind":
            kubeconfig = os.environ["HETEROTP_KIND_KUBECONFIG"]
            remove_at_end(guardian, kubeconfig)
            with closing(Kube(kubeconfig)) as kube:
                Release(kube, kubeconfig).install()
            return run_on_kind(kubeconfig, directory, given.seed, given.minutes)
        remove_leftovers()
        with api_server(guardian, "-chaos") as kubeconfig:
            return run_on_api(guardian, kubeconfig, directory, given.seed, given.minutes)
    finally:
        guardian.finish()


if __name__ == "__main__":
    sys.exit(main())
