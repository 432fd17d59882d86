"""Checkpoints in canonical unit order: files that are whole or not there, and the streaming that fills them."""
