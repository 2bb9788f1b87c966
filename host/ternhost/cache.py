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
    """Return the cache's folder: $TERN_CACHE, or `tern` in $XDG_CACHE_HOME or ~/.cache."""
    named_folder = os.environ.get("TERN_CACHE")
    if named_folder:
        return Path(named_folder).absolute()
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache_home.is_absolute():
        cache_home = Path.home() / ".cache"
    return cache_home / "tern"


def kept_file(
    path: Path, read: Callable[[Path], T], make: Callable[[], T], write: Callable[[Path, T], None]
) -> T:
    """Return the content of a file in the cache, computed anew if it is absent or damaged.

    `make` computes the content, and `write` writes it to the path that it gets. It is not kept if
    the cache is not writable.
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
    """Return the SHA-256 of every file under `folder`, by its relative path."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            hashes[path.relative_to(folder).as_posix()] = sha256_of(path)
    return hashes


def read_record(recipe: Recipe) -> dict[str, Any] | None:
    """Return the record of an entry; None if the entry is absent, damaged or changed."""
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
            work_folder, product_folder = temporary / "work", temporary / "out"
            work_folder.mkdir()
            product_folder.mkdir()
            record = {
                "name": recipe.name,
                "version": recipe.version,
                "options": recipe.options,
                "built_with": dict(make(work_folder, product_folder)),
                "sha256": {name: sha256_of(product_folder / name) for name in recipe.products},
            }
            (product_folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
            entry = root / recipe.key
            shutil.rmtree(entry, ignore_errors=True)  # a damaged one
            product_folder.rename(entry)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return entry


def _places(kind: str) -> list[Path]:
    """Return the files and folders of a kind of cache entries.

    Builds are in the root of the cache, each beside its lock. The folders of a user may be there
    too.
    """
    root = cache_root()
    if kind != "emulators":
        folder = root / kind
        return [folder] if folder.exists() else []
    build_names = {lock.stem for lock in root.glob("*.lock")}
    builds = []
    for path in sorted(root.glob("*/")):
        name = path.name.partition(".tmp-")[0]  # without what an unfinished build appends
        if name in build_names:
            builds.append(path)
    return builds


def sizes() -> dict[str, int]:
    """The bytes of each kind of entries."""
    return {kind: sum(map(_size, _places(kind))) for kind in KINDS}


def _size(place: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    return sum(path.lstat().st_size for path in (place, *place.rglob("*")) if path.is_file())


def clear(kinds: Iterable[str]) -> list[str]:
    """Delete the entries of these kinds.

    Returns the names of builds under way, which stay. Raises StorageError if something cannot be
    deleted.
    """

    def do_not_wait(message: str) -> None:
        """Give up on an entry whose lock another process holds."""
        raise BlockingIOError

    places: list[Path] = []
    for kind in kinds:
        places += _places(kind)
    under_way = []
    with storage_errors("check who may write there"):
        for path in places:
            lock = path.with_name(f"{path.name.partition('.tmp-')[0]}.lock")
            try:
                with _lock(lock, do_not_wait) if lock.exists() else nullcontext():
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
    """Hold the lock of a build while the context is open.

    progress: called with a message before this process waits for another one.
    """
    import fcntl  # absent on Windows, where nothing is built

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that builds the same")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
