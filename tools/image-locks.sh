#!/bin/bash
# The parts of requirements.lock that the images install, with hashes: locks/*.lock. `make lock` runs it.
#   build     what makes the wheel of our own code
#   operator  the operator's image
#   trainer   the trainer's images, without torch
#   hf        what the variant of the trainer's image with Hugging Face's libraries has besides
#   torch     torch and what it needs, for base images without it
#   torch-cpu torch's CPU wheels, which another index has: where that cannot be reached, the file stays as it is
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
uv=${UV:-.venv/bin/uv}
PYTHON=3.13 # of the Dockerfile's base image
without_torch=$(mktemp)
trap 'rm -f "$without_torch"' EXIT
echo 'torch; sys_platform == "never"' >"$without_torch"

pinned() { # ARGUMENTS OF uv pip compile; versions are those of requirements.lock
  "$uv" pip compile -q -c requirements.lock --python-version "$PYTHON" --generate-hashes --no-header --no-annotate "$@"
}
echo hatchling | pinned --python-platform linux - -o locks/build.lock
pinned --python-platform linux pyproject.toml --extra operator -o locks/operator.lock
pinned --python-platform linux pyproject.toml --extra trainer --override "$without_torch" -o locks/trainer.lock
pinned --python-platform linux pyproject.toml --extra hf --override "$without_torch" -o locks/hf.lock
echo torch | pinned --universal - -o locks/torch.lock # what torch needs depends on the processor
cpu_index=$(sed -n 's/^cpu_index=//p' locks/install-torch.sh)
made=$(mktemp)
trap 'rm -f "$without_torch" "$made"' EXIT
if grep -oE '^torch==[0-9.]+' locks/torch.lock | pinned --no-deps --default-index "$cpu_index" --python-platform linux - -o "$made"; then
  cp "$made" locks/torch-cpu.lock
else
  echo "lock: $cpu_index gives no hashes: locks/torch-cpu.lock is not written; without it the image trainer has PyPI's torch" >&2
fi
