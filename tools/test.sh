#!/bin/bash
# Every test. Starts a kind cluster of its own and the bare API server, and stops what it started, also when it fails.
#   KEEP_CLUSTER=1   leave the cluster running for the next time
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CLUSTER_NAME=${CLUSTER_NAME:-heterotp-test} # never the one of `make cluster-up`
python=.venv/bin/python
docker_was_up=
tools/cluster/dockerd.sh running && docker_was_up=1

finish() {
  [ -z "${KEEP_CLUSTER:-}" ] || return
  tools/cluster/kind-down.sh || true
  [ -n "$docker_was_up" ] || tools/cluster/dockerd.sh stop || true
}
trap finish EXIT

tools/prometheus.sh
tools/cluster/ensure.sh kind
tools/cluster/build-images.sh
tools/cluster/load-images.sh
HETEROTP_KIND_KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
export HETEROTP_KIND_KUBECONFIG
$python -m pytest -q --durations=10 tests
