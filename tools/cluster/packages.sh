#!/bin/bash
# Install Debian packages: Docker and the tools to build images.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root "Docker and debootstrap must be installed"
command -v apt-get >/dev/null || die "no Docker answers here, and without apt-get none can be installed: start Docker first"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# without an init system apt does not start Docker; dockerd.sh does
timed "apt-get install" apt-get install -y -qq --no-install-recommends \
  docker.io containerd runc debootstrap iptables iproute2 zstd ca-certificates >/dev/null
