// QEMU's machine `mps2-an505`: a Cortex-M33, as an RP2350 has two of.
// Addresses and interrupts: Arm Application Note AN505. UART and timer: Cortex-M System Design Kit manual (DDI 0479).
#include "py/mphal.h"
#include "machine.h"
#include "counter.h"

#define UART(n) (((volatile uint32_t *)0x50200000)[n])
#define UART_INTERRUPTS 32 // and 33: one for each direction, of UART 0
#define TIMER(n) (((volatile uint32_t *)0x50000000)[n]) // counts down, at 20 MHz
#define WAKE(n) (((volatile uint32_t *)0x50001000)[n])
#define WAKE_INTERRUPT 4
#define NVIC_ENABLE ((volatile uint32_t *)0xe000e100)
#define CPACR (*(volatile uint32_t *)0xe000ed88)
#define AIRCR (*(volatile uint32_t *)0xe000ed0c)
#define CFSR (*(volatile uint32_t *)0xe000ed28)
#define BFAR (*(volatile uint32_t *)0xe000ed38)

int main(void);
void start(void);
extern uint32_t _stack_end[], _data_source[], _data_start[], _data_end[], _bss_start[], _bss_end[];

static int semihost(uint32_t operation, const void *arguments) {
    register uint32_t r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = arguments;
    __asm volatile ("bkpt 0xab" : "+r" (r0) : "r" (r1) : "memory");
    return r0;
}

#include "semihosting.h"

static volatile bool input;

static void uart_interrupt(void) {
    UART(3) = 2;
    input = true;
}

static void wake_interrupt(void) { // it has ended a WFI, and that is all
    WAKE(0) = 0;
    WAKE(3) = 1;
}

// frame: r0 to r3, r12, lr, pc, xpsr
__attribute__((used)) static void report(uint32_t *frame, uint32_t number) {
    qemu_crash(number << 16 | (CFSR & 0xffff), frame[6], BFAR, frame[5]);
}

__attribute__((naked)) static void exception(void) {
    __asm volatile ("mrs r0, msp\nmrs r1, ipsr\nb report");
}

void start(void) {
    CPACR |= 0xf << 20; // the floating-point unit
    for (uint32_t *from = _data_source, *to = _data_start; to < _data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = _bss_start; to < _bss_end;) {
        *to++ = 0;
    }
    main();
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16 + UART_INTERRUPTS + 2])(void) = {
    [0] = (void (*)(void))_stack_end,
    [1] = start,
    [2 ... 15] = exception,
    [16 + WAKE_INTERRUPT] = wake_interrupt,
    [16 + UART_INTERRUPTS ... 16 + UART_INTERRUPTS + 1] = uart_interrupt,
};

uint64_t qemu_ticks(void) { // a turn of the counter takes 3 minutes
    static struct counter counter;
    return counter_ticks(&counter, ~TIMER(1));
}

uint32_t qemu_fine_ticks(void) {
    return ~TIMER(1) * MACHINE_TICK_NS;
}

void qemu_init(void) {
    UART(4) = 16;
    UART(2) = 1 | 2 | 8; // send, receive, an interrupt for what comes in
    TIMER(2) = 0xffffffff;
    TIMER(1) = 0xffffffff;
    TIMER(0) = 1;
    NVIC_ENABLE[UART_INTERRUPTS / 32] = 3 << UART_INTERRUPTS % 32;
    NVIC_ENABLE[0] = 1 << WAKE_INTERRUPT;
}

bool qemu_has_input(void) {
    return input;
}

void qemu_wait_us(uint32_t us) {
    WAKE(2) = 0;
    WAKE(1) = us * (1000 / MACHINE_TICK_NS) + 1;
    WAKE(0) = 1 | 8; // on, with an interrupt
    __asm volatile ("cpsid i" : : : "memory"); // what comes from here on ends the WFI
    if (!input) {
        __asm volatile ("wfi");
    }
    __asm volatile ("cpsie i" : : : "memory");
    WAKE(0) = 0;
}

int qemu_getc(void) {
    if (UART(1) & 2) {
        return UART(0);
    }
    input = false;
    return UART(1) & 2 ? (int)UART(0) : -1; // it may have come in between
}

void qemu_putc(uint8_t byte) {
    while (UART(1) & 1) {
    }
    UART(0) = byte;
}

void qemu_reset(void) {
    AIRCR = 0x05fa0004;
    for (;;) {
    }
}
