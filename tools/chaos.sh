#!/bin/bash
# Random faults by a seed, a history of what happened, and its check (tests/chaos).
#   chaos.sh api|kind [--minutes N] [--seed N] [--directory DIRECTORY]
#   chaos.sh check DIRECTORY
#   chaos.sh upgrade COMMIT     live gangs across the operator of COMMIT, this one, and back (tests/chaos/upgrade.py)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
where=$1; shift
export PYTHONPATH=$PWD/tests
case $where in
api) tools/cluster/ensure.sh programs ;;
kind)
  tools/cluster/ensure.sh kind
  tools/cluster/build-images.sh
  tools/cluster/load-images.sh
  HETEROTP_KIND_KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
  export HETEROTP_KIND_KUBECONFIG
  ;;
upgrade)
  tools/cluster/ensure.sh programs
  before=$(mktemp -d)
  trap 'git worktree remove --force "$before"' EXIT
  git worktree add --quiet --detach "$before" "$1"
  .venv/bin/python -m chaos.upgrade --before "$before"
  exit
  ;;
check) exec .venv/bin/python -m chaos --check "$1" ;;
*) echo "usage: chaos.sh api|kind|check|upgrade ..." >&2; exit 2 ;;
esac
exec .venv/bin/python -m chaos --where "$where" "$@"
