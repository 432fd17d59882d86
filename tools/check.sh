#!/bin/bash
# Format, lint, types, import rules, generated files, syntax of scripts: every check without a test run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin

if [ -e operator/__init__.py ]; then
  echo "operator/__init__.py must not exist: it would shadow Python's own operator module" >&2
  exit 1
fi
for script in locks/*.sh tools/*.sh tools/cluster/*.sh tools/picture/*.sh .ci/run; do bash -n "$script"; done
$bin/ruff format --check -q . || { echo "not formatted: run make format" >&2; exit 1; }
$bin/ruff check -q .
$bin/mypy
$bin/lint-imports
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
same() { # GENERATED CHECKED_IN
  diff -r "$1" "$2" || { echo "generated files are out of date: run make generate" >&2; exit 1; }
}
$bin/python -m heterotp_api.generate "$made/crds"
same "$made/crds" charts/heterotp/templates/crds
$bin/python -m heterotp_dashboards.generate "$made"
for part in charts/heterotp/templates/prometheusrule.yaml charts/heterotp/files/dashboards \
  $(cd "$made" && ls dashboards/*); do
  same "$made/$part" "$part"
done
PYTHONPATH=tools $bin/python -m reference --check docs/reference
$bin/python tools/audit.py
echo "check: all clean"
