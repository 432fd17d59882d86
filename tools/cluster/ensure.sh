#!/bin/bash
# Build and start what is missing; leave what is there as it is, except for new-kind.
#   ensure.sh programs     build kubectl, helm, kind, etcd, kube-apiserver ... (with Go; 10 minutes without caches)
#   ensure.sh has-programs exit code 0 if they are built from the present sources
#   ensure.sh kind         programs, then Docker, the node image, the cluster
#   ensure.sh new-kind     the same; a cluster of that name, which a killed run may have left, is deleted first
#   ensure.sh kubeconfig   print the path of the cluster's kubeconfig
#   ensure.sh bin          print the folder of kubectl, helm, kind ..., for your PATH
# Needs no root where a Docker answers that can pull images, else root on Debian.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
config=$RUN/kind-$CLUSTER_NAME.kubeconfig

checksum() { cat "$@" | sed '/^ *#/d' | sha256sum | cut -c1-16; } # of files without their comments

# sources: the checksum of our Go code and of the versions; a change means a new build
sources() { cd "$HERE" && checksum programs.sh go/go.mod go/cmd/*/*.go <(echo "$KUBE_VERSION"); }
has_programs() { [ "$(cat "$BIN/.built" 2>/dev/null)" = "$(sources)" ] && [ -x "$BIN/helm" ]; }
programs() {
  has_programs && return
  "$HERE/programs.sh" >&2
  sources >"$BIN/.built"
}

engine() {
  has_docker && { "$HERE/dockerd.sh" start; return; }
  [ -x /usr/sbin/dockerd ] || "$HERE/packages.sh"
  "$HERE/dockerd.sh" start
}

# node_image: make the node image available and print its name: the public one if present or pullable, else our own
node_image() {
  if docker image inspect "$PUBLIC_NODE_IMAGE" >/dev/null 2>&1 || can_pull "$PUBLIC_NODE_IMAGE"; then
    docker pull -q "$PUBLIC_NODE_IMAGE" >&2 || true # without a registry it may be present already
    echo "$PUBLIC_NODE_IMAGE"
    return
  fi
  local sum; sum=$(cd "$HERE" && checksum node-image.sh node/* "$BIN/.built")
  if [ "$(cat "$CLUSTER_DIR/.node" 2>/dev/null)" != "$sum" ] || ! docker image inspect "$NODE_IMAGE" >/dev/null 2>&1; then
    command -v debootstrap >/dev/null || "$HERE/packages.sh" >&2
    "$HERE/node-image.sh" >&2
    echo "$sum" >"$CLUSTER_DIR/.node"
  fi
  echo "$NODE_IMAGE"
}

# up IMAGE: whether the cluster runs, made from this image
up() {
  local made; made=$(docker inspect -f '{{.Image}}' "$CLUSTER_NAME-control-plane" 2>/dev/null) || return 1
  [ "$made" = "$(docker image inspect -f '{{.Id}}' "$1")" ] || return 1
  KUBECONFIG=$config timeout 20 kubectl get nodes >/dev/null 2>&1
}

case ${1:-kind} in
programs) programs ;;
has-programs) has_programs ;;
kubeconfig) echo "$config" ;;
bin) echo "$BIN" ;;
kind|new-kind)
  programs
  engine
  image=$(node_image)
  if [ "${1:-kind}" = kind ] && up "$image"; then say "cluster $CLUSTER_NAME is up already"; exit; fi
  kind delete cluster --name "$CLUSTER_NAME" >/dev/null 2>&1 || true # made from another image, or left by a killed run
  "$HERE/kind-up.sh" "$image"
  ;;
*) die "usage: $0 programs|has-programs|kind|new-kind|kubeconfig|bin" ;;
esac
