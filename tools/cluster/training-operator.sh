#!/bin/bash
# Kubeflow's training-operator, of its Go module: what benchmarks/operator_ready.py measures beside ours.
#   training-operator.sh build     build it (with Go; 2 minutes without caches), copy its CRD
#   training-operator.sh files     print the program and the CRD of its PyTorchJob
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$HERE/modules.sh"
module=github.com/kubeflow/training-operator
crd=$CLUSTER_DIR/training-operator/kubeflow.org_pytorchjobs.yaml

build() {
  build_program training-operator training-operator "$module/cmd/training-operator.v1"
  mkdir -p "${crd%/*}"
  install -m 644 "$(module_field training-operator "$module" Dir)/manifests/base/crds/${crd##*/}" "$crd"
}

case ${1:-} in
build) build ;;
files) printf '%s\n' "$BIN/training-operator" "$crd" ;;
*) die "usage: $0 build|files" ;;
esac
