"""Memory of results: exact values that can be keys, a bounded store of memos, and results kept on disk."""
