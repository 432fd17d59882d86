"""Decisions about who computes how much: pure functions of what was measured."""
