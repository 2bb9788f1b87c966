"""`tern --with FILE.py`: registers the extensions that a Python file defines, before the command is
parsed.
"""

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ternhost.errors import TernError, UsageError

FLAG = "--with"


def load_named(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Load the files of the --with options before the command.

    Returns the files, and the arguments without these options. Raises UsageError for a file that
    cannot be loaded, and for a --with after the command.
    """
    files, remaining = [], list(argv)
    while remaining and remaining[0].partition("=")[0] == FLAG:
        _, equals, path = remaining.pop(0).partition("=")
        if not equals and remaining:
            path = remaining.pop(0)
        load(path)
        files.append(path)
    misplaced = re.search(rf"{FLAG}[= ](\S+\.py)(?!\S)", " ".join(remaining))
    if misplaced:
        hint = f"tern {FLAG} {misplaced[1]} {remaining[0]} ..."
        raise UsageError(f"{FLAG} {misplaced[1]} must stand before the command", hint=hint)
    return files, remaining


def with_files(hint: str, files: Sequence[str], commands: Iterable[str]) -> str:
    """Insert the --with options of this start into the command lines of a hint.

    hint: words for the user, with commands such as "tern train ...". commands: their names.
    """
    command_start = "tern "
    for path in files:
        command_start += f"{FLAG} {shlex.quote(path)} "
    return re.sub(rf"\btern (?=({'|'.join(commands)})\b)", lambda _: command_start, hint)


def load(path: str) -> None:
    """Import a Python file, and register what it defines for tern.

    Learners, mechanisms, extensions and optimisers are registered under their `name`, an optimiser
    without one under its class name in lower case, a fleet under the first word of its `form`, a
    link under its `scheme`. Raises UsageError if the file cannot be imported.
    """
    file = Path(path)
    spec = importlib.util.spec_from_file_location(f"tern_with_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UsageError(
            f"there is no Python file {path!r}", hint=f"tern {FLAG} FILE.py COMMAND ..."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent.resolve()))  # the file may import modules beside it
    try:
        spec.loader.exec_module(module)
    except TernError:
        raise
    except Exception as error:
        text = f"{path} cannot be imported: {type(error).__name__}: {error}"
        raise UsageError(text, hint="correct the file") from error
    for item in list(vars(module).values()):
        _register(item, spec.name)


def _register(item: Any, module: str) -> None:
    """Register a value of a loaded file, if it extends tern.

    module: the name of the file's module; classes that it only imports are not registered.
    """
    from ternhost.extensions import EXTENSIONS, Extension
    from ternhost.learn.base import ALGORITHMS, Learner
    from ternhost.learn.optimisers import OPTIMISERS
    from ternhost.privacy import mechanisms
    from ternhost.reach.fleet import KINDS, Fleet
    from ternhost.reach.links import SCHEMES, Link

    if isinstance(item, mechanisms.Mechanism):
        mechanisms.REGISTRY.register(item.name, item)
    elif isinstance(item, Extension):
        EXTENSIONS.register(item.name, item)
    elif isinstance(item, type) and item.__module__ == module:  # not an imported class
        if issubclass(item, Learner) and "name" in vars(item):
            ALGORITHMS.register(item.name, item)
        elif issubclass(item, Fleet) and "form" in vars(item):
            KINDS.register(item.form.partition(":")[0], item)
        elif issubclass(item, Link) and "scheme" in vars(item):
            SCHEMES.register(item.scheme, item)
        elif hasattr(item, "step") and hasattr(item, "automatic_rate"):
            OPTIMISERS.register(getattr(item, "name", item.__name__.lower()), item)
