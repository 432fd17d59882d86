#!/bin/bash
usage() {
  cat <<'U'
tools/test-bare.sh [--demo-only] [--keep] [--shared-docker]

Runs both commands of the README, `make demo` and `make test`, as on a machine that has nothing cached: in a fresh
clone of the last commit, with HOME and every cache (XDG, Go, pip, uv, npm, Matplotlib, the cluster's programs, Docker's
images) in one new folder. Prints the time of each step, stops what it started and removes the folder, also on failure
and on Ctrl-C. Package managers read the settings of this machine as before. Needs some 25 GB in TMPDIR (/tmp) and,
with two cores, 90 minutes.

  --demo-only      only `make setup` and `make demo`
  --keep           leave the folder; what was started is stopped all the same
  --shared-docker  go on where a Docker answers already: its images count as caches

Not bare: Debian packages, which are installed into the system and stay (docker.io, debootstrap, prometheus ...).
U
}
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
demo_only='' keep='' shared_docker=''
for option; do
  case $option in
  --demo-only) demo_only=1 ;;
  --keep) keep=1 ;;
  --shared-docker) shared_docker=1 ;;
  --help | -h) usage; exit ;;
  *) usage >&2; exit 2 ;;
  esac
done

if [ -z "$demo_only$shared_docker" ] && docker info >/dev/null 2>&1; then
  echo "a Docker answers here, and its images count as caches:" \
    "stop it (tools/cluster/dockerd.sh stop) or pass --shared-docker" >&2
  exit 2
fi
[ -z "$(git -C "$root" status --porcelain)" ] || echo "uncommitted changes are left out: the last commit is cloned" >&2

work=$(mktemp -d "${TMPDIR:-/tmp}/heterotp-bare-XXXXXX")
clone=$work/heterotp
step=
failed=
table=()

mounts() { awk -v under="$work/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r; }

clean_up() {
  trap '' INT TERM
  if [ -n "$step" ]; then # interrupted: `make test` takes down its cluster itself
    kill -TERM -- "-$step" 2>/dev/null || true
    wait "$step" 2>/dev/null || true
  fi
  local state
  if [ -d "$CLUSTER_DIR/run" ]; then # what a killed test run left
    for state in "$CLUSTER_DIR"/run/cp-*; do
      [ ! -e "$state" ] || "$clone/tools/cluster/cp-down.sh" "${state##*/cp-}" || true
    done
    [ ! -f "$CLUSTER_DIR/run/dockerd.pid" ] || {
      CLUSTER_NAME=heterotp-test "$clone/tools/cluster/kind-down.sh" || true
      "$clone/tools/cluster/dockerd.sh" stop || true
    }
  fi
  while read -r state; do umount "$state" || umount --lazy "$state" || true; done < <(mounts)
  if [ -n "$keep" ]; then echo "left: $work" >&2; return; fi
  chmod -R u+w "$work" 2>/dev/null || true # Go's module cache is read-only
  rm -rf "$work" || echo "cannot be removed: $work" >&2
}

settings() { # NAME FILE...: an unset variable names the first of the files that is there
  local name=$1 file; shift
  [ -z "${!name:-}" ] || return 0
  for file; do [ ! -e "$file" ] || { export "$name=$file"; return; }; done
}

bare() { # from here on HOME and every cache are in the new folder; where registries are configured stays known
  local part
  settings PIP_CONFIG_FILE "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf"
  settings UV_CONFIG_FILE "${XDG_CONFIG_HOME:-$HOME/.config}/uv/uv.toml"
  settings NPM_CONFIG_USERCONFIG "$HOME/.npmrc"
  settings NETRC "$HOME/.netrc"
  settings DOCKER_CONFIG "$HOME/.docker"
  settings GIT_CONFIG_GLOBAL "$HOME/.gitconfig" "${XDG_CONFIG_HOME:-$HOME/.config}/git/config"
  command -v go >/dev/null && settings GOENV "$(go env GOENV)"
  PATH=${PATH//"${CLUSTER_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/heterotp-cluster}/bin:"/}
  unset MAKEFLAGS MAKELEVEL VIRTUAL_ENV PYTHONPATH PYTHONHOME
  unset KUBECONFIG HETEROTP_KIND_KUBECONFIG KEEP_CLUSTER CLUSTER_NAME HOST_PATH
  export HOME=$work/home TMPDIR=$work/tmp CLUSTER_DIR=$work/cluster
  export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config XDG_DATA_HOME=$work/data XDG_STATE_HOME=$work/state
  export GOPATH=$work/go GOCACHE=$work/go-build GOMODCACHE=$work/go/pkg/mod
  export PIP_CACHE_DIR=$work/pip UV_CACHE_DIR=$work/uv npm_config_cache=$work/npm MPLCONFIGDIR=$work/matplotlib
  for part in home tmp cache config data state; do mkdir "$work/$part"; done
}

run() { # TARGET: make it in the clone, and note its time
  local start=$SECONDS code=0
  set -m # a process group of its own, to be ended as a whole
  STAGE_TIMES=$work/stages make -C "$clone" "$1" &
  step=$!
  set +m
  wait "$step" || code=$?
  step=
  table+=("$(printf '%6d s  make %s%s' $((SECONDS - start)) "$1" "$([ "$code" = 0 ] || echo ": failed ($code)")")")
  [ "$code" = 0 ] || failed=1
}

bare
trap 'exit 130' INT
trap 'exit 143' TERM
trap clean_up EXIT
git clone -q "$root" "$clone"
run setup
[ -n "$failed" ] || run demo
[ -n "$failed$demo_only" ] || run test
echo "times on $(nproc) cores, commit $(git -C "$clone" rev-parse --short HEAD):"
printf '%s\n' "${table[@]}"
[ ! -f "$work/stages" ] || sed 's/^/         /' "$work/stages"
[ -z "$failed" ]
