"""What a backup says about itself, in the first file of its archive.

A backup is a tar file. Its first member is the manifest, a JSON object that names every other
member with its size, its hash and its mode. So a restore knows what has to be there, and notices
what is missing, changed or added. The manifest holds the hash of what it says, since no other
member would show that it was changed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Self

from ternhost.errors import StorageError, UsageError

NAME = "backup.json"  # of the member of the archive
FORMAT = 1
STORE_OUTSIDE = "store-of-broker.sqlite"
"""The name in the archive of a broker's store that is not in the broker's directory."""
RUNS = "runs"
"""The folder in the archive of the directories of runs that are not in the saved directory."""

_IS_NONE = "this is not a backup of tern"
_OTHER = "use another backup"
_HASH = "sha256"  # the member of the JSON object with the hash of all others
_LATEST = 253_402_300_799.0  # the last second of the year 9999, in seconds since 1970


@dataclass(frozen=True)
class SavedFile:
    """A file of a backup: its size in bytes, its SHA-256 in hexadecimal digits, and its mode."""

    size: int
    sha256: str
    mode: int


@dataclass(frozen=True)
class StoreFigures:
    """How much a store held when it was saved, by which a copy is compared with it."""

    devices: int  # with a key
    rounds: int
    reports: int
    last_round: int


@dataclass(frozen=True)
class Manifest:
    """What is in a backup. Names of files are relative to the saved directory, divided by "/"."""

    saved: float  # when it was made, in seconds since 1970
    release: str  # of the tern that made it
    schema: int  # the version of the tables of its stores
    directory: str  # the absolute path that was saved
    files: Mapping[str, SavedFile]
    stores: Mapping[str, StoreFigures]  # those of the files that are stores of tern
    runs: Mapping[str, str] = field(default_factory=dict)  # by a run's name its folder
    format: int = FORMAT

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        content = asdict(self)
        return json.dumps(content | {_HASH: _hash_of(content)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a manifest from JSON.

        Raises UsageError if it is none, if a later release of tern made it, or if it names a file
        outside the directory; StorageError if it was changed.
        """
        try:
            content = json.loads(data)
            if content["format"] > FORMAT:
                raise UsageError(
                    f"this backup was made by a later release of tern, {content['release']}",
                    hint="restore it with that release",
                )
            expected = content.pop(_HASH, "")
            manifest = cls(**_with_parts(content))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(_IS_NONE) from error
        for name in [*manifest.files, *manifest.stores, *manifest.runs.values()]:
            check_name(name)
        if _hash_of(content) != expected:
            raise StorageError("this backup is damaged: its manifest was changed", hint=_OTHER)
        return manifest


def _hash_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a manifest says, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _with_parts(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a manifest with their objects in place of dicts.

    Raises ValueError, TypeError, KeyError or AttributeError if something is of another type.
    """
    _require(isinstance(content["saved"], int | float) and 0 <= content["saved"] <= _LATEST)
    _require(type(content["schema"]) is int)
    texts = [content["release"], content["directory"], *content["runs"].values()]
    _require(all(isinstance(text, str) for text in texts))
    files = {name: SavedFile(**saved) for name, saved in content["files"].items()}
    stores = {name: StoreFigures(**figures) for name, figures in content["stores"].items()}
    for saved in files.values():
        _require(type(saved.size) is int and saved.size >= 0)
        _require(type(saved.mode) is int and isinstance(saved.sha256, str))
    return {**content, "files": files, "stores": stores, "runs": dict(content["runs"])}


def _require(is_right: bool) -> None:
    """Raise ValueError unless something in a manifest is as it must be."""
    if not is_right:
        raise ValueError("something is not as in a manifest")


def check_name(name: str) -> None:
    """Raise UsageError unless a name stays within the directory into which it is restored."""
    path = PurePosixPath(name)
    is_inside = not path.is_absolute() and ".." not in path.parts and "\\" not in name
    if not is_inside or "\0" in name or str(path) != name:
        raise UsageError(
            f"this backup holds {name!r}, which is no file of its directory",
            hint=f"somebody has changed it; {_OTHER}",
        )
