"""What a board prints instead of an answer, told in a sentence: an ESP32's boot ROM gives reasons, other programs talk.

The lines of the ROM and of the second-stage boot loader are those of ESP-IDF ("Fatal Errors" and "Boot Log" of its
programming guide, and `bootloader_support`)."""

import re
from collections import Counter

_SHOWN = 60  # characters of a line
_RESET = re.compile(r"^rst:0x[0-9a-f]+ \(", re.MULTILINE)
_SMALL_FLASH = re.compile(
    r"Detected size\((\d+)k\) smaller than the size in the binary image header\((\d+)k\)"
)
# What a line says about the cause, in the order in which a cause explains the lines behind it.
_CAUSES = (
    ("Brownout detector", "its supply voltage drops too low (brownout): try another cable, port or supply"),
    ("waiting for download", "it waits in its boot loader: release BOOT (GPIO 0), and press reset"),
    ("invalid header", "it has no firmware, or one for another chip (invalid header): tern flash"),
    ("No bootable app partitions", "it has no firmware that it can start: tern flash"),
    ("flash read err", "it cannot read its flash (flash read err): tern flash"),
    ("csum err", "its firmware is damaged (csum err): tern flash"),
    ("Guru Meditation Error", "its firmware crashes (Guru Meditation Error): tern flash"),
)


def describe(output: bytes) -> str:
    """A sentence without its full stop about what a board has printed; "" if it printed nothing to be read."""
    text = output.decode(errors="replace").replace("\r", "\n")
    causes = []
    if size := _SMALL_FLASH.search(text):
        found, wanted = (int(kilobytes) // 1024 for kilobytes in size.groups())
        causes.append(
            f"its flash has {found} MB, and its firmware is for {wanted} MB: flash the one for {found} MB"
        )
    causes += [cause for sign, cause in _CAUSES if sign in text]
    restarts = len(_RESET.findall(text))
    if restarts > 1:
        return ", ".join(["it restarts again and again", *causes[:1]])
    if causes:
        return causes[0]
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line and any(letter.isalnum() for letter in line)]
    if not lines:
        return ""
    line, times = Counter(lines).most_common(1)[0]
    again = " again and again" if times > 1 else ""
    shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
    return f"it prints {shown!r}{again}"
