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
    """Load the files that `argv` names before its command; return them and the rest of it.

    Raises UsageError.
    """
    files, rest = [], list(argv)
    while rest and rest[0].partition("=")[0] == FLAG:
        _, equals, path = rest.pop(0).partition("=")
        if not equals and rest:
            path = rest.pop(0)
        load(path)
        files.append(path)
    late = re.search(rf"{FLAG}[= ](\S+\.py)(?!\S)", " ".join(rest))
    if late:
        hint = f"tern {FLAG} {late[1]} {rest[0]} ..."
        raise UsageError(f"{FLAG} {late[1]} must stand before the command", hint=hint)
    return files, rest


def with_files(hint: str, files: Sequence[str], commands: Iterable[str]) -> str:
    """A hint whose command lines load the files of this start again."""
    beginning = "tern "
    for path in files:
        beginning += f"{FLAG} {shlex.quote(path)} "
    return re.sub(rf"\btern (?=({'|'.join(commands)})\b)", lambda _: beginning, hint)


def load(path: str) -> None:
    """Import a Python file, and register what it defines for tern.

    Learners, mechanisms, extensions and optimisers are registered under their `name`, an optimiser
    without one under its class name in lower case, a fleet under the first word of its `form`, a
    link under its `scheme`. Raises UsageError.
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
