"""What a board prints instead of an answer, in a sentence: an ESP32's boot ROM gives reasons, and other programs talk.

The lines of the ROM and of the second-stage boot loader are those of ESP-IDF ("Fatal Errors" and "Boot Log" of its
programming guide, and `bootloader_support`)."""

import re
from collections import Counter

_SHOWN_CHARACTERS = 60  # of a line
_RESET = re.compile(r"^rst:0x[0-9a-f]+ \(", re.MULTILINE)  # the ROM's line at each start
_SMALL_FLASH = re.compile(
    r"Detected size\((\d+)k\) smaller than the size in the binary image header\((\d+)k\)"
)
# A part of a line, and the cause that it shows. Where a board prints several, the first one here explains the others.
_CAUSES = (
    ("Brownout detector", "its supply voltage drops too low (brownout): try another cable, port or supply"),
    ("waiting for download", "it waits in its boot loader: release BOOT (GPIO 0), and press reset"),
    (
        "invalid header",
        "it has no firmware, or one for another chip (invalid header): install it with tern flash",
    ),
    ("No bootable app partitions", "it has no firmware that it can start: install one with tern flash"),
    ("flash read err", "it cannot read its flash (flash read err): flash it again with tern flash"),
    ("csum err", "its firmware is damaged (csum err): flash it again with tern flash"),
    ("Guru Meditation Error", "its firmware crashes (Guru Meditation Error): flash it again with tern flash"),
)


def describe(output: bytes) -> str:
    """A sentence without its full stop about what a board has printed; "" if it printed nothing readable.

    It names a cause that the boot ROM gives. Without one, it shows the line that came most often."""
    text = output.decode(errors="replace").replace("\r", "\n")
    cause = _cause(text)
    if len(_RESET.findall(text)) > 1:
        restarts = "it restarts again and again"
        return f"{restarts}, {cause}" if cause else restarts
    return cause or _most_frequent_line(text)


def _cause(text: str) -> str:
    """Why a board does not start, according to its boot ROM; "" if the ROM gives no reason."""
    if size := _SMALL_FLASH.search(text):
        flash_mb, firmware_mb = (int(kilobytes) // 1024 for kilobytes in size.groups())
        return f"its flash has {flash_mb} MB, and its firmware is for {firmware_mb} MB: flash the one for {flash_mb} MB"
    for part_of_line, cause in _CAUSES:
        if part_of_line in text:
            return cause
    return ""


def _most_frequent_line(text: str) -> str:
    """The line that a program prints most often, as a sentence; "" if no line has a letter or a digit."""
    times_printed: Counter[str] = Counter()
    for line in text.split("\n"):
        if any(character.isalnum() for character in line):
            times_printed[line.strip()] += 1
    if not times_printed:
        return ""
    line, times = times_printed.most_common(1)[0]
    shown = line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "..."
    return f"it prints {shown!r} again and again" if times > 1 else f"it prints {shown!r}"
