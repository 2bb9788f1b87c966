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
    override = os.environ.get("TERN_CACHE")
    if override:
        return Path(override).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "tern"


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

    products: the files that an entry must contain, relative to its folder.
    """

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
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            hashes[path.relative_to(folder).as_posix()] = sha256_of(path)
    return hashes


def read_record(recipe: Recipe) -> dict[str, Any] | None:
    """The record of an entry; None if the entry is absent, damaged or changed since its build."""
    entry = cache_root() / recipe.key
    try:
        record: dict[str, Any] = json.loads((entry / RECORD).read_text())
        for name in recipe.products:
            if record["sha256"][name] != sha256_of(entry / name):
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record


def find_entry(recipe: Recipe) -> Path | None:
    """The folder of an entry; None if it is absent, damaged or changed since its build."""
    return cache_root() / recipe.key if read_record(recipe) else None


def build_entry(
    recipe: Recipe, make: Callable[[Path, Path], Mapping[str, str]], progress: Progress
) -> Path:
    """Return the folder of the entry of `recipe`, built by `make(work, out)` if it is absent.

    `make` works in the folder `work`, leaves the products in the folder `out` and returns the
    version or sha256 of each input by name, for the record. If several processes need an entry, one
    builds it and the others wait. A build that fails or is killed leaves no entry. Raises
    StorageError.
    """
    root = cache_root()
    with storage_errors("set TERN_CACHE to a writable folder", f"cannot create the cache {root}"):
        root.mkdir(parents=True, exist_ok=True)
    with _lock(root / f"{recipe.key}.lock", progress):
        intact = find_entry(recipe)
        if intact is not None:
            return intact
        # This process holds the lock, so a killed build has left these.
        for abandoned in root.glob(f"{recipe.key}.tmp-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{recipe.key}.tmp-", dir=root))
        try:
            work, out = temporary / "work", temporary / "out"
            work.mkdir()
            out.mkdir()
            record = {
                "name": recipe.name,
                "version": recipe.version,
                "options": recipe.options,
                "built_with": dict(make(work, out)),
                "sha256": {name: sha256_of(out / name) for name in recipe.products},
            }
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
        folder = root / kind
        return [folder] if folder.exists() else []
    locks = {lock.stem for lock in root.glob("*.lock")}
    return [path for path in sorted(root.glob("*/")) if path.name.partition(".tmp-")[0] in locks]


def sizes() -> dict[str, int]:
    """The bytes of each kind of entries."""
    return {kind: sum(map(_size, _places(kind))) for kind in KINDS}


def _size(place: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    return sum(path.lstat().st_size for path in (place, *place.rglob("*")) if path.is_file())


def clear(kinds: Iterable[str]) -> list[str]:
    """Delete the entries of these kinds.

    Returns the names of builds under way, which stay. Raises StorageError.
    """

    def stay(message: str) -> None:
        raise BlockingIOError

    places: list[Path] = []
    for kind in kinds:
        places += _places(kind)
    under_way = []
    with storage_errors("check who may write there"):
        for path in places:
            lock = path.with_name(f"{path.name.partition('.tmp-')[0]}.lock")
            try:
                with _lock(lock, stay) if lock.exists() else nullcontext():
                    _delete(path)
            except BlockingIOError:
                under_way.append(path.name)
    return under_way


def _delete(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


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
