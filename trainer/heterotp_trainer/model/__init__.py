"""Models built from tensor-parallel layers."""
