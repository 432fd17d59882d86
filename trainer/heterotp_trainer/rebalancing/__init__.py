"""Carries out a work plan on one rank: which columns each linear computes, and what they cost."""
