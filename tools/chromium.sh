#!/bin/bash
# Install Chromium, which tests of web pages need, from a Debian package if it is missing.
set -euo pipefail
command -v chromium >/dev/null && exit
die() { echo "chromium is missing: $1" >&2; exit 1; }
command -v apt-get >/dev/null || die "install it and add it to PATH"
[ "$(id -u)" = 0 ] || die "run $0 as root, or install it and add it to PATH"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
