// Reset and exceptions of a 32-bit RISC-V core. No interrupt is ever taken: pending ones end a WFI and are asked for.
    .section .start, "ax"
    .global _start
_start:
    .option push
    .option norelax
    la      gp, __global_pointer$
    .option pop
    la      sp, _stack_end
    la      t0, exception
    csrw    mtvec, t0
    la      t0, _bss_start
    la      t1, _bss_end
1:  bgeu    t0, t1, 2f
    sw      zero, 0(t0)
    addi    t0, t0, 4
    j       1b
2:  tail    main

    .balign 4
exception:
    csrr    a0, mcause
    csrr    a1, mepc
    csrr    a2, mtval
    mv      a3, ra
    la      sp, _stack_end
    tail    qemu_crash
