"""Carries out a unit plan: moves units, with all state that belongs to them, to their new owners."""
