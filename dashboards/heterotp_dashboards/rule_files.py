"""Rules as files: for Prometheus, and as the chart's PrometheusRule with thresholds from Helm values."""

import dataclasses
import re
import textwrap

import yaml

from heterotp_dashboards.alerts import Thresholds, alerting
from heterotp_dashboards.rules import INTERVAL, Group, recording

OPERATOR_JOB = "heterotp-operator"
RUNBOOKS = "docs/runbooks/{alert}.md"
HEAD = "Made by `make generate` from dashboards/heterotp_dashboards; do not edit."
VALUES = ".Values.monitoring.rules"
_TEMPLATE = (
    """\
{{- /* %s */ -}}
{{- if VALUES.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "heterotp.name" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  {{- include "heterotp.labelled" (dict "root" . "values" VALUES) | nindent 2 }}
spec:
  groups:
""".replace("VALUES", VALUES)
    % HEAD
)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _dumped(data: object) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


def _body(group: Group, runbooks: str) -> dict[str, object]:
    rules = [rule.body(runbooks) for rule in group.rules]
    return {"name": group.name, "interval": INTERVAL, "rules": rules}


def prometheus_rules(limits: Thresholds, operator_job: str = OPERATOR_JOB, runbooks: str = RUNBOOKS) -> str:
    """Return the rule file for Prometheus; `{alert}` in `runbooks` becomes the name of the alert."""
    groups = [_body(group, runbooks) for group in (*recording(), *alerting(limits, operator_job))]
    return f"# {HEAD}\n{_dumped({'groups': groups})}"


def camel(name: str) -> str:
    """Return the name of a threshold among the Helm values, in camel case."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def chart_template() -> str:
    """Return the rules as a template of the chart."""
    names = [field.name for field in dataclasses.fields(Thresholds)]
    limits = Thresholds(**{name: f"HELM({camel(name)})" for name in names})
    groups = (*recording(), *alerting(limits, "HELM_JOB"))
    return _TEMPLATE + "".join(map(_chart_group, groups)) + "{{- end }}\n"


def _chart_group(group: Group) -> str:
    """Return one group, conditional if it is a detail group; {{ }} of Prometheus pass through Helm unchanged."""
    text = textwrap.indent(_dumped([_body(group, "HELM_RUNBOOK({alert})")]), "  ")
    text = re.sub(r"\{\{.*?\}\}", r"{{`\g<0>`}}", text)
    text = text.replace("HELM_JOB", f"{{{{ {VALUES}.operatorJob }}}}")
    text = re.sub(r"HELM_RUNBOOK\((\w+)\)", rf'{{{{ {VALUES}.runbookUrl | replace "{{alert}}" "\1" | quote }}}}', text)
    text = re.sub(r"HELM\((\w+)\)", rf"{{{{ {VALUES}.thresholds.\1 }}}}", text)
    if group.detail:
        return f'  {{{{- if eq {VALUES}.level "full" }}}}\n{text}  {{{{- end }}}}\n'
    return text
