#!/bin/bash
# Bring up what is missing, and nothing that is there.
#   ensure.sh programs     kubectl, helm, kind, etcd, kube-apiserver ... (Go; 8 minutes cold)
#   ensure.sh has-programs exit 0 where they are built and of these sources
#   ensure.sh kind         ... Docker, node image, cluster
#   ensure.sh kubeconfig   print the cluster's kubeconfig path
#   ensure.sh bin          print the folder of kubectl, helm, kind ..., for your PATH
# With a Docker that answers and can pull images this needs no root; without, it needs root on Debian.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
config=$RUN/kind-$CLUSTER_NAME.kubeconfig

checksum() { cat "$@" | sha256sum | cut -c1-16; }

# sources: the checksum of our Go code and of the versions; where it changes all is built anew
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

# node_image: the public one where it is here or can be pulled, else our own; the last line is its name
node_image() {
  if docker image inspect "$PUBLIC_NODE_IMAGE" >/dev/null 2>&1 || can_pull "$PUBLIC_NODE_IMAGE"; then
    docker pull -q "$PUBLIC_NODE_IMAGE" >&2 || true # it may be here already, without a registry
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

# up IMAGE: is the cluster there, of this very image?
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
kind)
  programs
  engine
  image=$(node_image)
  if up "$image"; then say "cluster $CLUSTER_NAME is up already"; exit; fi
  kind delete cluster --name "$CLUSTER_NAME" >/dev/null 2>&1 || true # of another image, or what a killed run left
  "$HERE/kind-up.sh" "$image"
  ;;
*) die "usage: $0 programs|kind|kubeconfig|bin" ;;
esac
