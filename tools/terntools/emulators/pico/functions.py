"""The table of the C functions of a firmware, for a profile of the emulated Pico.

It is read from the linker's ELF file, and written as JSON: a list of functions, each of which is a
list of its address, its size in bytes, its name, and the file of its source, such as "py/gc.c".
"""

import bisect
import json
from pathlib import Path
from typing import Any

TABLE = "functions.json"
"""The name of the table beside the firmware."""

_NO_SOURCE = "(linker)"  # it adds functions without a source: jumps between flash and RAM
_ROOTS = ("micropython/", "pico-sdk/", "tinyusb/")  # the names of files are relative to these


def write_table(elf: Path, table: Path) -> None:
    """Write the table of the functions in an ELF file. Raises OSError."""
    table.write_text(json.dumps(_functions_in(elf)) + "\n")


def _functions_in(elf: Path) -> list[tuple[int, int, str, str]]:
    """Return address, size, name and source of the functions in an ELF file, by their addresses."""
    from elftools.elf.elffile import ELFFile  # only builds need it

    with elf.open("rb") as file:
        content = ELFFile(file)
        names = _names_by_address(content.get_section_by_name(".symtab"))
        dwarf = content.get_dwarf_info()
        ranges = dwarf.get_aranges()  # which addresses belong to which source
        if ranges is None:
            raise ValueError(f"{elf} was built without -g: it names no sources")
        files: dict[int, str] = {}
        functions = []
        addresses = sorted(names)
        for address in addresses:
            name, size = names[address]
            if not size:  # functions in assembler may have none, and end where the next one begins
                following = bisect.bisect_right(addresses, address)
                size = addresses[following] - address if following < len(addresses) else 2
            unit = ranges.cu_offset_at_addr(address)
            if unit is not None and unit not in files:
                top = dwarf.get_CU_at(unit).get_top_DIE()
                files[unit] = _relative(top.attributes["DW_AT_name"].value.decode())
            source = _NO_SOURCE if unit is None else files[unit]
            functions.append((address, size, name, source))
    return functions


def _names_by_address(symbols: Any) -> dict[int, tuple[str, int]]:
    """Return the name and the size of each function in a table of symbols, by its address.

    Of several names for one function, the table has the first one in alphabetical order.
    """
    names: dict[int, tuple[str, int]] = {}
    for symbol in symbols.iter_symbols():
        is_function = symbol["st_info"]["type"] == "STT_FUNC"
        if not is_function or symbol["st_shndx"] == "SHN_UNDEF":
            continue
        address = symbol["st_value"] & ~1  # its last bit says that the code is Thumb
        entry = (symbol.name, symbol["st_size"])
        names[address] = min(names.get(address, entry), entry)
    return names


def _relative(path: str) -> str:
    """Return the path of a source file below the root of its project."""
    for root in _ROOTS:
        _, found, rest = path.rpartition(f"/{root}")
        if found:
            return rest
    return path
