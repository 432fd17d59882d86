"""Dashboards, recording rules and alerts as code; `generate` writes the checked-in files."""
