"""MicroPython's newest release as WebAssembly, which runs the device library as bytecode.

It is the package that MicroPython's developers publish, in Node.js. This port cannot run machine
code, so viper functions run as their plain twins. It has double-precision floats, a heap that
grows, and neither a flash nor sockets.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ternhost import cache
from ternhost.cache import Progress, Recipe
from ternhost.errors import DeviceError
from terntools.emulators import debian, micropython
from terntools.emulators.debian import Requirement, Shell

_HERE = Path(__file__).parent
PLAIN_WORDS = _HERE / "plain_words.py"
_PACKAGE = "@micropython/micropython-webassembly-pyscript"
_VERSION = json.loads((_HERE / "package.json").read_text())["dependencies"][_PACKAGE]
_NODE_FILES = ("runner.mjs", "package.json", "package-lock.json")
_PRODUCTS = tuple(
    f"node_modules/{_PACKAGE}/{name}" for name in ("micropython.mjs", "micropython.wasm")
)
RECIPE = Recipe(
    name="webassembly",
    version=_VERSION,
    options={name: cache.sha256_of(_HERE / name) for name in _NODE_FILES},
    products=("runner.mjs", *_PRODUCTS),
)
_REQUIREMENTS = (Requirement("nodejs", "node"), Requirement("npm", "npm"))


def build(progress: Progress) -> Path:
    """Return the folder of the interpreter; npm fetches it unless it is there.

    As root, Debian packages that this needs are installed. progress: shows the user a line about a
    step. Raises UsageError and BuildError.
    """
    debian.install(_REQUIREMENTS, progress)

    def fetch(work: Path, out: Path) -> Mapping[str, str]:
        progress(f"fetching {_PACKAGE} {_VERSION} with npm")
        for name in _NODE_FILES:
            shutil.copy(_HERE / name, out)
        shell = Shell(work / "build.log", progress)
        shell.run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=out)
        return {"node": micropython.version_of("node")}

    return cache.build_entry(RECIPE, fetch, progress)


def command(folder: Path, program: str, heap: int) -> list[str]:
    """Return the command that runs a Python program with the files of a folder, see runner.mjs.

    heap: bytes with which the heap begins. Raises DeviceError if the interpreter is not there.
    """
    entry = cache.find_entry(RECIPE)
    if entry is None:
        hint = "fetch it: tern emulator build webassembly"
        raise DeviceError("there is no MicroPython for WebAssembly yet", hint)
    return ["node", str(entry / "runner.mjs"), str(folder), str(heap), program]


def plain_twin(text: str) -> str:
    """Return a module's text with its viper functions as plain Python; no line moves.

    The device library takes the types that such functions convert with from tern.compat. Of these,
    ptr32 sees bytes as words: the twin takes it from PLAIN_WORDS, which has to be beside the library.
    """
    text = re.sub(r"^ *@micropython\.viper$", "", text, flags=re.MULTILINE)
    return text.replace(
        "ptr8 = ptr16 = ptr32 = None  # known to the viper compiler",
        f"from {PLAIN_WORDS.stem} import ptr8, ptr16, ptr32",
    )
