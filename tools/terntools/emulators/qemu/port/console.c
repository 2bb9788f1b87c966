// The console on the machine's UART, and waiting.
#include "py/mphal.h"
#include "py/runtime.h"
#include "py/stream.h"
#include "machine.h"
#include "nic.h"

static uint8_t ring[1024];
static uint32_t head, tail;

void poll_input(void) {
    static bool is_full; // then QEMU holds back its host, Ctrl-C and all
    qemu_ticks();
    if (!qemu_has_input() && !is_full) {
        return;
    }
    nic_poll();
    while (!(is_full = head - tail == sizeof ring)) {
        int byte = qemu_getc();
        if (byte < 0) {
            return;
        }
        if (byte == mp_interrupt_char) {
            tail = head;
            mp_sched_keyboard_interrupt();
        } else {
            ring[head++ % sizeof ring] = byte;
        }
    }
}

void wait_for_input(int timeout_ms) {
    poll_input();
    nic_poll(); // its timers
    if (head == tail) {
        qemu_wait_us(timeout_ms < 0 || timeout_ms > 10 ? 10000 : 1000 * timeout_ms);
        poll_input();
    }
}

uintptr_t mp_hal_stdio_poll(uintptr_t wanted) {
    poll_input();
    return wanted & ((head != tail ? MP_STREAM_POLL_RD : 0) | MP_STREAM_POLL_WR);
}

int mp_hal_stdin_rx_chr(void) {
    for (;;) {
        poll_input();
        if (head != tail) {
            return ring[tail++ % sizeof ring];
        }
        mp_event_wait_indefinite();
    }
}

mp_uint_t mp_hal_stdout_tx_strn(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        qemu_putc(text[i]);
    }
    return n;
}

mp_uint_t mp_hal_ticks_us(void) {
    return qemu_ticks() / (1000 / MACHINE_TICK_NS);
}

mp_uint_t mp_hal_ticks_ms(void) {
    return qemu_ticks() / (1000000 / MACHINE_TICK_NS);
}

mp_uint_t mp_hal_ticks_cpu(void) {
    return qemu_fine_ticks();
}

void mp_hal_delay_us(mp_uint_t us) {
    uint64_t end = qemu_ticks() + (uint64_t)us * (1000 / MACHINE_TICK_NS);
    while (qemu_ticks() < end) {
    }
}

void mp_hal_delay_ms(mp_uint_t ms) {
    uint64_t end = qemu_ticks() + (uint64_t)ms * (1000000 / MACHINE_TICK_NS);
    for (;;) {
        mp_event_handle_nowait();
        nic_poll();
        uint64_t now = qemu_ticks();
        if (now >= end) {
            return;
        }
        qemu_wait_us(MIN((end - now) / (1000 / MACHINE_TICK_NS) + 1, 10000));
    }
}
