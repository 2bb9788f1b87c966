"""firmware/tern/rom.py in ARMv6-M assembler, for Thumb processors."""


@micropython.asm_thumb
def call(r0, r1, r2, r3):
    """Return function(a, b, c) for the address of a function; a buffer stands for its address."""
    mov(r4, r0)
    mov(r0, r1)
    mov(r1, r2)
    mov(r2, r3)
    data(2, 0x47A0)  # blx r4: the assembler has no name for it
