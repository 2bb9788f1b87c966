"""The files of a board: look at them, and write them whole."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from terntools.boards import room
from terntools.boards.prompt_errors import ExecutionError

if TYPE_CHECKING:
    from terntools.boards.repl import Repl

_CHUNK = 1536  # bytes of a file in one command

FileProgress = Callable[[int, int], None]  # bytes sent, bytes in all


class Files:
    """The files of a board, which code on the board reads and writes."""

    def __init__(self, repl: Repl) -> None:
        """repl: the prompt of the board, which runs the code."""
        self._repl = repl

    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes in bytes of the files under `path`, at any depth, by their whole path.

        The result is empty if there is no such directory. The name of a file may be any bytes;
        bytes that are not UTF-8 become surrogates, as in Python's os (PEP 383).
        """
        top_folder = path.rstrip("/").encode()
        code = (
            "import uos\n"
            # A list and no recursion, since folders may be nested deeper than calls.
            f"_folders = [{top_folder!r}]\n"
            "while _folders:\n"
            " _folder = _folders.pop()\n"
            " try:\n"
            # With b'/', names would be text, and would have to be UTF-8.
            "  _entries = uos.ilistdir(_folder or b'/.')\n"
            " except OSError:\n"
            "  continue\n"
            " for _name, _kind, *_rest in _entries:\n"
            "  _path = _folder + b'/' + _name\n"
            "  if _kind & 0x4000:\n"  # a folder
            "   _folders.append(_path)\n"
            # Some file systems list the size of a file, as the fourth item; stat() has it always.
            "  else:\n"
            "   _tell((_path, _rest[1] if len(_rest) > 1 else uos.stat(_path)[6]))\n"
        )
        sizes = {}
        for name, size in self._repl.values(code):
            sizes[name.decode(errors="surrogateescape")] = size
        return sizes

    def read(self, path: str) -> bytes:
        """Return the content of a file on the board. Raises ExecutionError and DeviceError.

        It comes in parts, as Base64, since the raw REPL prints text.
        """
        self._repl.run(f"from ubinascii import b2a_base64 as _b\n_f = open({path!r}, 'rb')")
        data = b""
        while True:
            part = b64decode(self._repl.value(f"_tell(_b(_f.read({_CHUNK})))"))
            if not part:
                break
            data += part
        self._repl.run("_f.close()")
        return data

    def digests(self, paths: Sequence[str]) -> dict[str, str]:
        """Return a digest of each file that exists, by path, which the board computes.

        A digest is the first 8 bytes of the SHA-256, in hexadecimal digits.
        """
        code = (
            "import uhashlib\n"
            "_b = bytearray(512)\n"
            "_m = memoryview(_b)\n"
            f"for _p in {tuple(paths)!r}:\n"
            " try:\n"
            "  with open(_p, 'rb') as _f:\n"
            "   _h = uhashlib.sha256()\n"
            "   while _n := _f.readinto(_b):\n"
            "    _h.update(_m[:_n])\n"
            "   _tell((_p, _h.digest()[:8].hex()))\n"
            " except OSError:\n"
            "  pass\n"
        )
        return dict(self._repl.values(code, timeout=60.0))

    def write(self, path: str, data: bytes, progress: FileProgress | None = None) -> None:
        """Write a file to the board, with the folders that it needs.

        It is written under a temporary name and then renamed, so that an interruption leaves the
        old file or the new one, never half of one. Raises StorageError if the board's flash has no
        room for it.
        """
        temporary_path = path + ".new"
        try:
            self._write_new(temporary_path, data, progress)
            self._repl._run(f"import uos\nuos.rename({temporary_path!r}, {path!r})")
        except ExecutionError as error:
            if not error.means_full:
                raise
            # What was written would take the room that is left, such as for the old program.
            self._repl._run("try:\n _f.close()\nexcept Exception:\n pass")
            self.remove(temporary_path)
            raise room.full_error(self._repl) from error

    def _write_new(self, path: str, data: bytes, progress: FileProgress | None) -> None:
        """Write a file, with the folders that it needs. Raises ExecutionError."""
        folders = path.strip("/").split("/")[:-1]
        # Make the folders (errno 17: it exists already), and open the file.
        self._repl._run(
            "import uos\n_p = ''\n"
            f"for _s in {folders!r}:\n"
            " _p += '/' + _s\n"
            " try:\n"
            "  uos.mkdir(_p)\n"
            " except OSError as _e:\n"
            "  if _e.errno != 17:\n"
            "   raise\n"
            f"from ubinascii import a2b_base64 as _b\n_f = open({path!r}, 'wb')"
        )
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            self._repl._run(f"_f.write(_b({b64encode(part)!r}))")
            if progress:
                progress(start + len(part), len(data))
        self._repl._run("_f.close()\ndel _f, _b")

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        self._repl.run(f"import uos\ntry:\n uos.remove({path!r})\nexcept OSError:\n pass")

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content; nothing happens if there is none.

        The board first lists all folders, from the top down, and removes their files; then it
        removes the empty folders in the opposite order.
        """
        self._repl.run(
            "import uos\n"
            # A list and no recursion, since folders may be nested deeper than calls.
            f"_folders = [{path.encode()!r}]\n"
            "for _folder in _folders:\n"  # the list grows meanwhile
            " try:\n"
            "  _entries = list(uos.ilistdir(_folder))\n"
            " except OSError:\n"
            "  continue\n"
            " for _name, _kind, *_rest in _entries:\n"
            "  if _kind & 0x4000:\n"
            "   _folders.append(_folder + b'/' + _name)\n"
            "  else:\n"
            "   uos.remove(_folder + b'/' + _name)\n"
            "for _folder in reversed(_folders):\n"
            " try:\n"
            "  uos.rmdir(_folder)\n"
            " except OSError:\n"
            "  pass\n"
        )
