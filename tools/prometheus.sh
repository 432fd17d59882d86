#!/bin/bash
# Install Prometheus and promtool, which tests of rules and boards need, from Debian packages if they are missing.
set -euo pipefail
command -v promtool >/dev/null && command -v prometheus >/dev/null && exit
die() { echo "prometheus and promtool are missing: $1" >&2; exit 1; }
command -v apt-get >/dev/null || die "install version 2.42 or newer and add it to PATH"
[ "$(id -u)" = 0 ] || die "run $0 as root, or install them and add them to PATH"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends prometheus >/dev/null
