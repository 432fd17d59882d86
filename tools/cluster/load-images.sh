#!/bin/bash
# Load our images into the workers of the kind cluster; kind skips images that a node has already.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
workers=$(kind get nodes --name "$CLUSTER_NAME" | grep worker | paste -sd,)
TAG=${TAG:-dev}
for image in operator trainer; do
  timed "load $image" kind load docker-image --name "$CLUSTER_NAME" --nodes "$workers" "heterotp/$image:$TAG" >&2
done
