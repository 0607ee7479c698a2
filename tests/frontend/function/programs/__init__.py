"""The corpus: small plain Python functions with arguments, grouped by what they show."""
