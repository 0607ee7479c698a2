"""Edits of a running plan: what changed, the cheapest update level that is correct for it, and the plan after it."""
