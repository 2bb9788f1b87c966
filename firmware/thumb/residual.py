"""firmware/tern/residual.py in ARMv6-M assembler, for Thumb processors."""

# The table of sigmoid_tail(): 2**14 / (1 + exp(i / 8)), rounded, for i = 0 .. 80, two bytes each.
# From t = 10 on, the tail counts as 0.
SIGMOID = (
    b"\x00\x20\x01\x1e\x05\x1c\x12\x1a\x2a\x18\x50\x16\x88\x14\xd4\x12\x36\x11"
    b"\xaf\x0f\x41\x0e\xeb\x0c\xad\x0b\x87\x0a\x7a\x09\x82\x08\xa1\x07\xd4\x06"
    b"\x1a\x06\x72\x05\xdb\x04\x53\x04\xd8\x03\x6b\x03\x09\x03\xb2\x02\x64\x02"
    b"\x1e\x02\xe0\x01\xa9\x01\x78\x01\x4d\x01\x27\x01\x05\x01\xe6\x00\xcc\x00"
    b"\xb4\x00\x9f\x00\x8d\x00\x7c\x00\x6e\x00\x61\x00\x56\x00\x4c\x00\x43\x00"
    b"\x3b\x00\x34\x00\x2e\x00\x29\x00\x24\x00\x20\x00\x1c\x00\x19\x00\x16\x00"
    b"\x13\x00\x11\x00\x0f\x00\x0d\x00\x0c\x00\x0a\x00\x09\x00\x08\x00\x07\x00"
    b"\x06\x00\x05\x00\x05\x00\x04\x00\x04\x00\x03\x00\x03\x00\x03\x00\x02\x00"
    b"\x02\x00\x02\x00\x02\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00"
)


@micropython.asm_thumb
def sigmoid_tail(r0, r1):
    """Return 1 / (1 + exp(t)) for t (r0) >= 0 from the table (r1); see firmware/tern/residual.py."""
    mov(r2, 5)
    lsl(r2, r2, 15)
    cmp(r0, r2)
    bcc(INSIDE)
    mov(r0, 0)
    b(RETURN)
    # An entry and the next one, two bytes each, and the fraction of the way between them.
    label(INSIDE)
    lsr(r2, r0, 11)
    lsl(r2, r2, 1)
    add(r1, r1, r2)
    lsl(r2, r0, 21)
    lsr(r2, r2, 21)
    ldrb(r0, [r1, 0])
    ldrb(r3, [r1, 1])
    lsl(r3, r3, 8)
    orr(r0, r3)
    ldrb(r3, [r1, 2])
    ldrb(r4, [r1, 3])
    lsl(r4, r4, 8)
    orr(r3, r4)
    sub(r3, r0, r3)
    mul(r3, r2)
    mov(r4, 1)
    lsl(r4, r4, 10)
    add(r3, r3, r4)
    lsr(r3, r3, 11)
    sub(r0, r0, r3)
    label(RETURN)


@micropython.asm_thumb
def residual(r0, r1, r2):
    """Return the residual of a record; see firmware/tern/residual.py for what it computes.

    r0 is the address of the job, r1 the label and r2 the table. r4 becomes the sum, then the score
    or the margin, and r5 the shift; r0 becomes the result, at first without its sign.
    """
    ldr(r3, [r0, 4])
    asr(r4, r3, 8)
    ldr(r5, [r0, 0])
    add(r4, r4, r5)
    ldr(r5, [r0, 12])
    neg(r5, r5)
    sub(r5, 8)
    ldr(r6, [r0, 8])
    mov(r7, 1)
    lsl(r7, r7, 14)
    cmp(r6, 3)
    bne(ROUND)

    # SVM: 1 if the margin is below 1. To negate the sum rounds it down by its last 8 bits.
    cmp(r1, 0)
    bgt(MARGIN)
    neg(r4, r4)
    lsl(r3, r3, 24)
    beq(MARGIN)
    sub(r4, 1)
    label(MARGIN)
    asr(r4, r5)
    mov(r0, 0)
    cmp(r4, r7)
    bge(RETURN)
    mov(r0, r7)
    b(SIGN)

    # The score, rounded to nearest.
    label(ROUND)
    mov(r3, 1)
    lsl(r3, r5)
    asr(r3, r3, 1)
    add(r4, r4, r3)
    asr(r4, r5)
    cmp(r6, 1)
    bne(LOGISTIC)

    # Linear: the score less the label, within the limit.
    ldr(r5, [r0, 20])
    sub(r0, r4, r1)
    mov(r3, 1)
    lsl(r3, r3, 11)
    sub(r3, 1)
    lsr(r3, r5)
    lsl(r3, r3, 14)
    cmp(r0, r3)
    ble(NOT_ABOVE)
    mov(r0, r3)
    label(NOT_ABOVE)
    neg(r3, r3)
    cmp(r0, r3)
    bge(RETURN)
    mov(r0, r3)
    b(RETURN)

    # Logistic: the tail of the margin without its sign, as in sigmoid_tail(), or 1 less that.
    label(LOGISTIC)
    cmp(r1, 0)
    bgt(TAIL)
    neg(r4, r4)
    label(TAIL)
    mov(r3, r4)
    cmp(r3, 0)
    bge(POSITIVE)
    neg(r3, r3)
    label(POSITIVE)
    mov(r0, 0)
    mov(r5, 5)
    lsl(r5, r5, 15)
    cmp(r3, r5)
    bge(BEYOND)
    lsr(r5, r3, 11)
    lsl(r5, r5, 1)
    add(r2, r2, r5)
    lsl(r3, r3, 21)
    lsr(r3, r3, 21)
    ldrb(r0, [r2, 0])
    ldrb(r5, [r2, 1])
    lsl(r5, r5, 8)
    orr(r0, r5)
    ldrb(r5, [r2, 2])
    ldrb(r6, [r2, 3])
    lsl(r6, r6, 8)
    orr(r5, r6)
    sub(r5, r0, r5)
    mul(r5, r3)
    mov(r6, 1)
    lsl(r6, r6, 10)
    add(r5, r5, r6)
    lsr(r5, r5, 11)
    sub(r0, r0, r5)
    label(BEYOND)
    cmp(r4, 0)
    bge(SIGN)
    sub(r0, r7, r0)

    label(SIGN)
    cmp(r1, 0)
    ble(RETURN)
    neg(r0, r0)
    label(RETURN)
