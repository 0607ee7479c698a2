"""Sessions of a live engine as text files: `record` writes edits and frames down, `replay` makes them again."""

from livegrad.live.recording.record import Recording, record
from livegrad.live.recording.replay import Difference, Replay, replay

__all__ = ["Difference", "Recording", "Replay", "record", "replay"]
