"""Where the project is, and where tools/cluster keeps its programs and what runs."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
_CLUSTER = Path(os.environ.get("CLUSTER_DIR", _CACHE / "heterotp-cluster"))
BIN, RUN = _CLUSTER / "bin", _CLUSTER / "run"
RANK_SCRIPTS = Path(__file__).with_name("ranks")  # what tests run as the processes of a gang
