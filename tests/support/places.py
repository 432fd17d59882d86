"""Folders of the project, and those in which tools/cluster keeps programs and the state of what runs."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
_CLUSTER = Path(os.environ.get("CLUSTER_DIR", _CACHE / "heterotp-cluster"))
BIN, RUN = _CLUSTER / "bin", _CLUSTER / "run"
FILES_OF_GANG_SCHEDULERS = _CLUSTER / "gang-schedulers"
RANK_SCRIPTS = Path(__file__).with_name("ranks")  # scripts that tests run as the ranks of a gang
