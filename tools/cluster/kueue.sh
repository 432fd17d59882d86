#!/bin/bash
# Kueue's own manager, of its Go module: nothing is pulled. Only `make test-kueue` needs it.
#   kueue.sh build     build the manager (with Go; 10 minutes without caches)
#   kueue.sh install   the same; then install Kueue's chart with it on the cluster CLUSTER_NAME, and wait until its
#                      webhooks answer
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$HERE/modules.sh"
module=sigs.k8s.io/kueue
NAMESPACE=kueue-system
export KUBECONFIG=${KUBECONFIG:-$RUN/kind-$CLUSTER_NAME.kubeconfig}

build() {
  local version; version=$(module_field kueue "$module" Version)
  build_program kueue kueue-manager "$module/cmd/kueue" "-X $module/pkg/version.GitVersion=$version"
}

# answers: whether the webhooks accept an object; the manager is Ready before its certificate is in their configuration
answers() {
  kubectl apply --dry-run=server -f - >/dev/null 2>&1 <<<'{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "asked"}}'
}

install() {
  has_docker || die "no dockerd: run dockerd.sh start"
  build
  build_image kueue kueue-manager /manager # Kueue's chart starts /manager
  load_image kueue kueue-manager
  local image; image=$(program_image kueue kueue-manager)
  # on the one worker that has the image; small, as all nodes share one machine
  timed "install kueue" helm upgrade --install kueue "$(module_field kueue "$module" Dir)/charts/kueue" \
    --namespace "$NAMESPACE" --create-namespace --wait --timeout 300s --values - >/dev/null <<EOF
controllerManager:
  nodeSelector: {kubernetes.io/hostname: $CLUSTER_NAME-worker}
  manager:
    image: {repository: ${image%:*}, tag: ${image#*:}, pullPolicy: Never}
    resources: {requests: {cpu: 50m, memory: 128Mi}, limits: {cpu: "2", memory: 512Mi}}
  readinessProbe: {initialDelaySeconds: 1, periodSeconds: 1}
EOF
  for _ in $(seq 300); do answers && { say "Kueue is up"; return; }; sleep 0.5; done
  die "Kueue's webhooks do not answer: kubectl -n $NAMESPACE logs deployment/kueue-controller-manager"
}

case ${1:-} in
build) build ;;
install) install ;;
*) die "usage: $0 build|install" ;;
esac
