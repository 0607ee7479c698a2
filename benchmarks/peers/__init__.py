"""The peers, each in a worker process of its own that runs in `.venv-peers`."""
