"""What a run shows: status, metrics, history and report. Reporting decides nothing and owns no input."""
