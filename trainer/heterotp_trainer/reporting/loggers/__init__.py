"""What a run shows, written by other projects' libraries: one file a library, off the training loop."""
