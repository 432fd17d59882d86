"""Carries out a work plan on one rank: the columns that each linear computes, and their measured costs."""
