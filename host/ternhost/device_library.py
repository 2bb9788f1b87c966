"""The device library on the host, where it is the package `tern`, as on boards.

Another package may have that name: one in the folder that Python starts in, one on PYTHONPATH, or
the folder `tern` that `git clone` makes. Then that package keeps the name, and tern's own modules
get the device library under the name PRIVATE: whenever one of them imports `tern`.

This is done by replacing `builtins.__import__`, since Python looks a module up by its name alone,
and not by who imports it. It is not replaced where `tern` is the device library.
"""

import builtins
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

PUBLIC = "tern"
PRIVATE = "ternhost.tern"
_A_MODULE = "wire.py"  # a folder with this file is taken for the device library
# The packages whose modules get the device library when they import `tern`. PRIVATE is within one.
_packages: set[str] = set()


def provide(package: str) -> None:
    """Make sure that modules of `package` that import `tern` get the device library.

    Each package of tern calls this in its __init__.
    """
    _packages.add(package)
    is_loaded_already = PRIVATE in sys.modules
    if not is_loaded_already and not _is_library(_found()):
        _load(PRIVATE)
        builtins.__import__ = _Import(builtins.__import__)


def module(name: str) -> ModuleType:
    """Return the module of the device library that boards call `name`, such as "tern.wire"."""
    if PRIVATE in sys.modules:
        name = _private(name)
    return import_module(name)


def _found() -> Sequence[str]:
    """Return the folders of the package that `import tern` would import here; none without one."""
    loaded = sys.modules.get(PUBLIC)
    if loaded is not None:
        return list(getattr(loaded, "__path__", ()))
    for finder in sys.meta_path:
        spec = finder.find_spec(PUBLIC, None)
        if spec is not None:
            return list(spec.submodule_search_locations or ())
    return ()


def _is_library(folders: Sequence[str]) -> bool:
    """Return whether one of these folders of a package is the device library."""
    return any(os.path.isfile(os.path.join(folder, _A_MODULE)) for folder in folders)


def _location() -> str:
    """Return the folder of the device library.

    In an installed wheel it is beside this package; in a checkout it is in the folder `firmware`.
    """
    packages = os.path.dirname(os.path.dirname(__file__))
    beside = os.path.join(packages, PUBLIC)
    if _is_library([beside]):
        return beside
    return os.path.join(os.path.dirname(packages), "firmware", PUBLIC)


def _load(name: str) -> None:
    """Import the device library as a package of this name."""
    import importlib.util  # here, so that `import ternhost` is fast

    folder = _location()
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    sys.modules[name] = library
    spec.loader.exec_module(library)


def _private(name: str) -> str:
    """Return the name of a module of the device library under PRIVATE instead of PUBLIC."""
    return PRIVATE + name.removeprefix(PUBLIC)


class _Import:
    """`__import__`, for which `tern` is the device library if a module of tern imports it."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module as `__import__` does, with the device library for tern's own modules.

        The parameters are those of `__import__`.
        """
        is_absolute = level == 0
        is_library = is_absolute and (name == PUBLIC or name.startswith(f"{PUBLIC}."))
        if not (is_library and _is_own(globals)):
            imported: ModuleType = self._original(name, globals, locals, fromlist, level)
            return imported

        if fromlist:  # `from tern.wire import X` needs the module itself
            part: ModuleType = self._original(_private(name), globals, locals, fromlist, 0)
            return part
        # `import tern.wire` imports the module, but binds the name `tern` to the package.
        self._original(_private(name), globals, locals, (PUBLIC,), 0)
        return sys.modules[PRIVATE]


def _is_own(importer: Mapping[str, Any] | None) -> bool:
    """Return whether these are the globals of a module of tern. importer: None if it has none."""
    if importer is None:
        return False
    name = importer.get("__package__") or importer.get("__name__") or ""
    return name.partition(".")[0] in _packages
