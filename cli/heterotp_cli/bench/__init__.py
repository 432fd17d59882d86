"""`heterotp bench paper`: the paper's figures beside the paper's numbers."""
