"""Tensor parallelism with unequal shards: who owns which units, the collectives, the layers."""
