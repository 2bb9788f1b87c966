"""firmware/tern/rotation.py in ARMv6-M assembler, for Thumb processors.

It does the same, without a branch on a value.
"""


@micropython.asm_thumb
def rotate(r0, r1, r2):
    """Rotate a vector (r0) by signs (r1), n (r2): see firmware/tern/rotation.py.

    r3 number of the next sign. In a transform: r3 end of the first halves, r4 and r6 a pair, r5
    bytes between them, r7 end of the vector.
    """
    mov(r3, 0)
    label(AGAIN)
    mov(r4, r0)
    add(r7, r3, r2)
    # Change the sign of a value where its bit is set: (v ^ -1) + 1 is -v.
    label(SIGN)
    lsr(r5, r3, 3)
    add(r5, r5, r1)
    ldrb(r5, [r5, 0])
    mov(r6, 7)
    and_(r6, r3)
    lsr(r5, r6)
    lsl(r5, r5, 31)
    asr(r5, r5, 31)
    ldr(r6, [r4, 0])
    eor(r6, r5)
    sub(r6, r6, r5)
    str(r6, [r4, 0])
    add(r4, 4)
    add(r3, 1)
    cmp(r3, r7)
    bne(SIGN)

    # Walsh-Hadamard: pairs 1, 2, 4, ... places apart are added and subtracted.
    push({r1, r2, r3})
    mov(r7, r4)
    mov(r5, 4)
    label(STEP)
    mov(r4, r0)
    label(BLOCK)
    add(r6, r4, r5)
    mov(r3, r6)
    label(PAIR)
    ldr(r1, [r4, 0])
    ldr(r2, [r6, 0])
    add(r1, r1, r2)
    str(r1, [r4, 0])
    sub(r1, r1, r2)
    sub(r1, r1, r2)
    str(r1, [r6, 0])
    add(r4, 4)
    add(r6, 4)
    cmp(r4, r3)
    bne(PAIR)
    mov(r4, r6)
    cmp(r4, r7)
    bne(BLOCK)
    lsl(r5, r5, 1)
    sub(r1, r7, r0)
    cmp(r5, r1)
    bne(STEP)
    pop({r1, r2, r3})
    # Three times in all.
    add(r4, r2, r2)
    add(r4, r4, r2)
    cmp(r3, r4)
    bne(AGAIN)


@micropython.asm_thumb
def find(r0, r1, r2, r3):
    """Find in a vector (r0) of n (r1) the rank `wanted` (r2), with the bit `top` (r3).

    r1 how many more reach the level r7 than must, then how many equal ones come first; r2 the size
    found, r3 the next bit, then the symbol; r4 place, r5 value, r6 end of the vector, r12 what r1
    begins with, then a value. In the last loop r0 is the number of bytes, and places are four times
    as large.
    """
    lsl(r6, r1, 2)
    add(r6, r6, r0)
    mov(r4, r0)
    # Replace each value by its absolute value times 2, plus 1 where it was negative.
    label(DOUBLE)
    ldr(r5, [r4, 0])
    asr(r7, r5, 31)
    eor(r5, r7)
    sub(r5, r5, r7)
    lsl(r5, r5, 1)
    sub(r5, r5, r7)
    str(r5, [r4, 0])
    add(r4, 4)
    cmp(r4, r6)
    bne(DOUBLE)

    # Find the size of that rank bit by bit: a bit stays if enough of them reach it.
    sub(r1, r1, r2)
    sub(r1, 1)
    mov(r12, r1)
    lsl(r3, r3, 1)
    mov(r2, 0)
    label(BIT)
    add(r7, r2, r3)
    mov(r1, r12)
    mov(r4, r0)
    label(REACH)
    ldr(r5, [r4, 0])
    sub(r5, r5, r7)
    asr(r5, r5, 31)
    add(r1, r1, r5)
    add(r4, 4)
    cmp(r4, r6)
    bne(REACH)
    asr(r1, r1, 31)
    mov(r5, r3)
    bic(r5, r1)
    add(r2, r2, r5)
    lsr(r3, r3, 1)
    cmp(r3, 1)
    bne(BIT)

    mov(r1, r12)
    # Of those of this size, how many come before the one of the rank?
    mvn(r1, r1)
    mov(r7, r2)
    add(r7, 2)
    mov(r4, r0)
    label(LARGER)
    ldr(r5, [r4, 0])
    sub(r5, r5, r7)
    asr(r5, r5, 31)
    sub(r1, r1, r5)
    add(r4, 4)
    cmp(r4, r6)
    bne(LARGER)

    mov(r4, r0)
    sub(r0, r6, r0)
    mov(r3, 0)
    # Choose that one, by masks.
    label(SAME)
    ldr(r5, [r4, 0])
    mov(r12, r5)
    eor(r5, r2)
    lsr(r5, r5, 1)
    sub(r5, 1)
    asr(r5, r5, 31)
    mov(r7, r1)
    sub(r7, 1)
    eor(r7, r1)
    asr(r7, r7, 31)
    and_(r7, r5)
    add(r1, r1, r5)
    mov(r5, r12)
    lsl(r5, r5, 31)
    asr(r5, r5, 31)
    and_(r5, r0)
    add(r5, r5, r0)
    add(r5, r5, r4)
    sub(r5, r5, r6)
    and_(r5, r7)
    orr(r3, r5)
    add(r4, 4)
    cmp(r4, r6)
    bne(SAME)
    lsr(r0, r3, 2)
