"""Undo and redo: `changes.py` has a record for each kind of edit, `history.py` keeps them in entries.

What a document contains can be undone. Changes are undone by ordinary edits, so listeners, recordings and updates of
the plan need to know nothing of it.
"""

from livegrad.live.history.history import Gesture, History, HistoryEntry

__all__ = ["Gesture", "History", "HistoryEntry"]
