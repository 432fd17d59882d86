#!/bin/bash
# Build heterotp/operator:dev and heterotp/trainer:dev, or TARGETS, and SBOMs of all four images. Base images: the public
# ones where they can be pulled, else images of Debian packages, built on this machine (base-images.sh).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
has_docker || die "no dockerd: run dockerd.sh start"
cd "$HERE/../.."
TAG=${TAG:-dev}
args=()
public=$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile)
if ! docker image inspect "$public" >/dev/null 2>&1 && ! can_pull "$public"; then
  docker image inspect heterotp/base-torch:trixie >/dev/null 2>&1 || "$HERE/base-images.sh"
  args=(--build-arg PYTHON_IMAGE=heterotp/base-python:trixie --build-arg TORCH_IMAGE=heterotp/base-torch:trixie)
fi
for target in ${TARGETS:-operator trainer}; do
  timed "image $target" docker build -q --network host --target "$target" "${args[@]}" -t "heterotp/$target:$TAG" . >/dev/null
done
DOCKER=$(docker_client)
export DOCKER
for target in operator trainer trainer-hf trainer-cuda; do
  case " ${TARGETS:-operator trainer} " in *" $target "*) from=image ;; *) from=locks ;; esac
  timed "SBOM $target" tools/sbom.sh "$target" "$TAG" "$from"
done
docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep -E "^heterotp/(operator|trainer):$TAG" >&2
