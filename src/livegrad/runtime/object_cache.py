"""The disk cache of object code: a directory of checksummed files by key, bounded in size and shared by processes.

I/O errors are never raised: they count as misses or failed stores in `stats()`.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from livegrad.ir.dimension import round_up
from livegrad.state import Owned, renew_lock_after_fork

FORMAT_VERSION = 1
MAGIC = b"livegrad"
_HEADER = struct.Struct("<8sIQ32s32s")  # magic, format version, payload length, key, checksum of the payload
_SUFFIX = ".object"
_TEMPORARY_SUFFIX = ".partial"
_TALLY_NAME = "tally"
_TALLY_UNIT = 4096  # stored bytes for each byte of the tally file
_KEEP_SHARE = 0.75  # of the limit, after an eviction
_MAX_INLINE_SCAN = 4096  # units of the tally; larger directories are evicted from on a background thread
_TOUCH_SECONDS = 3600.0  # a hit updates the file's time only if that is older


@dataclass(frozen=True)
class CacheSettings:
    directory: Path | None  # None: cache nothing
    max_bytes: int = 512 * 1024 * 1024

    @staticmethod
    def from_environment() -> CacheSettings:
        """LIVEGRAD_CACHE_DIR (empty: no cache), else the platform's cache directory."""
        chosen = os.environ.get("LIVEGRAD_CACHE_DIR")
        if chosen is not None:
            return CacheSettings(Path(chosen) if chosen else None)
        if sys.platform == "darwin":
            base = Path("~/Library/Caches")
        elif sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        try:
            return CacheSettings(base.expanduser() / "livegrad")
        except RuntimeError:  # no home directory
            return CacheSettings(None)


@dataclass(frozen=True)
class CacheStats:
    loaded: int = 0
    missed: int = 0
    stored: int = 0
    evicted: int = 0
    rejected: int = 0  # truncated, corrupted or foreign files
    unavailable: int = 0  # reads and writes that the file system refused


