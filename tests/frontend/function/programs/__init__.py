"""The corpus of programs: small plain Python functions with arguments, grouped by language feature."""
