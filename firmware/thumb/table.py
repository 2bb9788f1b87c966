"""firmware/tern/table.py in ARMv6-M assembler, for Thumb processors.

It makes the same draws from the same bytes.
"""


@micropython.asm_thumb
def table(r0, r1, r2, r3):
    """Draw the symbols of a table card for inputs; see firmware/tern/table.py for what it computes.

    At the start r0 to r3 are the addresses of xs, out, pool and job. A slot of job has four bytes:
    [r3, 4] is job[1], and the thresholds begin at job + 24. While a coordinate is drawn:

    r0   the fraction f of the way from its knot to the next, out of 2**15
    r1   a threshold of the knot
    r2   the end of the random bytes that were read
    r3   31 - p: how many bits of x + 1, at the top of a register, are below those of the knot
    r6   the bytes of the thresholds that are left, four for each
    r7   the bytes of a row of thresholds: the distance to the same threshold of the next knot
    r8   the input
    r9   the end of the inputs, or where the pool ends if each input takes one byte from now on
    r10  the first threshold of the first row
    r11  the first random byte of the coordinate
    r12  2**30, which is 1 in the high 16 bits
    r14  the value of that byte << 22: in the place of the high 8 of 30 bits
    [sp, 0]  the end of the pool
    [sp, 4]  the distance from an input to its output

    r4 and r5 are for whatever comes up. r1, r2, r8, r9, r10, r11 and [sp, 0] are addresses.

    MicroPython's assembler knows only some of the processor's instructions. It lacks those that
    compare or add a high register (r8 to r14), loads and stores at the sum of two registers, and
    loads from the stack. data(2, ...) has such an instruction as a number (ARMv6-M Architecture
    Reference Manual, A6.7), with its meaning beside it.
    """
    # Save what is overwritten, with xs and pool, and make addresses of the indices in job[:4]. An
    # input has two bytes. r0 and r1 become [sp, 0] and [sp, 4].
    mov(r4, r8)
    mov(r5, r9)
    mov(r6, r10)
    mov(r7, r11)
    push({r0, r2, r4, r5, r6, r7})
    ldr(r4, [r3, 4])
    lsl(r4, r4, 1)
    add(r4, r4, r0)
    mov(r9, r4)
    ldr(r5, [r3, 0])
    lsl(r5, r5, 1)
    add(r5, r5, r0)
    sub(r1, r1, r0)
    ldr(r0, [r3, 12])
    add(r0, r0, r2)
    push({r0, r1})
    ldr(r4, [r3, 8])
    add(r2, r2, r4)
    # An input takes at least one byte. If each one takes no more, the pool ends at the input
    # r5 + 2 * (r0 - r2).
    sub(r4, r0, r2)
    lsl(r4, r4, 1)
    add(r4, r4, r5)
    data(2, 0x454C)  # cmp(r4, r9)
    bcs(LIMITED)
    mov(r9, r4)
    label(LIMITED)
    ldr(r7, [r3, 20])
    lsl(r7, r7, 2)
    ldr(r4, [r3, 16])
    add(r3, 24)
    mov(r10, r3)
    mov(r3, 31)
    sub(r3, r3, r4)
    mov(r4, 1)
    lsl(r4, r4, 30)
    mov(r12, r4)
    b(ANY_LEFT)

    # The pool ends within a coordinate, in doubt: go back to its first byte.
    label(UNDO)
    pop({r0, r1, r6})
    mov(r2, r11)
    mov(r5, r8)
    b(END)
    # x + 1 is not in 0 .. 2: its bit 15 is set, and bit 14 as well for x < -1, which counts as -1.
    # Other numbers count as 1, the end of the last interval: fraction 2**15, knot 2**p - 1.
    label(OUTSIDE)
    lsl(r0, r0, 1)
    bmi(BELOW)
    mov(r4, 1)
    lsl(r0, r4, 15)
    lsl(r1, r4, 31)
    sub(r1, 1)
    lsr(r1, r3)
    b(INTERVAL)
    label(BELOW)
    mov(r0, 0)
    b(INSIDE)

    # An input: x + 1, with its 16 bits at the top of the register, so that bit 15 is the sign. The
    # addition of a high register sets no flags; a shift by 0 copies the sum and does.
    label(COORDINATE)
    ldrh(r0, [r5, 0])
    lsl(r0, r0, 16)
    data(2, 0x4460)  # add(r0, r12)
    label(INSIDE)
    lsl(r1, r0, 0)
    bmi(OUTSIDE)
    # The highest p + 1 bits of the register are the knot (r1), the next 15 are the fraction. The
    # rotation, by p + 1 bits to the left, moves these to the top.
    lsr(r1, r3)
    ror(r0, r3)
    lsr(r0, r0, 17)
    # The first threshold of this knot's row, and the first random byte.
    label(INTERVAL)
    mul(r1, r7)
    data(2, 0x4451)  # add(r1, r10)
    mov(r6, r7)
    mov(r11, r2)
    ldrb(r4, [r2, 0])
    add(r2, 1)
    lsl(r4, r4, 22)
    mov(r14, r4)

    # The limit c - h f, which is less than 2**15 above the threshold, settles most draws: if it is
    # not above the first byte, the threshold is passed; if it is above by 2**23, twice a unit of
    # this byte, the threshold is not passed.
    label(THRESHOLD)
    ldr(r4, [r1, 0])
    data(2, 0x59CD)  # ldr(r5, [r1, r7])
    sub(r5, r4, r5)
    asr(r5, r5, 15)
    mul(r5, r0)
    sub(r4, r4, r5)
    data(2, 0x4574)  # cmp(r4, r14)
    ble(NEXT)
    mov(r5, r14)
    sub(r5, r4, r5)
    lsr(r5, r5, 23)
    bne(DRAWN)
    # In doubt: compare all 45 bits of the threshold, 30 whole ones and 15 of the fraction. They are
    # the limit less l f / 2**15, and are put at the top of r4 and r6, as one number.
    push({r0, r1, r6})
    ldr(r5, [r1, 0])
    data(2, 0x59CE)  # ldr(r6, [r1, r7])
    sub(r6, r5, r6)
    lsl(r6, r6, 17)
    lsr(r6, r6, 17)
    mul(r6, r0)
    neg(r6, r6)
    asr(r5, r6, 15)
    add(r4, r4, r5)
    lsl(r4, r4, 2)
    lsl(r6, r6, 17)
    lsr(r5, r6, 30)
    orr(r4, r5)
    lsl(r6, r6, 2)
    mov(r0, r11)
    # A byte: take the highest 8 bits from r4, and shift up all others, until a byte differs or only
    # zeros are left.
    label(BYTE)
    ldrb(r1, [r0, 0])
    add(r0, 1)
    lsr(r5, r4, 24)
    sub(r1, r1, r5)
    bne(DECIDED)
    lsl(r4, r4, 8)
    lsr(r5, r6, 24)
    orr(r4, r5)
    lsl(r6, r6, 8)
    mov(r5, r4)
    orr(r5, r6)
    bne(BYTE)
    # All thresholds are compared with the same number; r2 is the end of what was read of it. If it
    # moves on, the pool ends earlier, at the latest at the input r8 + 2 + 2 * (its end - r2). The
    # end is at [sp, 12] while three registers are on the stack.
    label(DECIDED)
    cmp(r0, r2)
    bls(NO_FURTHER)
    mov(r2, r0)
    data(2, 0x9C03)  # ldr(r4, [sp, 12])
    sub(r4, r4, r2)
    bcc(UNDO)
    lsl(r4, r4, 1)
    add(r4, 2)
    mov(r5, r8)
    add(r4, r4, r5)
    data(2, 0x454C)  # cmp(r4, r9)
    bcs(NO_FURTHER)
    mov(r9, r4)
    label(NO_FURTHER)
    mov(r5, r1)
    pop({r0, r1, r6})
    cmp(r5, 0)
    blt(DRAWN)
    # The random number reaches this threshold: go on to the next one.
    label(NEXT)
    add(r1, 4)
    sub(r6, 4)
    bne(THRESHOLD)

    # The symbol is how many thresholds were passed.
    label(DRAWN)
    sub(r4, r7, r6)
    lsr(r4, r4, 2)
    mov(r5, r8)
    data(2, 0x9801)  # ldr(r0, [sp, 4])
    data(2, 0x522C)  # strh(r4, [r5, r0])
    add(r5, 2)
    label(ANY_LEFT)
    mov(r8, r5)
    data(2, 0x454D)  # cmp(r5, r9)
    bcc(COORDINATE)

    # Write back the position and the next coordinate, as indices, and restore the registers.
    label(END)
    pop({r0, r1, r6, r7})
    mov(r3, r10)
    sub(r3, 24)
    sub(r2, r2, r7)
    str(r2, [r3, 8])
    sub(r5, r5, r6)
    lsr(r0, r5, 1)
    str(r0, [r3, 0])
    pop({r4, r5, r6, r7})
    mov(r8, r4)
    mov(r9, r5)
    mov(r10, r6)
    mov(r11, r7)
