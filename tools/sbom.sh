#!/bin/bash
# Writes dist/sbom/TARGET-TAG.cdx.json, the Python packages of an image as CycloneDX: `sbom.sh TARGET TAG image|locks`.
# image: what heterotp/TARGET:TAG holds; locks: what TARGET installs by default, for an image that was not built.
# Fails where it cannot be written: no image goes without one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$1 tag=$2 from=$3
out=${SBOM_DIR:-dist/sbom}/$target-$tag.cdx.json
cyclonedx=${CYCLONEDX:-.venv/bin/cyclonedx-py}
[ -x "$cyclonedx" ] || { echo "error: no SBOM of $target: $cyclonedx is not there: run make setup" >&2; exit 1; }
list=$(mktemp)
trap 'rm -f "$list"' EXIT

locks() { # the lock files of TARGET
  case $target in
    operator) echo operator ;;
    trainer) echo trainer torch ;;
    trainer-cuda) echo trainer torch ;;
    trainer-hf) echo trainer torch hf ;;
    *) echo "error: no SBOM of $target: no such image" >&2; return 1 ;;
  esac
}
pins() { # LOCK: its packages without hashes; of torch's those that locks/install-torch.sh installs
  local lines
  lines=$(sed -n 's/^\([A-Za-z0-9].*[^ ]\) *\\$/\1/p' "locks/$1.lock")
  if [ "$1" = torch ] && [ "$target" != trainer-cuda ] && [ -f locks/torch-cpu.lock ]; then
    grep -vE '^(torch|triton|nvidia-|cuda-)' <<<"$lines"
    pins torch-cpu
  else
    echo "$lines"
  fi
}
if [ "$from" = image ]; then
  "${DOCKER:-docker}" run --rm --entrypoint python3 "heterotp/$target:$tag" \
    -m pip list --disable-pip-version-check --format=freeze >"$list"
else
  names=$(locks)
  for name in $names; do pins "$name"; done | sort -u >"$list"
fi
grep -q '==' "$list" || { echo "error: no SBOM of $target: no package is listed" >&2; exit 1; }
mkdir -p "$(dirname "$out")"
"$cyclonedx" requirements "$list" --pyproject pyproject.toml --of JSON -o "$out"
