"""`make check`: compare all pinned packages, those of the images included, with the published advisories.

The advisories come from the index. Where it cannot be asked, nothing is compared, which is said and fails nothing.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = "requirements.lock"
SECONDS = 300.0
COMMAND = ("-m", "pip_audit", "--requirement", LOCK, "--require-hashes", "--disable-pip", "--format", "json")


def packages() -> list[dict[str, Any]]:
    """Return pip-audit's report on each package; empty where it has none."""
    command = [sys.executable, *COMMAND, "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return []
    return list(report["dependencies"])


def finding(package: dict[str, Any], advisory: dict[str, Any]) -> str:
    """Return `package version: advisory: fixed in versions`."""
    fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
    return f"{package['name']} {package['version']}: {advisory['id']}: fixed in {fixed}"


def main() -> int:
    """Print what is found; return 1 where a package has an advisory, and where pip-audit is not installed."""
    if importlib.util.find_spec("pip_audit") is None:
        print("audit: pip-audit is not installed: run make setup", file=sys.stderr)
        return 1
    reports = packages()
    compared = [each for each in reports if "skip_reason" not in each]
    found = sorted({finding(each, advisory) for each in compared for advisory in each["vulns"]})
    for line in found:
        print(f"audit: {line}", file=sys.stderr)
    if not compared:
        print(f"audit: {LOCK}: not compared: the index gives no advisories here")
    else:
        print(f"audit: {LOCK}: {len(compared)} of {len(reports)} packages compared, {len(found)} advisories")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
