"""Says which rank brought a run down, with the last lines of its log."""

from pathlib import Path

from heterotp_cli.follow import tail

LOG_LINES = 12
