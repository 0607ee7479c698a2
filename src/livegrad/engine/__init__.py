"""What runs graphs: execution of lazy values, caches, the live engine."""
