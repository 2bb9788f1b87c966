"""Makes a release of the commit in dist: sdist, wheel and two SBOMs (CycloneDX), one of the wheel
and what it can need, and one of what `tern board deploy` puts on each kind of board. `make release` runs
this.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import HeaderParser
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tern
from terntools.boards import mpy, software
from terntools.emulators.micropython import MICROPYTHON_VERSION

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "tools/locks/dev.txt"  # the extras include dev


def build(source, out):
    """Build the sdist of a folder, and the wheel from this sdist.

    Returns their paths in the folder `out`.
    """
    sdist = _built("sdist", source, out)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-xf", sdist, "-C", folder], check=True)
        (unpacked,) = Path(folder).iterdir()
        return sdist, _built("wheel", unpacked, out)


def _built(kind, source, out):
    code = f"import sys; from setuptools.build_meta import build_{kind}; print('\\n' + build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", code, out.absolute()]
    return (
        out
        / subprocess.run(command, cwd=source, check=True, stdout=-1, text=True).stdout.splitlines()[
            -1
        ]
    )


def wheel_bom(wheel):
    """The SBOM of a wheel: all packages that it can need on any platform, by tools/locks.

    Who needs whom is of here.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(name).decode())
    name, lines = headers["Name"], headers.get_all("Requires-Dist")
    required = {*needs_of(name, lines).keys()}
    needs = needs_of(name, lines, headers.get_all("Provides-Extra"))
    root = _package(name, headers["Version"], hashes=[_sha256(wheel.read_bytes())])
    components = {name: root}
    for each, version in re.findall(
        r"^([\w.-]+)(?:\[[\w, -]+\])?==([\w.]+)", LOCK.read_text(), re.M
    ):
        scope = ComponentScope.REQUIRED if each in required else ComponentScope.OPTIONAL
        components[each] = _package(each, version, scope=scope)
    bom = Bom(components=[each for each in components.values() if each is not root])
    bom.metadata.component = root
    for parent, children in needs.items():
        bom.register_dependency(components[parent], [components[child] for child in children])
    return bom


def needs_of(name, lines, extras=()):
    """What a package needs here, by these lines of its requirements, and what those need in turn:
    {name: names}.
    """
    needs, todo = {}, [(name, tuple(lines), tuple(extras))]
    seen = {*todo}
    while todo:
        parent, lines, extras = todo.pop()
        children = needs.setdefault(parent, set())
        for one in map(Requirement, lines):
            child = canonicalize_name(one.name)
            applies = not one.marker or any(
                one.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if applies and child != name:
                children.add(child)
                step = child, tuple(metadata.requires(child) or ()), tuple(sorted(one.extras))
                todo += {step} - seen
                seen.add(step)
    return needs


def boards_bom():
    """The SBOM of the files that `tern board deploy` puts on each kind of board, without options."""
    compiler, _, version = mpy.COMPILER.partition("==")
    micropython = [
        Property(name="tern:needed", value=f"{mpy.OLDEST_MICROPYTHON} or later"),
        Property(name="tern:tested", value=MICROPYTHON_VERSION),
    ]
    parts = [
        _package(
            compiler, version, scope=ComponentScope.EXCLUDED, description="compiled the .mpy files"
        ),
        _part("MicroPython", ComponentType.PLATFORM, properties=micropython),
    ]
    for name, board in mpy.BOARDS.items():
        files = [
            _part(path, ComponentType.FILE, f"{name}:{path}", hashes=[_sha256(data)])
            for path, data in software.library_files(board).items()
        ]
        about = [Property(name="tern:processor", value=board.processor)]
        parts.append(_part(name, ComponentType.FIRMWARE, components=files, properties=about))
    bom = Bom(components=parts)
    bom.metadata.component = _part("tern", ComponentType.LIBRARY, version=tern.__version__)
    bom.register_dependency(bom.metadata.component, parts)
    return bom


def _part(name, kind, ref=None, **more):
    return Component(name=name, type=kind, bom_ref=ref or name, **more)


def _package(name, version, **more):
    purl = PackageURL("pypi", None, canonicalize_name(name), version)
    return Component(name=name, version=version, purl=purl, bom_ref=str(purl), **more)


def _sha256(data):
    return HashType(alg=HashAlgorithm.SHA_256, content=sha256(data).hexdigest())


def write(bom, path):
    """Write an SBOM that fits the schema of CycloneDX 1.6; raise ValueError if it does not."""
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"{path.name} does not fit the schema of CycloneDX: {error}")
    path.write_text(text + "\n")


def main():
    git = ["git", "-C", ROOT]
    if changed := subprocess.run(
        [*git, "status", "--short"], check=True, stdout=-1, text=True
    ).stdout:
        sys.exit(f"release: commit these first, since a release is made of a commit:\n{changed}")
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        commit = subprocess.run([*git, "archive", "HEAD"], check=True, stdout=-1).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=commit, check=True)
        wheel = build(Path(folder), out)[1]
    write(wheel_bom(wheel), out / f"{wheel.name}.cdx.json")
    write(boards_bom(), out / f"tern-boards-{tern.__version__}.cdx.json")
    print(*sorted(path.name for path in out.iterdir()), sep="\n")
    print(
        f"release: by hand: try {wheel.name}, tag v{tern.__version__}, push, upload (CONTRIBUTING, Release)"
    )


if __name__ == "__main__":
    main()
