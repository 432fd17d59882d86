#!/bin/bash
# Put our images into the nodes of the kind cluster; what a node has already is not sent again.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
TAG=${TAG:-dev}
for image in operator trainer; do
  timed "load $image" kind load docker-image --name "$CLUSTER_NAME" "heterotp/$image:$TAG" >&2
done
