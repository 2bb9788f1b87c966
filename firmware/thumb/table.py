"""firmware/tern/table.py in ARMv6-M assembler, for Thumb processors.

It makes the same draws from the same bytes.
"""


@micropython.asm_thumb
def table(r0, r1, r2, r3):
    """Draw the symbols of a table card for inputs; see firmware/tern/table.py for what it computes.

    At the start r0 to r3 are the addresses of xs, out, pool and job. A slot of job has four bytes:
    [r3, 4] is job[1], and thresholds begin at job + 24. While a coordinate is drawn:

    r0   the fraction f of the way from its knot to the next, out of 2**15
    r1   a threshold of the knot, less 24
    r2   the end of the random bytes that were read
    r3   job
    r6   how many thresholds are left
    r7   the same threshold of the next knot, less 24
    r8   the input
    r9   the end of the inputs
    r10  the distance from an input to its output
    r11  the first random byte of the coordinate
    r12  the end of the pool
    r14  the value of that byte << 22: in the place of the high 8 of 30 bits

    r4 and r5 are for whatever comes up. All but r0, r6 and the value in r14 are addresses.
    """
    # Save what is overwritten, with xs and pool, and make addresses of the indices in job[:4]. An
    # input has two bytes.
    mov(r4, r8)
    mov(r5, r9)
    mov(r6, r10)
    mov(r7, r11)
    push({r0, r2, r4, r5, r6, r7})
    sub(r1, r1, r0)
    mov(r10, r1)
    ldr(r4, [r3, 4])
    lsl(r4, r4, 1)
    add(r4, r4, r0)
    mov(r9, r4)
    ldr(r5, [r3, 0])
    lsl(r5, r5, 1)
    add(r5, r5, r0)
    ldr(r0, [r3, 12])
    add(r0, r0, r2)
    mov(r12, r0)
    ldr(r0, [r3, 8])
    add(r2, r2, r0)
    b(ANY_LEFT)

    # The pool ends within a coordinate: go back to its first byte.
    label(UNDO)
    mov(r2, r11)
    b(END)
    # x + 1 is not in 0 .. 2: its bit 15 is set, and bit 14 as well for x < -1, which counts as -1.
    # Other numbers count as 1, the end of the last interval: fraction 2**15, knot 2**p - 1.
    label(OUTSIDE)
    lsl(r0, r0, 1)
    bmi(BELOW)
    ldr(r5, [r3, 16])
    mov(r4, 1)
    lsl(r0, r4, 15)
    lsl(r4, r5)
    sub(r4, 1)
    b(INTERVAL)
    label(BELOW)
    mov(r0, 0)
    b(INSIDE)

    # An input: x + 1, with its 16 bits at the top of the register, so that bit 15 is the sign.
    label(COORDINATE)
    ldrh(r0, [r5, 0])
    lsl(r0, r0, 16)
    mov(r4, 1)
    lsl(r4, r4, 30)
    add(r0, r0, r4)
    bmi(OUTSIDE)
    # The interval between two knots (r4), and the fraction in it: x + 1 times 2**p, without the low
    # 15 bits, and these alone.
    label(INSIDE)
    lsr(r0, r0, 16)
    ldr(r5, [r3, 16])
    lsl(r0, r5)
    lsr(r4, r0, 15)
    lsl(r0, r0, 17)
    lsr(r0, r0, 17)
    # The first threshold of this knot's row and of the next one's, and the first random byte.
    label(INTERVAL)
    ldr(r6, [r3, 20])
    lsl(r5, r6, 2)
    mul(r4, r5)
    add(r1, r3, r4)
    add(r7, r1, r5)
    mov(r11, r2)
    ldrb(r4, [r2, 0])
    add(r2, 1)
    lsl(r4, r4, 22)
    mov(r14, r4)

    # A threshold, c + h f without the fraction l f. By how many units of 2**15 it is above the
    # first byte settles most draws: under -1 it is passed, above 127 it is not.
    label(THRESHOLD)
    ldr(r4, [r1, 24])
    ldr(r5, [r7, 24])
    sub(r5, r5, r4)
    asr(r5, r5, 15)
    mul(r5, r0)
    add(r4, r4, r5)
    mov(r5, r14)
    sub(r5, r4, r5)
    asr(r5, r5, 15)
    add(r5, 1)
    bmi(NEXT)
    cmp(r5, 128)
    bgt(DRAWN)
    # In doubt: compare all 45 bits of the threshold, 30 whole ones and 15 of the fraction. They are
    # put at the top of r4 and r6, as one number.
    push({r0, r1, r6})
    ldr(r5, [r1, 24])
    ldr(r6, [r7, 24])
    sub(r6, r6, r5)
    lsl(r6, r6, 17)
    lsr(r6, r6, 17)
    mul(r6, r0)
    lsr(r5, r6, 15)
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
    # All thresholds are compared with the same number; r2 is the end of what was read of it.
    label(DECIDED)
    cmp(r0, r2)
    bls(NO_FURTHER)
    mov(r2, r0)
    label(NO_FURTHER)
    mov(r5, r1)
    pop({r0, r1, r6})
    cmp(r5, 0)
    blt(DRAWN)
    # The random number reaches this threshold: go on to the next one.
    label(NEXT)
    add(r1, 4)
    add(r7, 4)
    sub(r6, 1)
    bne(THRESHOLD)

    # The symbol is how many thresholds were passed; undo the coordinate at the end of the pool.
    label(DRAWN)
    mov(r5, r8)
    mov(r4, r12)
    cmp(r2, r4)
    bhi(UNDO)
    ldr(r4, [r3, 20])
    sub(r4, r4, r6)
    mov(r0, r10)
    add(r0, r0, r5)
    strh(r4, [r0, 0])
    add(r5, 2)
    label(ANY_LEFT)
    mov(r8, r5)
    mov(r4, r9)
    cmp(r5, r4)
    bcc(COORDINATE)

    # Write back the position and the next coordinate, as indices, and restore the registers.
    label(END)
    pop({r0, r4})
    sub(r2, r2, r4)
    str(r2, [r3, 8])
    sub(r0, r5, r0)
    lsr(r0, r0, 1)
    str(r0, [r3, 0])
    pop({r4, r5, r6, r7})
    mov(r8, r4)
    mov(r9, r5)
    mov(r10, r6)
    mov(r11, r7)
