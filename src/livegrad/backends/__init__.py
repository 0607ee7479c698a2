"""Where functions and plans run."""
