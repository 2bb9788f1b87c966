// The leaves of firmware/tern/sampler.py for table and window cards, in C: the same draws from the same bytes.
//
// It tells how fast the sampler could be (`tern bench latency`), and is put on a board for that alone.

#include "py/dynruntime.h"

#define ONE 16384

typedef struct {
    const int16_t *xs;
    uint16_t *out;
    const int32_t *thresholds;
    const uint8_t *pool;
    int32_t *cursor; // position, end
    int32_t *job;    // next coordinate, end, the card's parameters
} leaf_t;

static void *buffer(mp_obj_t object, mp_uint_t flags) {
    mp_buffer_info_t info;
    mp_get_buffer_raise(object, &info, flags);
    return info.buf;
}

static leaf_t leaf(const mp_obj_t *args) {
    return (leaf_t) {
        buffer(args[0], MP_BUFFER_READ), buffer(args[1], MP_BUFFER_RW), buffer(args[2], MP_BUFFER_READ),
        buffer(args[3], MP_BUFFER_READ), buffer(args[4], MP_BUFFER_RW), buffer(args[5], MP_BUFFER_RW),
    };
}

// x + 1 in units of 2**-14, saturated: 0..32768
static inline uint32_t above_lowest(int32_t x) {
    return x < -ONE ? 0 : x > ONE ? 2 * ONE : (uint32_t)(x + ONE);
}

// 1 with probability fraction / 2**bits, for 8 <= bits <= 16; takes a byte, and a second one where that decides nothing.
static inline uint32_t bernoulli(uint32_t fraction, uint32_t bits, const uint8_t **at) {
    uint32_t low = bits - 8;
    uint32_t u = *(*at)++;
    uint32_t top = fraction >> low;
    if (u != top) {
        return u < top;
    }
    return (uint32_t)(*(*at)++ >> (8 - low)) < (fraction & ((1u << low) - 1));
}

static mp_obj_t table(size_t n_args, const mp_obj_t *args) {
    leaf_t of = leaf(args);
    const uint8_t *done = of.pool + of.cursor[0];
    const uint8_t *end = of.pool + of.cursor[1];
    uint32_t shift = of.job[2];
    uint32_t columns = of.job[3];
    int32_t i = of.job[0];
    for (; i < of.job[1]; i++) {
        const uint8_t *at = done;
        uint32_t a = above_lowest(of.xs[i]);
        uint32_t row = a >> shift;
        uint32_t fraction = a & ((1u << shift) - 1);
        if (fraction) {
            row += bernoulli(fraction, shift, &at);
        }
        const int32_t *thresholds = of.thresholds + row * columns;
        // The 30-bit integers r to r + 2**left - 1 are still possible, until all of them are one symbol's.
        uint32_t symbol = 0;
        int32_t r = 0;
        for (int32_t left = 22; left > -8; left -= 8) {
            if (left < 0) {
                r |= *at++ >> 2;
                left = 0;
            } else {
                r |= *at++ << left;
            }
            while (symbol < columns && thresholds[symbol] <= r) {
                symbol++;
            }
            if (symbol == columns || thresholds[symbol] >= r + (1 << left)) {
                break;
            }
        }
        if (at > end) {
            break;
        }
        done = at;
        of.out[i] = symbol;
    }
    of.cursor[0] = done - of.pool;
    of.job[0] = i;
    return mp_const_none;
}

static mp_obj_t window(size_t n_args, const mp_obj_t *args) {
    leaf_t of = leaf(args);
    const uint8_t *done = of.pool + of.cursor[0];
    const uint8_t *end = of.pool + of.cursor[1];
    uint32_t others = of.job[2];
    uint32_t width = of.job[3];
    uint32_t threshold = of.job[4];
    int32_t i = of.job[0];
    for (; i < of.job[1]; i++) {
        const uint8_t *at = done;
        uint32_t start;
        if (of.job[7]) { // xs are categories
            start = (uint16_t)of.xs[i];
            start = start > others ? others : start;
        } else {
            uint32_t a = above_lowest(of.xs[i]) * others;
            start = a >> 15;
            if (a & 32767) {
                start += bernoulli(a & 32767, 15, &at);
            }
        }
        // A uniform 30-bit integer below the threshold? Byte by byte, as far as that takes.
        uint32_t inside = 0;
        for (int32_t left = 22; left > -8; left -= 8) {
            uint32_t u = left < 0 ? (uint32_t)(*at++ >> 2) : *at++;
            uint32_t top = left < 0 ? threshold & 63 : threshold >> left & 255;
            if (u != top) {
                inside = u < top;
                break;
            }
        }
        uint32_t count = inside ? width : others;
        uint32_t mask = inside ? of.job[6] : of.job[5];
        uint32_t u = mask ? count : 0;
        while (u >= count && at <= end) {
            u = *at++ & mask;
        }
        if (at > end) {
            break;
        }
        done = at;
        if (inside) {
            u += start;
        } else if (u >= start) {
            u += width;
        }
        of.out[i] = u;
    }
    of.cursor[0] = done - of.pool;
    of.job[0] = i;
    return mp_const_none;
}

static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(table_obj, 6, 6, table);
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(window_obj, 6, 6, window);

mp_obj_t mpy_init(mp_obj_fun_bc_t *self, size_t n_args, size_t n_kw, mp_obj_t *args) {
    MP_DYNRUNTIME_INIT_ENTRY
    mp_store_global(MP_QSTR_table, MP_OBJ_FROM_PTR(&table_obj));
    mp_store_global(MP_QSTR_window, MP_OBJ_FROM_PTR(&window_obj));
    MP_DYNRUNTIME_INIT_EXIT
}
