"""A real Prometheus server, over a given history and its recording rules, or one that scrapes."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import requests
import yaml
from support.board_queries import get
from support.patience import PATIENCE_SECONDS
from support.ports import free_port


class PrometheusServer:
    """Serves one data directory on its own port, between start and stop."""

    def __init__(self, directory: Path, configuration: str = "{}\n") -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        (directory / "prometheus.yml").write_text(configuration)

    def load(self, openmetrics: Path) -> None:
        """Add samples; the server must be stopped."""
        command = [_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", openmetrics, "data"]
        subprocess.run(command, cwd=self._directory, check=True, capture_output=True)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        flags = [
            "--config.file=prometheus.yml",
            f"--web.listen-address={address}",
        ]  # else the package's own file is read
        flags += ["--storage.tsdb.path=data", "--storage.tsdb.retention.time=100y"]
        with (self._directory / "prometheus.log").open("ab") as log:
            command = [_program("prometheus"), *flags]
            self._process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(
                    f"Prometheus does not start: {(self._directory / 'prometheus.log').read_text()[-2000:]}"
                )
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/-/ready", timeout=PATIENCE_SECONDS).status_code == 200
        except requests.ConnectionError:
            return False

    def stop(self) -> None:
        """Stop the server and wait for its end."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=PATIENCE_SECONDS)
            self._process = None

    def record(self, rules: str, start: int, end: int, step: int) -> None:
        """Add the series of the recording rules over a past range; starts and stops the server."""
        self.start()
        lines = list(_recorded(self.url, _expanded(rules), start, end, step))
        self.stop()
        (self._directory / "recorded.om").write_text("".join(lines) + "# EOF\n")
        self.load(self._directory / "recorded.om")


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: tools/prometheus.sh installs it"
    return found


def _expanded(rules: str) -> dict[str, str]:
    """Return the expression of each recording rule, with the rules that it reads substituted."""
    expressions: dict[str, str] = {}
    for group in yaml.safe_load(rules)["groups"]:
        for rule in (each for each in group["rules"] if "record" in each):
            expr = rule["expr"]
            for name in sorted(expressions, key=len, reverse=True):
                expr = expr.replace(name, f"({expressions[name]})")
            expressions[rule["record"]] = expr
    return expressions


def _recorded(url: str, expressions: dict[str, str], start: int, end: int, step: int) -> Any:
    for name, expr in expressions.items():
        for series in get(url, "query_range", query=expr, start=start, end=end, step=step)["result"]:
            labels = ",".join(f"{key}={json.dumps(value)}" for key, value in series["metric"].items())
            for when, value in series["values"]:
                yield f"{name}{{{labels}}} {value} {when}\n"
