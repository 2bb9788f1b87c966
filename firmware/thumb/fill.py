"""firmware/tern/fill.py in ARMv6-M assembler, for Thumb processors."""


@micropython.asm_thumb
def erase(r0, r1):
    """Overwrite a buffer (r0) with zeros: its first r1 bytes, a multiple of 4."""
    mov(r2, 0)
    b(ANY_LEFT)
    label(WORD)
    str(r2, [r0, 0])
    add(r0, 4)
    label(ANY_LEFT)
    sub(r1, 4)
    bpl(WORD)


@micropython.asm_thumb
def count_up(r0, r1, r2):
    """Fill r2 bytes of a buffer (r1) with the numbers after a counter (r0).

    See firmware/tern/fill.py. r1 and r2 become the address of the next number and the end, r3 is
    the address of a byte of the counter, and r4 to r6 are for what is copied.
    """
    add(r2, r1, r2)
    b(ANY_LEFT)
    # Add 1 to the last byte; a byte that becomes 0 carries to the one before.
    label(NUMBER)
    mov(r3, r0)
    add(r3, 16)
    label(CARRY)
    sub(r3, 1)
    ldrb(r4, [r3, 0])
    add(r4, 1)
    strb(r4, [r3, 0])
    lsl(r4, r4, 24)
    bne(COPY)
    cmp(r3, r0)
    bne(CARRY)
    label(COPY)
    ldr(r3, [r0, 0])
    ldr(r4, [r0, 4])
    ldr(r5, [r0, 8])
    ldr(r6, [r0, 12])
    str(r3, [r1, 0])
    str(r4, [r1, 4])
    str(r5, [r1, 8])
    str(r6, [r1, 12])
    add(r1, 16)
    label(ANY_LEFT)
    cmp(r1, r2)
    bne(NUMBER)
