// Reset, window vectors and exceptions of a windowed Xtensa core (Instruction Set Architecture manual, XEA2).
// Window overflow N: the N registers of the oldest frame go to its save areas on the stack; underflow N: they come back.
// No interrupt is ever taken but the one that ends a WAITI.

    .macro vector at, name
    .org    vectors + \at
    .global \name
\name:
    .endm

    .section .vectors, "ax"
    .align  1024
vectors:
    vector  0x000, window_overflow4
    s32e    a0, a5, -16
    s32e    a1, a5, -12
    s32e    a2, a5, -8
    s32e    a3, a5, -4
    rfwo

    vector  0x040, window_underflow4
    l32e    a0, a5, -16
    l32e    a1, a5, -12
    l32e    a2, a5, -8
    l32e    a3, a5, -4
    rfwu

    vector  0x080, window_overflow8
    s32e    a0, a9, -16
    l32e    a0, a1, -12
    s32e    a1, a9, -12
    s32e    a2, a9, -8
    s32e    a3, a9, -4
    s32e    a4, a0, -32
    s32e    a5, a0, -28
    s32e    a6, a0, -24
    s32e    a7, a0, -20
    rfwo

    vector  0x0c0, window_underflow8
    l32e    a0, a9, -16
    l32e    a1, a9, -12
    l32e    a2, a9, -8
    l32e    a7, a1, -12
    l32e    a3, a9, -4
    l32e    a4, a7, -32
    l32e    a5, a7, -28
    l32e    a6, a7, -24
    l32e    a7, a7, -20
    rfwu

    vector  0x100, window_overflow12
    s32e    a0, a13, -16
    l32e    a0, a1, -12
    s32e    a1, a13, -12
    s32e    a2, a13, -8
    s32e    a3, a13, -4
    s32e    a4, a0, -48
    s32e    a5, a0, -44
    s32e    a6, a0, -40
    s32e    a7, a0, -36
    s32e    a8, a0, -32
    s32e    a9, a0, -28
    s32e    a10, a0, -24
    s32e    a11, a0, -20
    rfwo

    vector  0x140, window_underflow12
    l32e    a0, a13, -16
    l32e    a1, a13, -12
    l32e    a2, a13, -8
    l32e    a11, a1, -12
    l32e    a3, a13, -4
    l32e    a4, a11, -48
    l32e    a5, a11, -44
    l32e    a6, a11, -40
    l32e    a7, a11, -36
    l32e    a8, a11, -32
    l32e    a9, a11, -28
    l32e    a10, a11, -24
    l32e    a11, a11, -20
    rfwu

    .org    vectors + 0x180     // interrupts of levels 2 to 7: none is enabled
    .rept   6
    .balign 0x40
    ill
    .endr

    vector  0x300, kernel_exception     // the one for users' programs is never taken: PS.UM is 0
    wsr.excsave1 a0
    rsr.exccause a0
    beqi    a0, 5, alloca_exception
    beqi    a0, 4, interrupt
    j       other_exception

    vector  0x3c0, double_exception
    wsr.excsave1 a0
    rsr.depc a0
    wsr.epc1 a0
    j       other_exception

    // MOVSP a1, as while the caller's a0 to a3 are on the stack, below a1, where they have to be below the new one: done
    // here. Registers that are another frame's are kept, too.
    .align  4
alloca_exception:
    movi    a0, registers
    s32i    a1, a0, 4
    s32i    a2, a0, 8
    s32i    a3, a0, 12
    s32i    a4, a0, 16
    s32i    a5, a0, 20
    s32i    a6, a0, 24
    s32i    a7, a0, 28
    s32i    a8, a0, 32
    s32i    a9, a0, 36
    s32i    a10, a0, 40
    s32i    a11, a0, 44
    s32i    a12, a0, 48
    s32i    a13, a0, 52
    s32i    a14, a0, 56
    s32i    a15, a0, 60
    rsr.excsave1 a2
    s32i    a2, a0, 0
    rsr.epc1 a2
    l8ui    a3, a2, 1
    extui   a3, a3, 0, 4        // s
    addx4   a3, a3, a0
    l32i    a3, a3, 0           // what a1 will be
    addi    a2, a2, 3
    wsr.epc1 a2
    addi    a2, a1, -16
    l32i    a4, a2, 0
    l32i    a5, a2, 4
    l32i    a6, a2, 8
    l32i    a7, a2, 12
    addi    a2, a3, -16
    s32i    a4, a2, 0
    s32i    a5, a2, 4
    s32i    a6, a2, 8
    s32i    a7, a2, 12
    mov     a1, a3
    l32i    a2, a0, 8
    l32i    a3, a0, 12
    l32i    a4, a0, 16
    l32i    a5, a0, 20
    l32i    a6, a0, 24
    l32i    a7, a0, 28
    l32i    a0, a0, 0
    rfe

    .align  4
interrupt:                      // it has ended a WAITI, and that is all
    movi    a0, 0
    wsr.intenable a0
    rsync
    rsr.excsave1 a0
    rfe

    .align  4
other_exception:                // qemu_crash(cause, pc, address, a0), on an empty stack and in an empty window file
    rsr.exccause a2
    rsr.epc1 a3
    rsr.excvaddr a4
    rsr.excsave1 a5
    movi    a0, crash
    s32i    a2, a0, 0
    s32i    a3, a0, 4
    s32i    a4, a0, 8
    s32i    a5, a0, 12
    movi    a0, 1
    wsr.windowstart a0
    movi    a0, 0
    wsr.windowbase a0
    rsync
    movi    a1, _stack_end
    movi    a0, 0x4000f
    wsr.ps  a0
    rsync
    movi    a5, crash
    l32i    a6, a5, 0
    l32i    a7, a5, 4
    l32i    a8, a5, 8
    l32i    a9, a5, 12
    movi    a0, 0
    movi    a4, qemu_crash
    callx4  a4
    .literal_position

    .section .noinit, "aw", @nobits
    .align  4
crash:
    .space  16
registers:
    .space  64

    .section .start, "ax"
    .align  4
    .global _start
_start:
    j       1f
    .literal_position
    .align  4
1:  movi    a2, 1
    wsr.windowstart a2
    movi    a2, 0
    wsr.windowbase a2
    rsync
    movi    a1, _stack_end
    movi    a2, vectors
    wsr.vecbase a2
    movi    a2, 0x4000f         // PS: windows on, no interrupts, not in an exception
    wsr.ps  a2
    rsync
    movi    a2, _bss_start
    movi    a3, _bss_end
    movi    a4, 0
2:  bgeu    a2, a3, 3f
    s32i    a4, a2, 0
    addi    a2, a2, 4
    j       2b
3:  movi    a0, 0
    movi    a4, main
    callx4  a4
    ill
