"""Command-line tools and the tour."""
