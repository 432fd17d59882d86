#!/bin/bash
# Build heterotp/operator:dev and heterotp/trainer:dev. Base images: the public ones where they can be pulled,
# else images of Debian packages, built on this machine (base-images.sh).
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
sbom() { # TARGET: dist/sbom/TARGET-TAG.cdx.json, the Python packages of an image as CycloneDX
  local list; list=$(mktemp)
  mkdir -p dist/sbom
  docker run --rm --entrypoint python3 "heterotp/$1:$TAG" -m pip list --disable-pip-version-check --format=freeze >"$list"
  .venv/bin/cyclonedx-py requirements "$list" --pyproject pyproject.toml --of JSON -o "dist/sbom/$1-$TAG.cdx.json"
  rm -f "$list"
}
if [ -x .venv/bin/cyclonedx-py ]; then
  for target in ${TARGETS:-operator trainer}; do timed "SBOM $target" sbom "$target" || echo "no SBOM of $target" >&2; done
else
  echo "no SBOM: cyclonedx-py is not in .venv (make setup)" >&2
fi
docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep -E "^heterotp/(operator|trainer):$TAG" >&2
