"""Runs the operator with seconds instead of minutes before it acts on a gang that makes no progress."""

import runpy

from heterotp_operator import progress_watch
from heterotp_operator.reconcile import progress

progress.PATIENCE_SECONDS = 0.5
progress_watch.CUT_OFF_SECONDS = 3.0
runpy.run_module("heterotp_operator", run_name="__main__", alter_sys=True)
