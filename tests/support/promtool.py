"""Unit tests of rules with promtool: input series over time, and the alerts expected at given minutes.

Time starts at 0 and advances in steps of 30 s, the interval of the rules.
"""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

STEP = 30
PER_MINUTE = 60 // STEP
Labels = dict[str, str]


def counter(*stages: tuple[float, float]) -> str:
    """Return the values of a counter from consecutive stages of (increase per second, minutes)."""
    value, parts = 0.0, []
    for per_second, minutes in stages:
        steps = round(minutes * PER_MINUTE)
        parts.append(f"{value:g}+{per_second * STEP:g}x{steps - 1}")
        value += per_second * STEP * steps
    return " ".join(parts)


def gauge(*stages: tuple[object, float]) -> str:
    """Return the values of a gauge from consecutive stages of (value, minutes); None: no sample."""
    parts = []
    for value, minutes in stages:
        steps = round(minutes * PER_MINUTE)
        if value is None:
            parts.append(f"_x{steps}")
        elif value in ("NaN", "Inf"):
            parts += [str(value)] * steps
        else:
            parts.append(f"{value}+0x{steps - 1}")
    return " ".join(parts)


def named(metric: str, **labels: object) -> str:
    """Return the name of a series with its labels."""
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"


@dataclass(frozen=True)
class Firing:
    """An expected alert: its labels without severity, its value as its texts show it, and what a query there gives."""

    labels: Labels
    shown: str = ""
    queried: str = ""


@dataclass(frozen=True)
class AlertCase:
    """Input series, and by minute the expected alerts (none: no alert fires) or the expected values of expressions."""

    alert: str
    series: dict[str, str]
    expected: dict[float, list[Firing]]
    values: dict[tuple[float, str], dict[str, float]] = field(default_factory=dict)  # (minute, expr) -> series -> value

    def test(self, alerts: dict[str, Any]) -> dict[str, Any]:
        """Return the test in the format of promtool."""
        return {
            "interval": f"{STEP}s",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "alert_rule_test": [
                {
                    "eval_time": _time(minute),
                    "alertname": self.alert,
                    "exp_alerts": [_expected(alerts[self.alert], firing) for firing in firings],
                }
                for minute, firings in self.expected.items()
            ],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": _time(minute),
                    "exp_samples": [{"labels": name, "value": value} for name, value in samples.items()],
                }
                for (minute, expr), samples in self.values.items()
            ],
        }


def _time(minute: float) -> str:
    return f"{round(minute * 60)}s"


def _expected(alert: dict[str, Any], firing: Firing) -> dict[str, Any]:
    """Return the alert with its texts expanded as Prometheus expands them."""
    texts = {key: _filled(text, firing) for key, text in alert["annotations"].items()}
    return {"exp_labels": {**alert["labels"], **firing.labels}, "exp_annotations": texts}


def _filled(text: str, firing: Firing) -> str:
    text, _, query = text.partition("{{ with ")  # a text has at most one, at its end
    parts = text.split("{{")
    filled = parts[0]
    for part in parts[1:]:
        inside, _, rest = part.partition("}}")
        what = inside.strip()
        filled += (firing.labels[what.removeprefix("$labels.")] if what.startswith("$labels.") else firing.shown) + rest
    return filled + (firing.queried if query else "")


def run(rules: str, cases: list[AlertCase], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `promtool test rules` on the cases and return its result."""
    program = shutil.which("promtool")
    assert program, "promtool is missing: tools/prometheus.sh installs it"
    groups = yaml.safe_load(rules)["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    named = {case.alert for case in cases}
    for group in groups:  # other alerts would only cost time
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") in (None, *named)]
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{STEP}s",
        "tests": [case.test(alerts) for case in cases],
    }
    (directory / "tests.yaml").write_text(yaml.safe_dump(tests))
    command = [program, "test", "rules", "tests.yaml"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)
