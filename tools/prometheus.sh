#!/bin/bash
# Prometheus and promtool, for the tests of rules and boards: from Debian's packages, where they are not there yet.
set -euo pipefail
command -v promtool >/dev/null && command -v prometheus >/dev/null && exit
die() { echo "prometheus and promtool are missing: $1" >&2; exit 1; }
command -v apt-get >/dev/null || die "install them (2.42 or newer) and put them into the PATH"
[ "$(id -u)" = 0 ] || die "run $0 as root, or install them and put them into the PATH"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends prometheus >/dev/null
