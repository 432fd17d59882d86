"""The board `heterotp-straggler`: one module per row."""
