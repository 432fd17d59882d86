"""`python -m heterotp_api.generate DIRECTORY`: write the CRDs as templates of the Helm chart."""

import sys
from pathlib import Path

import yaml

from heterotp_api.crd import crds
from heterotp_api.schema import Json

HEAD = """\
{{- /* Made by `make generate` from api/heterotp_api; do not edit. */ -}}
{{- if .Values.crds.enabled }}
"""
KEEP = "{{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n    heterotp.io/api: v1alpha1"


class _PlainDumper(yaml.SafeDumper):
    """Repeats what occurs twice instead of using YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def chart_template(crd: Json) -> str:
    """Return one CRD as a chart template that a `helm uninstall` keeps."""
    text = yaml.dump(crd, Dumper=_PlainDumper, sort_keys=False, width=110)
    if "{{" in text:
        raise ValueError(f"{crd['metadata']['name']}: '{{{{' would be read as a Helm template")
    name = crd["metadata"]["name"]
    return (
        HEAD
        + text.replace(f"metadata:\n  name: {name}\n", f"metadata:\n  name: {name}\n  annotations:\n    {KEEP}\n", 1)
        + "{{- end }}\n"
    )


def main(directory: Path) -> None:
    """Write one file per CRD."""
    directory.mkdir(parents=True, exist_ok=True)
    for crd in crds():
        plural = crd["spec"]["names"]["plural"]
        (directory / f"{plural}.yaml").write_text(chart_template(crd), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
