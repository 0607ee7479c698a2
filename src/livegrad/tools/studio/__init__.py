"""The Studio: a page in the browser that shows a live engine, turns its numbers and edits its graph.

Read it in this order: `open_studio.py` (the public function), `subjects.py` (what can be shown), `engine_thread.py`
(steps, edits and publishes), `describe.py` and `values.py` (the engine as JSON), `edits.py` (what a page may do),
`server.py` and `gate.py` (sockets, and who may open one). The front end's sources are in `studio/` of the repository.
"""
