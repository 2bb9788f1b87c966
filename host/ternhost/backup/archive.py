"""The archive of a backup: a tar file, which is read with distrust."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ternhost.backup import manifest as manifests
from ternhost.backup.manifest import Manifest, SavedFile
from ternhost.errors import StorageError, UsageError
from ternhost.files import private, storage_errors

_PIECE = 1 << 20  # bytes that are read at a time
_LARGEST_MANIFEST = 256 << 20  # bytes
_KEPT_MODE = 0o755  # the bits of a mode that a restored file keeps
_DAMAGED = "is cut or damaged"
_HINT = "use another backup"


def describe(path: Path) -> SavedFile:
    """Return the size, the hash and the mode of a file. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        status = os.fstat(file.fileno())
    return SavedFile(status.st_size, digest.hexdigest(), status.st_mode & 0o777)


def write(path: Path, manifest: Manifest, sources: Mapping[str, Path]) -> None:
    """Write a new archive, and check that it can be read.

    Only its owner can read it, since it holds keys. sources: the files by their names in the
    archive, those that the manifest describes. Raises OSError and StorageError.
    """
    with open(path, "xb", opener=private) as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            text = manifest.encode()
            archive.addfile(_member(manifests.NAME, len(text), manifest), io.BytesIO(text))
            for name, source in sources.items():
                size = manifest.files[name].size
                with open(source, "rb") as source_file:
                    archive.addfile(_member(name, size, manifest), source_file)
        file.flush()
        os.fsync(file.fileno())
    with opened(path) as (_manifest, members):
        for _name, content in members:
            for _piece in content:
                pass  # reading checks it


def _member(name: str, size: int, manifest: Manifest) -> tarfile.TarInfo:
    """Return the header of a member of an archive. It names no user of this machine."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o600
    member.mtime = int(manifest.saved)
    return member


@contextmanager
def opened(path: Path) -> Iterator[tuple[Manifest, Iterator[tuple[str, Iterator[bytes]]]]]:
    """Open an archive: yield its manifest, and its files as pairs of a name and the content.

    The content comes in pieces, all of which must be read before the next file. The files are
    checked as they are read, and after the last one whether there were all. Raises UsageError if
    the file is no backup, StorageError if it cannot be read or is damaged.
    """
    if not path.is_file():
        raise UsageError(f"there is no backup {path}", hint="name the file of a backup")
    with storage_errors(what=path), _damage(path):
        try:
            archive = tarfile.open(path, "r:")  # noqa: SIM115 - closed below
        except tarfile.ReadError as error:
            raise _no_backup(path) from error
        with archive:
            manifest = _read_manifest(path, archive)
            yield manifest, _members(path, archive, manifest)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn an error of the format of an archive into StorageError."""
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise StorageError(f"{path} {_DAMAGED}: {error}", hint=_HINT) from error


def _no_backup(path: Path) -> UsageError:
    return UsageError(
        f"{path} is not a backup of tern", hint="'tern backup save DIR FILE' makes one"
    )


def _read_manifest(path: Path, archive: tarfile.TarFile) -> Manifest:
    """Read the manifest, which is the first member of an archive."""
    member = archive.next()
    is_manifest = member is not None and member.name == manifests.NAME and member.isreg()
    if member is None or not is_manifest or member.size > _LARGEST_MANIFEST:
        raise _no_backup(path)
    file = archive.extractfile(member)
    assert file is not None
    data = file.read()
    if len(data) < member.size:
        raise StorageError(f"{path} {_DAMAGED}", hint=_HINT)
    return Manifest.decode(data)


def _members(
    path: Path, archive: tarfile.TarFile, manifest: Manifest
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the name and the content of each file. Raises StorageError if one is not as described."""
    seen = set()
    while (member := archive.next()) is not None:
        name = member.name
        expected = manifest.files.get(name)
        # A sparse file may be far larger than its archive, and tern makes none.
        is_plain = member.isreg() and not member.issparse()
        if expected is None or name in seen or not is_plain or member.size != expected.size:
            raise StorageError(f"{path} has a file that it does not list: {name!r}", hint=_HINT)
        seen.add(name)
        file = archive.extractfile(member)
        assert file is not None
        yield name, _checked(path, name, file, expected)
    missing = sorted(manifest.files.keys() - seen)
    if missing:
        raise StorageError(f"{path} {_DAMAGED}: it lacks {missing[0]}", hint=_HINT)


def _checked(path: Path, name: str, file: IO[bytes], expected: SavedFile) -> Iterator[bytes]:
    """Yield the content of a file in pieces. Raises StorageError if its hash is another one."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != expected.sha256:
        raise StorageError(f"{path} {_DAMAGED}: {name} was changed", hint=_HINT)


def extract(path: Path, directory: Path) -> Manifest:
    """Write all files of an archive into an empty directory, with the modes that they had.

    Raises UsageError and StorageError, as `opened` does. Return the manifest.
    """
    with opened(path) as (manifest, members):
        for name, content in members:
            target = directory / name
            with storage_errors(what=directory.parent, afterwards="then restore it again"):
                _write_file(target, content, manifest.files[name].mode)
    return manifest


def _write_file(target: Path, content: Iterator[bytes], mode: int) -> None:
    """Write a new file. content: in pieces, which are read. mode: that the file had. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(target, "xb", opener=private) as file:
        for piece in content:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(target, 0o600 | mode & _KEPT_MODE)
