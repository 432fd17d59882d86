"""Dashboards, recording rules and alerts as code; `generate` writes what is checked in."""
