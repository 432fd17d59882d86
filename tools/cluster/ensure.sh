#!/bin/bash
# Bring up what is missing, and nothing that is there.
#   ensure.sh programs     kubectl, helm, kind, etcd, kube-apiserver ... (Go; 8 minutes cold)
#   ensure.sh kind         ... dockerd, node image, cluster
#   ensure.sh kubeconfig   print the cluster's kubeconfig path
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
what=${1:-kind}
config=$RUN/kind-$CLUSTER_NAME.kubeconfig

programs() {
  local name missing=
  for name in docker dockerd debootstrap containerd jq; do [ -x "/usr/bin/$name" ] || [ -x "/usr/sbin/$name" ] || missing=1; done
  [ -z "$missing" ] || "$HERE/00-deps.sh"
  # the sources' checksum: a change in our Go code or versions builds anew
  local sum; sum=$(cd "$HERE" && cat 10-build.sh lib.sh go/go.mod go/cmd/*/*.go | sha256sum | cut -c1-16)
  [ "$(cat "$BIN/.built" 2>/dev/null)" = "$sum" ] && [ -x "$BIN/helm" ] && return
  "$HERE/10-build.sh" >&2
  echo "$sum" >"$BIN/.built"
}

running() { KUBECONFIG=$config timeout 20 kubectl get nodes >/dev/null 2>&1; }

case $what in
programs) programs ;;
kubeconfig) echo "$config" ;;
kind)
  programs
  "$HERE/20-dockerd.sh" start
  sum=$(cat "$HERE"/30-node-image.sh "$HERE"/node/* "$BIN/.built" | sha256sum | cut -c1-16)
  if [ "$(cat "$CLUSTER_DIR/.node" 2>/dev/null)" != "$sum" ] || ! docker image inspect "$NODE_IMAGE" >/dev/null 2>&1; then
    "$HERE/30-node-image.sh"
    echo "$sum" >"$CLUSTER_DIR/.node"
    kind delete cluster --name "$CLUSTER_NAME" >/dev/null 2>&1 || true # it runs the old image
  fi
  if running; then say "cluster $CLUSTER_NAME is up already"; exit; fi
  kind delete cluster --name "$CLUSTER_NAME" >/dev/null 2>&1 || true # what a killed run left
  "$HERE/40-kind-up.sh"
  ;;
*) die "usage: $0 programs|kind|kubeconfig" ;;
esac
