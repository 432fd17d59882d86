"""HeteroTP's trainer; users of the library import `heterotp`."""
