#!/bin/bash
# Every test. Starts a kind cluster of its own and the bare API server, and stops what it started, also when it fails.
#   KEEP_CLUSTER=1   leave the cluster running for the next time
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CLUSTER_NAME=${CLUSTER_NAME:-heterotp-test} # never the one of `make cluster-up`
python=.venv/bin/python
log=$(mktemp)
docker_was_up=
tools/cluster/dockerd.sh running && docker_was_up=1

finish() {
  rm -f "$log"
  [ -z "${KEEP_CLUSTER:-}" ] || return
  tools/cluster/kind-down.sh || true
  [ -n "$docker_was_up" ] || tools/cluster/dockerd.sh stop || true
}
trap finish EXIT

cluster() { # with our images in it
  tools/cluster/ensure.sh kind && tools/cluster/build-images.sh && tools/cluster/load-images.sh
}

tests() { $python -m pytest -q --durations=15 "$@"; }

tools/prometheus.sh
failed=
echo "unit tests; beside them a cluster comes up"
cluster >"$log" 2>&1 &
beside=$!
tests tests/unit || failed=1
wait "$beside" || { cat "$log"; echo "the cluster did not come up" >&2; exit 1; }
HETEROTP_KIND_KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
export HETEROTP_KIND_KUBECONFIG
echo "distributed tests; beside them those on the bare API server, which mostly wait"
tests tests/integration >"$log" 2>&1 &
beside=$!
tests tests/distributed || failed=1
wait "$beside" || failed=1
cat "$log"
echo "tests on the cluster"
tests tests/e2e || failed=1
[ -z "$failed" ]
