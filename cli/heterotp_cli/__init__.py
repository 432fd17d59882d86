"""The command line of HeteroTP; every command imports what it needs when it runs."""
