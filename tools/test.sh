#!/bin/bash
# Every test. Starts a kind cluster of its own and the bare API server, and stops what it started, also on failure.
#   test.sh           every test
#   test.sh fast      unit and distributed tests; those that need helm only where it is built already
#   KEEP_CLUSTER=1    leave the cluster running for the next time
# Order by need: the unit tests that need no program run while programs are built (Go, 10 minutes where nothing is
# cached) and the cluster starts; then the distributed tests, beside them those that need programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CLUSTER_NAME=${CLUSTER_NAME:-heterotp-test} # never the one of `make cluster-up`
unset PYTHONDONTWRITEBYTECODE # some hundred processes import the same modules: they are compiled once
. tools/stages.sh

tools/prometheus.sh
tools/chromium.sh
if [ "${1:-}" = fast ]; then
  without=()
  tools/cluster/ensure.sh has-programs || {
    echo "helm is not built yet: tests that need it are left out (make test builds it)"
    without=(-m "not helm")
  }
  stage "unit tests" tests "${without[@]}" tests/unit || true
  stage "distributed tests" tests tests/distributed || true
  report
fi

work=$(mktemp -d)
docker_was_up=
tools/cluster/dockerd.sh running && docker_was_up=1

finish() {
  for job in $cluster $beside; do kill -- "-$job" 2>/dev/null || true; done # each is a process group
  rm -rf "$work"
  [ -z "${KEEP_CLUSTER:-}" ] || return
  tools/cluster/kind-down.sh || true
  [ -n "$docker_was_up" ] || tools/cluster/dockerd.sh stop || true
}
cluster=
beside=
trap finish EXIT

cluster() { # with our images in it
  local kind=new-kind
  [ -z "${KEEP_CLUSTER:-}" ] || kind=kind
  tools/cluster/ensure.sh programs && touch "$work/programs" &&
    tools/cluster/ensure.sh "$kind" && tools/cluster/build-images.sh && tools/cluster/load-images.sh
}

need_programs() { # the tests that need them, once they are built
  until [ -e "$work/programs" ]; do
    kill -0 "$cluster" 2>/dev/null || return # its log says why
    sleep 1
  done
  tests -m "helm or integration" tests/unit tests/integration
}

set -m # a process group for each job
cluster >"$work/cluster.log" 2>&1 &
cluster=$!
set +m
stage "unit tests that need no helm; beside them the cluster starts" tests -m "not helm" tests/unit || true
set -m
need_programs >"$work/beside.log" 2>&1 &
beside=$!
set +m
stage "distributed tests; beside them tests of the chart and on the bare API server" tests tests/distributed || true
stage "the rest of those beside" wait "$beside" || true
cat "$work/beside.log"
stage "the rest of the cluster's start" wait "$cluster" || { cat "$work/cluster.log"; report; }
HETEROTP_KIND_KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
export HETEROTP_KIND_KUBECONFIG
stage "tests on the cluster" tests tests/e2e || true
report
