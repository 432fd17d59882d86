# Stages of a test run, with their times; to be sourced.
python=.venv/bin/python
failed=
times=

tests() { $python -m pytest -q --durations=15 "$@"; }

stage() { # NAME COMMAND...: run it, note its time, remember and return its failure
  local name=$1 start=$SECONDS code=0; shift
  echo "== $name"
  "$@" || code=$?
  times+=$(printf '%5d s  %s' $((SECONDS - start)) "$name")$'\n'
  [ "$code" = 0 ] || failed+="; $name"
  return "$code"
}

report() { # the time of each stage and what failed; ends the script
  printf '%s' "$times" | tee ${STAGE_TIMES:+"$STAGE_TIMES"}
  [ -z "$failed" ] || { echo "failed: ${failed#; }" >&2; exit 1; }
  exit 0
}
