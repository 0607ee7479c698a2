"""Recordings of live engines: `record` writes edits and frames to a text file, `replay` runs them again."""

from livegrad.live.recording.record import Recording, record
from livegrad.live.recording.replay import Difference, Replay, replay

__all__ = ["Difference", "Recording", "Replay", "record", "replay"]
