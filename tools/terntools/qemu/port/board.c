// The folder of the run: the clock's start, the board's id, its entropy.
#include <stdlib.h>
#include "py/mphal.h"
#include "machine.h"
#include "board.h"

#if MICROPY_PY_LWIP
bool radio_is_on = false;
#else
bool radio_is_on = true; // whose generator needs none
#endif
uint8_t board_id[8] = "ternqemu";
static uint64_t epoch = 1767225600; // 1 January 2026
static int entropy = -1;            // a file; else of `state`
static uint64_t state, weak = 1;

// What is in a small file, or nothing.
static int slurp(const char *name, void *to, size_t n) {
    int file = qemu_open(name, false);
    return file < 0 ? 0 : qemu_read(file, to, n);
}

void board_init(void) {
    char text[24];
    int n = slurp("epoch", text, sizeof text);
    if (n > 0) {
        epoch = 0;
        for (int i = 0; i < n && '0' <= text[i] && text[i] <= '9'; i++) {
            epoch = 10 * epoch + text[i] - '0';
        }
    }
    slurp("id", board_id, sizeof board_id);
    if (slurp("seed", &state, sizeof state) < (int)sizeof state) {
        entropy = qemu_open("/dev/urandom", false);
        if (entropy < 0) {
            mp_hal_stdout_tx_str("crash: the host gives no entropy\n");
            qemu_exit(70);
        }
    }
    flash_init();
    nic_init();
}

uint64_t mp_hal_time_ns(void) {
    return qemu_ticks() * MACHINE_TICK_NS + epoch * 1000000000;
}

// splitmix64 (Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014)
static uint8_t mixed(uint64_t *from) {
    uint64_t z = *from += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void random_bytes(void *to, size_t n) {
    uint8_t *bytes = to;
    if (radio_is_on && entropy >= 0) {
        if (qemu_read(entropy, to, n) == (int)n) {
            return;
        }
        mp_hal_stdout_tx_str("crash: the host gives no entropy\n");
        qemu_exit(70);
    }
    while (n--) {
        *bytes++ = mixed(radio_is_on ? &state : &weak);
    }
}

void mp_hal_get_random(size_t n, uint8_t *to) {
    random_bytes(to, n);
}

uint32_t random_word(void) {
    uint32_t word;
    random_bytes(&word, sizeof word);
    return word;
}
