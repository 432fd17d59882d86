#!/bin/bash
# Tests with the real gang schedulers and their controllers (tests/gangs). Builds them and runs each on an API server of its
# own, with nodes that kwok plays. Too slow for `make test`: 6 minutes more where nothing of Go is cached.
#   test-gangs.sh [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE
. tools/stages.sh

stage "programs" tools/cluster/ensure.sh programs || report
stage "gang schedulers" tools/cluster/gang-schedulers.sh build || report
stage "tests with gang schedulers" tests tests/gangs "$@" || true
report
