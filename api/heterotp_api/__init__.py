"""The shared language of HeteroTP: names, the three kinds, the two documents. Imports pydantic only."""
