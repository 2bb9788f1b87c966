"""The cache of tern's builds and computed files: each entry is a folder or file that is complete or
absent.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ternhost.files import replacing, storage_errors

T = TypeVar("T")
RECORD = "record.json"
OWN = "data"  # the kind that a user has put there
KINDS = {
    "emulators": "emulated boards and what they were built from",
    "datasets": "data sets, as tern reads them",
    "optima": "models without privacy, to compare with",
    OWN: "files of data sets that you have put there",
}
Progress = Callable[[str], None]


def cache_root() -> Path:
    """The folder of the cache: $TERN_CACHE, else `tern` under $XDG_CACHE_HOME, else under ~/.cache."""
    if override := os.environ.get("TERN_CACHE"):
        return Path(override).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "tern"


def kept_file(
    path: Path, read: Callable[[Path], T], make: Callable[[], T], write: Callable[[Path, T], None]
) -> T:
    """The content of a file in the cache.

    If it is absent or damaged, `make` computes it and `write` keeps it, unless the cache is not
    writable.
    """
    with suppress(Exception):
        return read(path)
    content = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            write(temporary, content)
    return content


@dataclass(frozen=True)
class Recipe:
    """The key of a build: builds of the same name, version and options share an entry.

    products: the files that an entry must contain, relative to its folder."""

    name: str
    version: str
    options: Mapping[str, Any]
    products: tuple[str, ...]

    @property
    def key(self) -> str:
        text = json.dumps(self.options, sort_keys=True)
        return f"{self.name}-{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sha256_of_tree(folder: Path) -> dict[str, str]:
    """The sha256 of every file under `folder`, by its relative path."""
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}


def read_record(recipe: Recipe) -> dict[str, Any] | None:
    """The record of the entry of `recipe`; None if the entry is absent, damaged or changed since
    its build.
    """
    entry = cache_root() / recipe.key
    try:
        record: dict[str, Any] = json.loads((entry / RECORD).read_text())
        intact = all(record["sha256"][name] == sha256_of(entry / name) for name in recipe.products)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if intact else None


def find_entry(recipe: Recipe) -> Path | None:
    """The folder of the entry of `recipe`; None if it is absent, damaged or changed since its
    build.
    """
    return cache_root() / recipe.key if read_record(recipe) else None


def build_entry(
    recipe: Recipe, make: Callable[[Path, Path], Mapping[str, str]], progress: Progress
) -> Path:
    """Return the folder of the entry of `recipe`, built by `make(work, out)` if it is absent.

    Raises StorageError.

    `make` works in the folder `work`, leaves the products in the folder `out` and returns the
    version or sha256 of each input by name, for the record. If several processes need an entry, one
    builds it and the others wait. A build that fails or is killed leaves no entry.
    """
    root = cache_root()
    with storage_errors("set TERN_CACHE to a writable folder", f"cannot create the cache {root}"):
        root.mkdir(parents=True, exist_ok=True)
    with _lock(root / f"{recipe.key}.lock", progress):
        if entry := find_entry(recipe):
            return entry
        for abandoned in root.glob(
            f"{recipe.key}.tmp-*"
        ):  # by a killed build: this process holds the lock
            shutil.rmtree(abandoned, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{recipe.key}.tmp-", dir=root))
        try:
            work, out = temporary / "work", temporary / "out"
            work.mkdir()
            out.mkdir()
            record = {"name": recipe.name, "version": recipe.version, "options": recipe.options}
            record["built_with"] = dict(make(work, out))
            record["sha256"] = {name: sha256_of(out / name) for name in recipe.products}
            (out / RECORD).write_text(json.dumps(record, indent=2) + "\n")
            entry = root / recipe.key
            shutil.rmtree(entry, ignore_errors=True)  # a damaged one
            out.rename(entry)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return entry


def _places(kind: str) -> list[Path]:
    """The folders of a kind.

    Builds, each with a lock, are beside the others, and perhaps beside a user's folders.
    """
    root = cache_root()
    if kind != "emulators":
        return [path for path in [root / kind] if path.exists()]
    locks = {lock.stem for lock in root.glob("*.lock")}
    return [path for path in sorted(root.glob("*/")) if path.name.partition(".tmp-")[0] in locks]


def sizes() -> dict[str, int]:
    """The bytes of each kind of entries."""
    files = {
        kind: (path for place in _places(kind) for path in (place, *place.rglob("*")))
        for kind in KINDS
    }
    return {
        kind: sum(path.lstat().st_size for path in files[kind] if path.is_file()) for kind in KINDS
    }


def clear(kinds: Iterable[str]) -> list[str]:
    """Delete the entries of these kinds.

    Returns the names of builds under way, which stay. Raises StorageError.
    """

    def stay(message: str) -> None:
        raise BlockingIOError

    left = []
    with storage_errors("check who may write there"):
        for path in (path for kind in kinds for path in _places(kind)):
            lock = path.with_name(f"{path.name.partition('.tmp-')[0]}.lock")
            try:
                with _lock(lock, stay) if lock.exists() else nullcontext():
                    path.unlink() if path.is_symlink() else shutil.rmtree(path)
            except BlockingIOError:
                left.append(path.name)
    return left


@contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    import fcntl  # absent on Windows, where nothing is built

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that builds the same")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
