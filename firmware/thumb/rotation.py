"""firmware/tern/rotation.py in ARMv6-M assembler, for Thumb processors.

It does the same, without a branch on a value.
"""


@micropython.asm_thumb
def rotate(r0, r1, r2):
    """Rotate a vector at random, in place: see firmware/tern/rotation.py.

    At the start r0 is the address of the vector, r1 that of the signs, and r2 is n. While signs
    change, r3 is the number of the next sign, r4 the address of a value, r7 the number of the sign
    at which to stop. In a transform, r3 is the end of the first halves of pairs in a block, r4 and
    r6 are the addresses of a pair, r5 is the number of bytes between them, and r7 the end of the
    vector.
    """
    mov(r3, 0)
    # One of three times: change signs, then transform.
    label(AGAIN)
    mov(r4, r0)
    add(r7, r3, r2)
    # Change the sign of a value where its bit is set: number r3 of all, which two shifts
    # by 31 make -1 (else 0); (v ^ -1) + 1 is -v.
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

    # Walsh-Hadamard: pairs 1, 2, 4, ... places apart are replaced by sum and difference, block by
    # block. With a + b in r1, a - b is that less b twice.
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
    # Three times in all: until 3 n signs are used.
    add(r4, r2, r2)
    add(r4, r4, r2)
    cmp(r3, r4)
    bne(AGAIN)


@micropython.asm_thumb
def find(r0, r1, r2, r3):
    """Find the value of a rank in a vector: see firmware/tern/rotation.py, whose names this uses.

    At the start r0 is the address of the vector, r1 is n, r2 `wanted`, and r3 `top`. In the loops,
    r4 is the address of a value, r5 the value, and r6 the end of the vector. The search of the size
    has `more` in r1, which begins as r12, the size found so far in r2, the bit in r3, and the level
    in r7. Then r1 is `places_left`. In the last loop r0 is the number of bytes, r3 the result times
    four, since addresses count bytes, and r12 the value.

    x >> 31 (asr) is -1 for a negative x and else 0: it counts or masks, without a branch.
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

    # Of the values of this size, how many come before the one of the rank? That is wanted - n, the
    # complement of n - wanted - 1, plus the number of values that do not reach the next size.
    mov(r1, r12)
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

    # Choose that one, by masks: r5 is `same`, -1 for a value of this size; r7 is -1 where
    # places_left is 0 as well. The result is the index, plus n where the lowest bit of the value is
    # set.
    mov(r4, r0)
    sub(r0, r6, r0)
    mov(r3, 0)
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
