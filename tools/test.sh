#!/bin/bash
# Every test. Starts the kind cluster and the bare API server, and stops what it started, also when it fails.
#   KEEP_CLUSTER=1   leave the cluster running for the next time
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python

finish() {
  [ -n "${KEEP_CLUSTER:-}" ] && return
  tools/cluster/41-kind-down.sh || true
  tools/cluster/20-dockerd.sh stop || true
}
trap finish EXIT

tools/cluster/ensure.sh kind
tools/cluster/build-images.sh
tools/cluster/load-images.sh
KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
export HETEROTP_KIND_KUBECONFIG=$KUBECONFIG
unset KUBECONFIG
$python -m pytest -q --durations=10 tests
