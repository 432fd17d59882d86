#!/bin/bash
# Tests with Kueue's own controller (tests/kueue). Builds it, starts a kind cluster of its own with it, and stops what it
# started, also on failure. Too slow for `make test`: 10 minutes more where nothing of Go is cached.
#   test-kueue.sh [PYTEST ARGUMENTS]
#   KEEP_CLUSTER=1    leave the cluster running for the next time
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CLUSTER_NAME=${CLUSTER_NAME:-heterotp-kueue} # neither that of `make cluster-up` nor that of `make test`
unset PYTHONDONTWRITEBYTECODE
. tools/stages.sh

docker_was_up=
tools/cluster/dockerd.sh running && docker_was_up=1
finish() {
  [ -z "${KEEP_CLUSTER:-}" ] || return
  tools/cluster/kind-down.sh || true
  [ -n "$docker_was_up" ] || tools/cluster/dockerd.sh stop || true
}
trap finish EXIT
kind=new-kind
[ -z "${KEEP_CLUSTER:-}" ] || kind=kind

stage "programs" tools/cluster/ensure.sh programs || report
stage "Kueue's controller" tools/cluster/kueue.sh build || report
stage "the cluster" tools/cluster/ensure.sh "$kind" || report
stage "our images" tools/cluster/build-images.sh || report
stage "our images into the nodes" tools/cluster/load-images.sh || report
stage "Kueue into the cluster" tools/cluster/kueue.sh install || report
HETEROTP_KUEUE_KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
export HETEROTP_KUEUE_KUBECONFIG
stage "tests with Kueue" tests tests/kueue "$@" || true
report
