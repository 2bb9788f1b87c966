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

from ternhost.cli.everywhere import WITH
from ternhost.errors import TernError, UsageError
from ternhost.registry import LOADED_FILES


def with_files(hint: str, files: Sequence[str], commands: Iterable[str]) -> str:
    """Return a hint with the --with options of this start inserted into its command lines.

    So the user can copy a command line such as "tern resume mine" as it stands. hint: words
    for the user. files: the paths of the options. commands: the names of tern's commands.
    """
    command_start = "tern "
    for path in files:
        command_start += f"{WITH} {shlex.quote(path)} "

    def replacement(_match: re.Match[str]) -> str:
        """Return the new text; as a function, since re.sub would read backslashes in a text."""
        return command_start

    names = "|".join(commands)
    return re.sub(rf"\btern (?=({names})\b)", replacement, hint)


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
            f"there is no Python file {path!r}", hint=f"such as tern {WITH} FILE.py COMMAND"
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
    for value in list(vars(module).values()):
        _register(value, spec.name)
    LOADED_FILES[str(file.resolve())] = load


def _register(item: Any, module: str) -> None:
    """Register a value of a loaded file under its name, if it extends tern.

    A mechanism and an extension are objects; all others are classes, which are recognised by what
    they inherit from or, for an optimiser, by its methods. item: the value. module: the name of the
    file's module; classes that it only imports are not registered.
    """
    from ternhost.extensions import EXTENSIONS, Extension
    from ternhost.learn.base import ALGORITHMS, Learner
    from ternhost.learn.models.optimisers import OPTIMISERS
    from ternhost.privacy import mechanisms
    from ternhost.reach.fleet import KINDS, Fleet
    from ternhost.reach.links import SCHEMES, Link

    if isinstance(item, mechanisms.Mechanism):
        mechanisms.REGISTRY.register(item.name, item)
    elif isinstance(item, Extension):
        EXTENSIONS.register(item.name, item)

    is_own_class = isinstance(item, type) and item.__module__ == module
    if not is_own_class:
        return
    # A class without a name of its own, such as a common base of others, is not registered.
    own_attributes = vars(item)
    if issubclass(item, Learner) and "name" in own_attributes:
        ALGORITHMS.register(item.name, item)
    elif issubclass(item, Fleet) and "form" in own_attributes:
        kind, _colon, _rest = item.form.partition(":")  # of "folder:PATH" the first word
        KINDS.register(kind, item)
    elif issubclass(item, Link) and "scheme" in own_attributes:
        SCHEMES.register(item.scheme, item)
    elif hasattr(item, "step") and hasattr(item, "automatic_rate"):
        name = getattr(item, "name", item.__name__.lower())
        OPTIMISERS.register(name, item)
