"""Who belongs to a gang that may lose ranks: how a loss is seen, agreed on, and the groups made anew (docs/elastic.md).

A rank keeps the number that it started with, its origin; its rank in a generation is its place among the members.
"""