class ObjectCache:
    """Files named by key. All methods are safe to call from several threads and processes."""

    def __init__(self, settings: CacheSettings) -> None:
        self.settings = settings
        self._stats = CacheStats()
        self._count_lock = threading.Lock()
        self._evicting = threading.Lock()  # held by the background thread
        renew_lock_after_fork(self, "_count_lock")
        renew_lock_after_fork(self, "_evicting")

    def stats(self) -> CacheStats:
        return self._stats

    def path_of(self, key: bytes) -> Path | None:
        """The path of the object for `key`, whether or not it exists."""
        name = self._file_name(key)
        return None if name is None else Path(name)

    def load(self, key: bytes) -> bytes | None:
        """The object for `key`, or None."""
        name = self._file_name(key)
        if name is None:
            return None
        try:
            with open(name, "rb", buffering=0) as file:
                content = file.read()
                modified = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            self._count(missed=1)
            return None
        except OSError:
            self._count(missed=1, unavailable=1)
            return None
        payload = _checked_payload(content, key)
        if payload is None:
            self._count(missed=1, rejected=1)
            return None
        self._count(loaded=1)
        if time.time() - modified > _TOUCH_SECONDS:
            self._touch(name)
        return payload

    def store(self, key: bytes, payload: bytes) -> None:
        """Writes the object for `key` atomically, and evicts old ones above the size limit."""
        name = self._file_name(key)
        if name is None:
            return
        header = _HEADER.pack(MAGIC, FORMAT_VERSION, len(payload), key, hashlib.sha256(payload).digest())
        try:
            _write_atomically(name, header + payload)
            self._count(stored=1)
            self._limit_size(len(header) + len(payload))
        except OSError:
            self._count(unavailable=1)

    def reject(self, key: bytes) -> None:
        """Counts the object for `key` as unusable; the next `store` replaces it."""
        self._count(loaded=-1, missed=1, rejected=1)

    def _file_name(self, key: bytes) -> str | None:
        directory = self.settings.directory
        return None if directory is None else f"{directory}{os.sep}{key.hex()}{_SUFFIX}"

    def _touch(self, name: str) -> None:
        try:
            os.utime(name)
        except OSError:
            self._count(unavailable=1)

    def _limit_size(self, size: int) -> None:
        """Adds `size` to the directory's tally, and scans the directory only if the tally exceeds the limit.

        The tally is a file whose length counts the bytes that all processes have stored. Appending to it is atomic and
        takes microseconds; a scan takes milliseconds. The tally may overcount (a key written twice), until a scan
        corrects it.
        """
        tally = f"{self.settings.directory}{os.sep}{_TALLY_NAME}"
        descriptor = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            is_new = os.fstat(descriptor).st_size == 0
            os.write(descriptor, b"\0" * -(-size // _TALLY_UNIT))
            units = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if not is_new and units * _TALLY_UNIT <= self.settings.max_bytes:
            return
        if units <= _MAX_INLINE_SCAN:
            self._evict_and_recount(tally)
        elif self._evicting.acquire(blocking=False):
            # Scanning a hundred thousand files takes seconds, or a minute from a cold disk, so no caller waits for it.
            thread = threading.Thread(
                target=self._evict_in_background, args=(tally,), name="livegrad-evict", daemon=True
            )
            thread.start()

    def _evict_in_background(self, tally: str) -> None:
        """Evicts on a background thread. If the process ends first, a later one continues."""
        lock = self._evicting
        try:
            self._evict_and_recount(tally)
        except OSError:
            self._count(unavailable=1)
        finally:
            lock.release()

    def _evict_and_recount(self, tally: str) -> None:
        """Evicts objects, and sets the tally to the bytes that remain."""
        os.truncate(tally, -(-self._evict() // _TALLY_UNIT) + 1)

    def _evict(self) -> int:
        """Removes the least recently used objects if the directory exceeds its limit; returns the bytes that remain."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        if total <= self.settings.max_bytes:
            return total
        for _, size, path in files:
            if total <= self.settings.max_bytes * _KEEP_SHARE:
                break
            try:
                os.unlink(path)
            except FileNotFoundError:  # another process removed it
                total -= size
                continue
            except OSError:
                self._count(unavailable=1)
                continue
            total -= size
            self._count(evicted=1)
        return total

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yields (time of last use, bytes on disk, path) of each object, and removes files of killed writers."""
        abandoned_before = time.time() - _TOUCH_SECONDS
        with os.scandir(self.settings.directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        yield status.st_mtime, round_up(status.st_size, _TALLY_UNIT), entry.path
                    elif entry.name.endswith(_TEMPORARY_SUFFIX) and status.st_mtime < abandoned_before:
                        os.unlink(entry.path)
                except FileNotFoundError:
                    continue

    def _count(self, **changes: int) -> None:
        with self._count_lock:
            now = self._stats
            self._stats = replace(now, **{name: getattr(now, name) + change for name, change in changes.items()})


_default = Owned(lambda: ObjectCache(CacheSettings.from_environment()))


def default_cache() -> ObjectCache:
    """The cache of the session, which `compile_kernel` uses by default."""
    return _default.current


def set_default_cache(cache: ObjectCache) -> ObjectCache:
    """Replaces the default cache of the session, and returns the previous one."""
    return _default.replace(cache)


def _checked_payload(content: bytes, key: bytes) -> bytes | None:
    if len(content) < _HEADER.size:
        return None
    magic, version, length, stored_key, checksum = _HEADER.unpack_from(content)
    payload = content[_HEADER.size :]
    is_ours = magic == MAGIC and version == FORMAT_VERSION and stored_key == key and length == len(payload)
    return payload if is_ours and hashlib.sha256(payload).digest() == checksum else None


def _write_atomically(name: str, content: bytes) -> None:
    directory = os.path.dirname(name)
    os.makedirs(directory, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(suffix=_TEMPORARY_SUFFIX, dir=directory)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            written = file.write(content)
        if written != len(content):
            raise OSError(f"wrote {written} of {len(content)} bytes to {temporary}")
        os.replace(temporary, name)
    except OSError:
        os.unlink(temporary)
        raise
