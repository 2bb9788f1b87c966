"""What a profile of the emulated Pico needs to know of a program: the symbols of its C functions.

They are read from the linker's ELF file, and written as JSON. An entry "functions" is a list, by
address, in which a function is a list of its address, its size in bytes, its name, and the file of
its source, such as "py/gc.c". MicroPython has one more entry, "names": where it keeps the names of
Python functions. "last_pool" is the address of the pointer to the last pool of names, and "qstrs" the
offset of the names in a pool.
"""

import bisect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Function = tuple[int, int, str, str]
"""A C function: its address, its size in bytes, its name, and the file of its source."""

# The names of sources are relative to these folders.
_ROOTS = ("micropython/", "pico-sdk/", "tinyusb/", "emulators/")
_NO_SOURCE = "(linker)"  # the source of jumps between flash and RAM, which the linker adds
_FUNCTION_OF_NO_SIZE = 2  # bytes, if it is the last one


def write(elf: Path, symbols: Path, has_names: bool) -> None:
    """Write the symbols of an ELF file that was compiled with -g.

    has_names: it is MicroPython, which has names of Python functions. Raises OSError.
    """
    from elftools.elf.elffile import ELFFile  # only builds need it

    with elf.open("rb") as file:
        content = ELFFile(file)
        dwarf = content.get_dwarf_info()
        table = content.get_section_by_name(".symtab")
        found: dict[str, Any] = {"functions": _functions(table, dwarf)}
        if has_names:
            found["names"] = _names(table, dwarf)
    symbols.write_text(json.dumps(found) + "\n")


def read(symbols: Sequence[Path]) -> list[Function]:
    """Return the functions of several files that `write` wrote, one file after the other."""
    functions = []
    for path in symbols:
        functions += json.loads(path.read_text())["functions"]
    return functions


def _functions(table: Any, dwarf: Any) -> list[Function]:
    """Return the functions in a table of symbols, by their addresses."""
    names = _names_by_address(table)
    addresses = sorted(names)
    ranges = dwarf.get_aranges()  # which addresses belong to which source
    sources: dict[int, str] = {}
    functions = []
    for address in addresses:
        name, size = names[address]
        if not size:  # functions in assembler may have none, and end where the next one begins
            following = bisect.bisect_right(addresses, address)
            size = _FUNCTION_OF_NO_SIZE
            if following < len(addresses):
                size = addresses[following] - address
        source = _NO_SOURCE
        unit = ranges.cu_offset_at_addr(address)
        if unit is not None:
            if unit not in sources:
                top = dwarf.get_CU_at(unit).get_top_DIE()
                sources[unit] = _relative(top.attributes["DW_AT_name"].value.decode())
            source = sources[unit]
        functions.append((address, size, name, source))
    return functions


def _names_by_address(table: Any) -> dict[int, tuple[str, int]]:
    """Return the name and the size of each function in a table of symbols, by its address.

    Of several names for one function, the first one in alphabetical order is returned.
    """
    names: dict[int, tuple[str, int]] = {}
    for symbol in table.iter_symbols():
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
    return path.replace("../", "")


def _names(table: Any, dwarf: Any) -> dict[str, int]:
    """Return where MicroPython keeps names; see the comment at the top."""
    (state,) = table.get_symbol_by_name("mp_state_ctx")
    last_pool = state["st_value"]
    last_pool += _offset(dwarf, "_mp_state_ctx_t", "vm")
    last_pool += _offset(dwarf, "_mp_state_vm_t", "last_pool")
    return {"last_pool": last_pool, "qstrs": _offset(dwarf, "_qstr_pool_t", "qstrs")}


def _offset(dwarf: Any, structure: str, member: str) -> int:
    """Return the offset in bytes of a member of a structure that py/qstr.c knows."""
    for entry in _entries_of_qstr(dwarf):
        if entry.tag != "DW_TAG_structure_type" or _name(entry) != structure:
            continue
        for child in entry.iter_children():
            if _name(child) == member:
                offset: int = child.attributes["DW_AT_data_member_location"].value
                return offset
    raise LookupError(f"the ELF file has no member {member} of {structure}")


def _entries_of_qstr(dwarf: Any) -> Iterator[Any]:
    """Yield the debugging entries of py/qstr.c, MicroPython's source for names."""
    for unit in dwarf.iter_CUs():
        if _name(unit.get_top_DIE()).endswith("/py/qstr.c"):
            yield from unit.iter_DIEs()


def _name(entry: Any) -> str:
    """Return the name of a debugging entry; "" if it has none."""
    attribute = entry.attributes.get("DW_AT_name")
    if attribute is None:
        return ""
    name: str = attribute.value.decode()
    return name
