// QEMU's machine `virt` with a 32-bit RISC-V core: what an ESP32-C3 or C6 executes.
// Addresses: hw/riscv/virt.c of QEMU. PLIC and CLINT: SiFive FU540-C000 manual. UART: a 16550 at 10 MHz.
#include "py/mphal.h"
#include "machine.h"

#define UART(n) (*(volatile uint8_t *)(0x10000000 + (n)))
#define UART_INTERRUPT 10
#define NIC_INTERRUPTS 0x1fe // 1 to 8, of the eight virtio transports
#define PLIC(at) (*(volatile uint32_t *)(0x0c000000 + (at)))
#define MTIMECMP ((volatile uint32_t *)0x02004000)
#define FINISHER (*(volatile uint32_t *)0x00100000)

#define TIMER_PENDING (1 << 7) // in mie and mip
#define DEVICE_PENDING (1 << 11)

#define READ_CSR(name) \
    ({ uint32_t value; __asm volatile ("csrr %0, " #name : "=r" (value)); value; })

static int semihost(uint32_t operation, const void *arguments) {
    register uint32_t a0 __asm("a0") = operation;
    register const void *a1 __asm("a1") = arguments;
    // The three belong together, uncompressed and in one page (RISC-V Semihosting, 2.3).
    __asm volatile (
        ".option push\n.option norvc\n.balign 16\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
        : "+r" (a0) : "r" (a1) : "memory");
    return a0;
}

#include "semihosting.h"
#include "uart16550.h"

uint64_t qemu_ticks(void) {
    for (;;) {
        uint32_t high = READ_CSR(timeh), low = READ_CSR(time);
        if (READ_CSR(timeh) == high) {
            return (uint64_t)high << 32 | low;
        }
    }
}

uint32_t qemu_fine_ticks(void) {
    return READ_CSR(mcycle);
}

void qemu_init(void) {
    uart_init();
    for (int i = 1; i <= UART_INTERRUPT; i++) {
        PLIC(4 * i) = 1;
    }
    PLIC(0x2000) = 1 << UART_INTERRUPT | NIC_INTERRUPTS;
    PLIC(0x200000) = 0; // from priority 1 on
}

bool qemu_has_input(void) {
    if (!(READ_CSR(mip) & DEVICE_PENDING)) {
        return false;
    }
    uint32_t source = PLIC(0x200004); // claimed, and completed: what comes from here on pends anew
    PLIC(0x200004) = source;
    return true;
}

void qemu_wait_us(uint32_t us) {
    uint64_t end = qemu_ticks() + (uint64_t)us * (1000 / MACHINE_TICK_NS);
    MTIMECMP[1] = 0xffffffff;
    MTIMECMP[0] = end;
    MTIMECMP[1] = end >> 32;
    __asm volatile ("csrw mie, %0\nwfi\ncsrw mie, zero" : : "r" (TIMER_PENDING | DEVICE_PENDING) : "memory");
}

void qemu_reset(void) {
    FINISHER = 0x7777;
    for (;;) {
    }
}
