"""Makes a model that people already have tensor-parallel: plan, layers in place, weights from and to disk."""
