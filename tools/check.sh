#!/bin/bash
# Format, lint, types, import rules, generated files: everything that needs no test run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin

if [ -e operator/__init__.py ]; then
  echo "operator/__init__.py must not exist: it would shadow Python's own operator module" >&2
  exit 1
fi
$bin/ruff format --check -q . || { echo "run make format" >&2; exit 1; }
$bin/ruff check -q .
$bin/mypy
$bin/lint-imports
chart=charts/heterotp
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
$bin/python -m heterotp_api.generate "$made/$chart/templates/crds"
$bin/python -m heterotp_dashboards.generate "$made"
for part in $chart/templates/crds $chart/templates/prometheusrule.yaml $chart/files/dashboards \
  $(cd "$made" && ls dashboards/*); do
  diff -r "$made/$part" "$part" || { echo "generated files are out of date: run make generate" >&2; exit 1; }
done
for script in tools/*.sh tools/cluster/*.sh tools/picture/*.sh .ci/run; do bash -n "$script"; done
echo "check: all clean"
