// The folder of the run: the clock's start, the board's id, its entropy.
#include <stdlib.h>
#include "py/mphal.h"
#include "py/runtime.h"
#include "machine.h"
#include "board.h"

#if MICROPY_PY_LWIP
bool radio_is_on = false;
#else
bool radio_is_on = true; // whose generator needs none
#endif
uint8_t board_id[8] = "ternqemu";
#define WAS_RESET 0x72657365
static uint32_t reset_mark __attribute__((section(".noinit")));
static uint64_t time_at_start_ns __attribute__((section(".noinit"))); // since 1970
static uint64_t zero_ns; // the time when the clock's ticks were 0
static int entropy = -1;            // a file; else of `state`
static uint64_t state, weak = 1;

void board_require(bool is_there, const char *what) {
    if (!is_there) {
        mp_printf(&mp_plat_print, "crash: the host gives no %s\n", what);
        qemu_exit(70);
    }
}

// What is in a small file, or nothing.
static int slurp(const char *name, void *to, size_t n) {
    int file = qemu_open(name, false);
    if (file < 0) {
        return 0;
    }
    n = qemu_read(file, to, n);
    qemu_close(file);
    return n;
}

static uint64_t ticks_ns(void) {
    return qemu_ticks() * MACHINE_TICK_NS;
}

static void clock_init(void) {
    if (!board_was_reset()) {
        char text[24];
        int n = slurp("epoch", text, sizeof text);
        uint64_t seconds = 0;
        for (int i = 0; i < n && '0' <= text[i] && text[i] <= '9'; i++) {
            seconds = 10 * seconds + text[i] - '0';
        }
        time_at_start_ns = seconds * 1000000000;
    }
    zero_ns = time_at_start_ns - ticks_ns();
}

void board_init(void) {
    clock_init();
    slurp("id", board_id, sizeof board_id);
    if (slurp("seed", &state, sizeof state) < (int)sizeof state) {
        entropy = qemu_open("/dev/urandom", false);
        board_require(entropy >= 0, "entropy");
    }
}

bool board_was_reset(void) {
    return reset_mark == WAS_RESET;
}

void board_reset(void) {
    reset_mark = WAS_RESET;
    time_at_start_ns = mp_hal_time_ns();
    if (entropy >= 0) {
        qemu_close(entropy);
    }
    qemu_reset();
}

uint64_t mp_hal_time_ns(void) {
    return zero_ns + ticks_ns();
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
        board_require(qemu_read(entropy, to, n) == (int)n, "entropy");
        return;
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
