#!/bin/bash
# Debian packages, where there is no Docker yet or an image must be built: Docker, and the tools to make images.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root "Docker and debootstrap are to be installed"
command -v apt-get >/dev/null || die "no Docker answers here, and without apt-get none can be installed: start Docker first"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# apt would start nothing here (no init system); dockerd.sh does
timed "apt-get install" apt-get install -y -qq --no-install-recommends \
  docker.io containerd runc debootstrap iptables iproute2 zstd ca-certificates >/dev/null
