"""The cache of tern's builds and computed files.

Each entry is a folder or a file. It is complete or absent, never half written.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ternhost.files import replacing, storage_errors

T = TypeVar("T")
RECORD = "record.json"
OWN = "data"  # the kind of entries that a user has put there
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
    """Return the content of a file in the cache; compute it anew if it is absent or damaged.

    read: reads the content from a path. make: computes it. write: writes it to the path that it is
    called with. If the cache is not writable, the content is returned all the same.
    """
    with suppress(Exception):  # whatever a damaged file may cause
        return read(path)
    content = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            write(temporary, content)
    return content


@dataclass(frozen=True)
class Recipe:
    """What determines a build: builds of the same name, version and options share an entry.

    If any of them changes, the key of the entry is another one, and the build is made anew.
    products: the files that an entry must contain, relative to its folder.
    """

    name: str
    version: str
    options: Mapping[str, Any]
    products: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name of the entry's folder: name, version, and the beginning of a hash of options."""
        text = json.dumps(self.options, sort_keys=True)
        options_hash = hashlib.sha256(text.encode()).hexdigest()
        return f"{self.name}-{self.version}-{options_hash[:12]}"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
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
    """Return the folder of an entry; None if it is absent, damaged or changed since its build."""
    if read_record(recipe) is None:
        return None
    return cache_root() / recipe.key


def build_entry(
    recipe: Recipe, make: Callable[[Path, Path], Mapping[str, str]], progress: Progress
) -> Path:
    """Return the folder of the entry of `recipe`, built by `make(work, out)` if it is absent.

    make: works in the folder `work`, leaves the products in the folder `out`, and returns the
    version or SHA-256 of each input by name, for the record. progress: called with a message if
    this process has to wait. If several processes need an entry, one builds it and the others wait.
    A build that fails or is killed leaves no entry. Raises StorageError.
    """
    root = cache_root()
    with storage_errors("set TERN_CACHE to a writable folder", f"cannot create the cache {root}"):
        root.mkdir(parents=True, exist_ok=True)
    with _lock(root / f"{recipe.key}.lock", progress):
        intact = find_entry(recipe)
        if intact is not None:
            return intact
        # This process holds the lock, so a build that was killed has left these folders.
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
            shutil.rmtree(entry, ignore_errors=True)  # there may be a damaged one
            product_folder.rename(entry)  # at once, so that the entry is complete
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return entry


def _places(kind: str) -> list[Path]:
    """Return the files and folders of a kind of cache entries.

    kind: one of KINDS. Builds are in the root of the cache, each beside its lock file, by which
    they differ from folders that a user has put there.
    """
    root = cache_root()
    if kind != "emulators":
        folder = root / kind
        if folder.exists():
            return [folder]
        return []
    build_names = {lock.stem for lock in root.glob("*.lock")}
    builds = []
    for path in sorted(root.glob("*/")):
        name = _build_name(path)
        if name in build_names:
            builds.append(path)
    return builds


def _build_name(folder: Path) -> str:
    """Return the name of a build from that of its folder.

    An unfinished build is in a folder with ".tmp-" and random characters after the name.
    """
    name, _, _ = folder.name.partition(".tmp-")
    return name


def sizes() -> dict[str, int]:
    """Return how many bytes the entries of each kind take."""
    bytes_of_kind = {}
    for kind in KINDS:
        bytes_of_kind[kind] = sum(_size(place) for place in _places(kind))
    return bytes_of_kind


def _size(place: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    total = 0
    for path in (place, *place.rglob("*")):
        if path.is_file():
            total += path.lstat().st_size
    return total


def clear(kinds: Iterable[str]) -> list[str]:
    """Delete the entries of these kinds from the cache.

    Returns the names of builds that another process is making, which are not deleted. Raises
    StorageError if something cannot be deleted.
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
            lock = path.with_name(f"{_build_name(path)}.lock")
            try:
                if lock.exists():
                    with _lock(lock, do_not_wait):
                        _delete(path)
                else:
                    _delete(path)
            except BlockingIOError:
                under_way.append(path.name)
    return under_way


def _delete(path: Path) -> None:
    """Delete a folder with its content. Of a symbolic link, only the link is deleted."""
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
