"""The colours of a terminal, the same as in report.png."""

BUSY, WAIT, STRAGGLER = "#2f6fb3", "#e8a33d", "bold #c8452f"
GOOD, BAD = "#3a8f5c", "#c8452f"
