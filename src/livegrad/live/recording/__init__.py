"""Recordings of live engines: `record` writes edits and frames to a text file, `replay` runs them again.

`record.py` and `replay.py` are the two sides of a file. `describe.py` writes blocks and values, `rebuild.py` makes
them again, with functions from `function_text.py` and numbers, bit for bit, from `exact_values.py`.
"""

from livegrad.live.recording.record import Recording, record
from livegrad.live.recording.replay import Difference, Replay, replay

__all__ = ["Difference", "Recording", "Replay", "record", "replay"]
