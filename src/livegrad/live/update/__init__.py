"""Updates of a running plan: what changed, the cheapest correct update level, and the next plan."""
