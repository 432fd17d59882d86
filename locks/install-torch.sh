#!/bin/sh
# Installs torch into an image: `install-torch.sh` PyPI's, `install-torch.sh cpu` the CPU wheels where torch-cpu.lock is.
# All by hash. Only where TORCH (a requirement) or TORCH_INDEX (an index) ask for another one, its wheels have none of ours.
set -eu
locks=$(dirname "$0")
cpu_index=https://download.pytorch.org/whl/cpu
install() { pip install --no-cache-dir --disable-pip-version-check -q "$@"; }
install_others() { # what torch needs that does not depend on the device
  awk '/^[^ ]/ {keep = !/^(torch|triton|nvidia-|cuda-)/} keep' "$locks/torch.lock" >"$locks/needed.lock"
  install --require-hashes -r "$locks/needed.lock"
}

if [ -n "${TORCH:-}${TORCH_INDEX:-}" ]; then
  install_others
  install "${TORCH:-$(grep -oE '^torch==[0-9.]+' "$locks/torch.lock")}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
elif [ "${1:-}" = cpu ] && [ -f "$locks/torch-cpu.lock" ]; then
  install_others
  install --require-hashes --no-deps --index-url "$cpu_index" -r "$locks/torch-cpu.lock"
else
  install --require-hashes -r "$locks/torch.lock"
fi
