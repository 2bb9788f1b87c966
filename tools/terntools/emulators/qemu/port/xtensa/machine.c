// QEMU's machine `lx60` with the core dc233c: windowed Xtensa, which an ESP32, S2 or S3 executes too.
// Addresses: hw/xtensa/xtfpga.c of QEMU. UART: a 16550, whose registers are words. Semihosting: target/xtensa/xtensa-semi.c.
#include "py/mphal.h"
#include "machine.h"
#include "counter.h"

#define UART(n) (*(volatile uint8_t *)(0xfd050020 + 4 * (n)))
#define RESET (*(volatile uint32_t *)0xfd020010)
#define DEVICE_INTERRUPTS 3 // 0: UART; 1: NIC
#define TIMER_INTERRUPT (1 << 6)

static int simcall(uint32_t number, uint32_t b, uint32_t c, uint32_t d) {
    register uint32_t a2 __asm("a2") = number, a3 __asm("a3") = b, a4 __asm("a4") = c, a5 __asm("a5") = d;
    __asm volatile ("simcall" : "+r" (a2), "+r" (a3) : "r" (a4), "r" (a5) : "memory");
    return a2;
}

int qemu_open(const char *name, bool writable) {
    return simcall(5, (uint32_t)name, writable ? 2 : 0, 0); // O_RDWR, O_RDONLY
}

int qemu_read(int file, void *buffer, size_t n) {
    return simcall(3, file, (uint32_t)buffer, n);
}

int qemu_write(int file, const void *buffer, size_t n) {
    return simcall(4, file, (uint32_t)buffer, n);
}

void qemu_close(int file) {
    simcall(6, file, 0, 0);
}

int qemu_seek(int file, uint32_t at) {
    return simcall(19, file, at, 0);
}

void qemu_exit(int status) {
    simcall(1, status, 0, 0);
    for (;;) {
    }
}

static uint32_t count(void) {
    uint32_t n;
    __asm volatile ("rsr.ccount %0" : "=r" (n)); // 10 MHz
    return n;
}

uint64_t qemu_ticks(void) { // a turn of the counter takes 7 minutes
    static struct counter counter;
    return counter_ticks(&counter, count());
}

uint32_t qemu_fine_ticks(void) {
    return count() * MACHINE_TICK_NS;
}

#include "uart16550.h"

void qemu_init(void) {
    uart_init();
}

bool qemu_has_input(void) {
    uint32_t pending;
    __asm volatile ("rsr.interrupt %0" : "=r" (pending));
    return pending & DEVICE_INTERRUPTS;
}

void qemu_wait_us(uint32_t us) { // the handler of the interrupt that ends it switches all off again
    uint32_t end = count() + us * (1000 / MACHINE_TICK_NS);
    __asm volatile ("wsr.ccompare0 %0\nesync" : : "r" (end));
    if ((int32_t)(end - count()) > 0) { // else the next match is a turn of the counter away
        __asm volatile (
            "wsr.intenable %0\nrsync\nwaiti 0\nrsil a15, 15"
            : : "r" (TIMER_INTERRUPT | DEVICE_INTERRUPTS) : "a15", "memory");
    }
}

void qemu_reset(void) {
    RESET = 0xdead;
    for (;;) {
    }
}
