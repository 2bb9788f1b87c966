// setjmp and longjmp of the windowed ABI (Xtensa Instruction Set Architecture manual, "The Windowed Register Usage and
// Stack Layout"), for callers that use CALL8, as GCC's code and MicroPython's native code do.
//
// While a frame's registers are on the stack, its a0 to a3 are in the 16 bytes below its callee's stack pointer, and its
// a4 to a7 in the 16 bytes that end 16 below its caller's. jmp_buf, in words: 0 to 7 the a0 to a7 of setjmp's caller, 8
// setjmp's return address, 9 its stack pointer.

#define WINDOW_OVERFLOW_ENABLE 0x40000 // in PS

    .text
    .align  4
    .global setjmp
setjmp:
    entry   a1, 16
    s32i    a0, a2, 32
    s32i    a1, a2, 36
    rsr.ps  a4
    movi    a5, WINDOW_OVERFLOW_ENABLE
    xor     a5, a4, a5
    wsr.ps  a5                  // off: the caller's window is looked at, not entered
    rsync
    rotw    -2                  // what was a2 is a10
    s32i    a0, a10, 0
    s32i    a1, a10, 4
    s32i    a2, a10, 8
    s32i    a3, a10, 12
    s32i    a4, a10, 16
    s32i    a5, a10, 20
    s32i    a6, a10, 24
    s32i    a7, a10, 28
    rotw    2
    wsr.ps  a4
    rsync
    movi    a2, 0
    retw

    // By nested calls: after 8 of them the registers of all callers are on the stack.
    .align  4
    .global spill_windows
spill_windows:
    entry   a1, 32
    beqz    a2, 1f
    addi    a10, a2, -1
    call8   spill_windows
1:  retw

    // Put the frames on the stack, the caller's registers where setjmp would find them there, and return as setjmp.
    .align  4
    .global longjmp
longjmp:
    entry   a1, 32
    movi    a10, 8
    call8   spill_windows
    rsr.windowbase a4
    ssl     a4
    movi    a5, 1
    sll     a5, a5
    wsr.windowstart a5          // no frame but this one is in the register file
    rsync
    l32i    a0, a2, 32
    l32i    a1, a2, 36
    addi    a4, a1, -16
    l32i    a5, a2, 0
    l32i    a6, a2, 4           // the caller's stack pointer
    s32i    a5, a4, 0
    s32i    a6, a4, 4
    l32i    a5, a2, 8
    l32i    a7, a2, 12
    s32i    a5, a4, 8
    s32i    a7, a4, 12
    addi    a4, a6, -16
    l32i    a4, a4, 4           // its caller's
    addi    a4, a4, -32
    l32i    a5, a2, 16
    l32i    a6, a2, 20
    s32i    a5, a4, 0
    s32i    a6, a4, 4
    l32i    a5, a2, 24
    l32i    a6, a2, 28
    s32i    a5, a4, 8
    s32i    a6, a4, 12
    mov     a2, a3
    movi    a4, 1
    moveqz  a2, a4, a3          // longjmp(buffer, 0) returns 1
    retw
