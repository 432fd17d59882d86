#!/bin/bash
# Renders a board with Grafana's components, with data of a real Prometheus:
#   draw.sh BOARD.json PROMETHEUS_URL OUT.png [VARIABLE=VALUE...]      environment: MINUTES, END, STEP, RATE, WIDTH (answers.py)
# Prints errors and fails on panels without data, crashes and errors of the page. Needs node, npm and chromium.
set -euo pipefail
[ $# -ge 3 ] || { sed -n 2,4p "$0"; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$here/../../.venv/bin/python
[ -x "$python" ] || python=${PYTHON:-python3}
board=$(realpath "$1") url=$2 out=$(realpath -m "$3")
shift 3
cd "$here"
[ -e node_modules/.package-lock.json ] || npm ci --silent --ignore-scripts
[ page.js -nt page.tsx ] && [ page.js -nt frames.ts ] && [ page.js -nt drawn_here.tsx ] || node build.mjs
height=$("$python" answers.py "$board" "$url" data.js "$@")
page=(chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --hide-scrollbars
  --window-size="${WIDTH:-1600},$height" --virtual-time-budget=10000)
log=$(mktemp)
trap 'rm -f "$log" "$log.dom"' EXIT
"${page[@]}" --screenshot="$out" "file://$here/index.html" >/dev/null 2>&1
"${page[@]}" --enable-logging=stderr --dump-dom "file://$here/index.html" 2>"$log" >"$log.dom"
bad=0
for kind in no-data crash unsupported; do
  count=$(grep -o "data-testid=\"$kind\"" "$log.dom" | wc -l || true)
  echo "$kind: $count"
  bad=$((bad + count))
done
if grep -E 'CONSOLE.*(ERR|Uncaught)' "$log"; then bad=1; fi
exit $((bad > 0))
