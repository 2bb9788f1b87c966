"""What a board prints instead of an answer, in a sentence: an ESP32's boot ROM gives reasons, and
other programs talk.

The lines of the ROM and of the second-stage boot loader are those of ESP-IDF ("Fatal Errors" and
"Boot Log" of its programming guide, and `bootloader_support`).
"""

import re
from collections import Counter

_SHOWN_CHARACTERS = 60  # of a line
_SENT = b"import umachine as _M"  # in what the host sends to get a prompt
_RESET = re.compile(r"^rst:0x[0-9a-f]+ \(", re.MULTILINE)  # the ROM's line at each start
_SMALL_FLASH = re.compile(
    r"Detected size\((\d+)k\) smaller than the size in the binary image header\((\d+)k\)"
)
_AGAIN = "flash it again with tern flash"
# How a line starts, and the cause that it shows. Where a board prints several, the first one here
# explains the others.
_CAUSES = (
    (
        r"Brownout detector",
        "its supply voltage drops too low (brownout): try another cable, port or supply",
    ),
    (
        r"waiting for download\s*$",
        "it waits in its boot loader: release BOOT (GPIO 0), and press reset",
    ),
    (
        r"invalid header: ",
        f"it has no firmware, or one for another chip (invalid header): {_AGAIN}",
    ),
    (r"E .*exceeds flash chip size", f"its firmware is for a larger flash than it has: {_AGAIN}"),
    (
        r"E .*(Failed to verify partition table|No bootable app|Image hash failed)",
        f"its firmware is damaged: {_AGAIN}",
    ),
    (r"flash read err", f"it cannot read its flash (flash read err): {_AGAIN}"),
    (r"csum err", f"its firmware is damaged (csum err): {_AGAIN}"),
    (r"Guru Meditation Error", f"its firmware crashes (Guru Meditation Error): {_AGAIN}"),
    (r"(abort\(\) was called|assert failed)", f"its firmware crashes (abort): {_AGAIN}"),
    (r"rst:0x\w+ \(\w*WDT", f"its watchdog resets it, since its program hangs: {_AGAIN}"),
    (
        r"The filesystem appears to be corrupted",
        "its file system is damaged, and MicroPython waits for somebody to act",
    ),
)
# The sentences about other programs, which flashing does not end: see is_firmware_missing().
_NO_TEXT = "it sends bytes that are no text: is it another device, or another baud rate?"
_ECHO = "it sends back what it is sent: is it another device?"


def describe(output: bytes) -> str:
    """Describe what a board has printed, in a sentence without its full stop; "" for nothing.

    It names a cause that the boot ROM gives. Without one, it shows the line that came most often.
    """
    text = output.decode(errors="replace").replace("\r", "\n")
    cause = _cause(text)
    if len(_RESET.findall(text)) > 1:
        restarts = "it restarts again and again"
        return f"{restarts}, {cause}" if cause else restarts
    if cause:
        return cause
    if _SENT in output:
        return _ECHO
    return _most_frequent_line(text) if _is_text(output) else _NO_TEXT


def is_firmware_missing(output: bytes) -> bool:
    """Return whether a board that printed this needs a firmware.

    It does if it printed nothing, or what the boot ROM prints without a firmware.
    """
    text = output.decode(errors="replace").replace("\r", "\n")
    return not output.strip(b"\0\r\n") or bool(_RESET.search(text) or _cause(text))


def _cause(text: str) -> str:
    """Return why a board does not start, according to its boot ROM; "" if the ROM gives no reason."""
    if size := _SMALL_FLASH.search(text):
        flash, firmware = (_megabytes(int(kilobytes)) for kilobytes in size.groups())
        return (
            f"its flash has {flash}, and its firmware is for {firmware}: flash the one for {flash}"
        )
    for start_of_line, cause in _CAUSES:
        if re.search(f"^{start_of_line}", text, re.MULTILINE):
            return cause
    return ""


def _megabytes(kilobytes: int) -> str:
    """A size of flash, for people."""
    return f"{kilobytes // 1024} MB" if kilobytes >= 1024 else f"{kilobytes} KB"


def _is_text(output: bytes) -> bool:
    """Whether at least half of these bytes are printable; the ends of lines do not count."""
    within_lines = output.translate(None, b"\r\n")
    printable = sum(byte in b"\t\x1b" or 32 <= byte < 127 for byte in within_lines)
    return 2 * printable >= len(within_lines)


def _most_frequent_line(text: str) -> str:
    """Return the line that a program prints most often, as a sentence; "" if there is none."""
    times_printed = Counter(line.strip() for line in text.split("\n") if line.strip())
    if not times_printed:
        return ""
    line, count = times_printed.most_common(1)[0]
    shown = line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "..."
    return f"it prints {shown!r} again and again" if count > 1 else f"it prints {shown!r}"
