// The leaves of firmware/tern/{table,sampler}.py for table and window cards, in C: the same draws from the same bytes.
//
// It tells how fast the sampler could be (`tern bench latency`), and is put on a board for that alone.

#include "py/dynruntime.h"

#define ONE 16384

typedef struct {
    const int16_t *xs;
    uint16_t *out;
    const uint8_t *pool;
    int32_t *job; // next coordinate, end, position in the pool, its end, the card's parameters
} leaf_t;

static void *buffer(mp_obj_t object, mp_uint_t flags) {
    mp_buffer_info_t info;
    mp_get_buffer_raise(object, &info, flags);
    return info.buf;
}

static leaf_t leaf(const mp_obj_t *args) {
    return (leaf_t) {
        buffer(args[0], MP_BUFFER_READ), buffer(args[1], MP_BUFFER_RW),
        buffer(args[2], MP_BUFFER_READ), buffer(args[3], MP_BUFFER_RW),
    };
}

// x + 1 in units of 2**-14, saturated: 0..32768
static inline uint32_t above_lowest(int32_t x) {
    return x < -ONE ? 0 : x > ONE ? 2 * ONE : (uint32_t)(x + ONE);
}

// 1 where the number that the bytes at *at begin is below threshold / 2**64; takes bytes while that is open.
static inline uint32_t below(uint64_t threshold, const uint8_t **at) {
    while (threshold) {
        int32_t difference = *(*at)++ - (int32_t)(threshold >> 56);
        if (difference) {
            return difference < 0;
        }
        threshold <<= 8;
    }
    return 0;
}

static mp_obj_t table(size_t n_args, const mp_obj_t *args) {
    leaf_t of = leaf(args);
    const uint8_t *done = of.pool + of.job[2];
    const uint8_t *end = of.pool + of.job[3];
    uint32_t columns = of.job[5];
    int32_t i = of.job[0];
    for (; i < of.job[1]; i++) {
        const uint8_t *at = done + 1;
        uint32_t a = above_lowest(of.xs[i]);
        uint32_t b = a << of.job[4];
        uint32_t row = (b - (a >> 15)) >> 15; // 1 is the end of the last interval
        uint32_t fraction = b - (row << 15);
        const int32_t *thresholds = of.job + 6 + row * columns;
        uint32_t symbol = 0;
        for (; symbol < columns; symbol++) {
            int32_t c = thresholds[symbol];
            int32_t d = thresholds[symbol + columns] - c;
            uint32_t rest = (d & 32767) * fraction;
            uint32_t whole = c + (d >> 15) * (int32_t)fraction + (int32_t)(rest >> 15); // of 45 bits, the first 30
            if (*done != whole >> 22) {
                if (*done < whole >> 22) {
                    break;
                }
                continue;
            }
            const uint8_t *k = done;
            uint32_t found = below((uint64_t)whole << 34 | (uint64_t)(rest & 32767) << 19, &k);
            at = k > at ? k : at;
            if (found) {
                break;
            }
        }
        if (at > end) {
            break;
        }
        done = at;
        of.out[i] = symbol;
    }
    of.job[0] = i;
    of.job[2] = done - of.pool;
    return mp_const_none;
}

static mp_obj_t window(size_t n_args, const mp_obj_t *args) {
    leaf_t of = leaf(args);
    const uint8_t *done = of.pool + of.job[2];
    const uint8_t *end = of.pool + of.job[3];
    uint32_t others = of.job[4];
    uint32_t width = of.job[5];
    int32_t i = of.job[0];
    for (; i < of.job[1]; i++) {
        const uint8_t *at = done;
        uint32_t start;
        if (of.job[9]) { // xs are categories
            start = (uint16_t)of.xs[i];
            start = start > others ? others : start;
        } else {
            uint32_t a = above_lowest(of.xs[i]) * others;
            start = a >> 15;
            start += below((uint64_t)(a & 32767) << 49, &at);
        }
        uint32_t inside = below((uint64_t)of.job[6] << 34, &at);
        uint32_t count = inside ? width : others;
        uint32_t mask = inside ? of.job[8] : of.job[7];
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
    of.job[0] = i;
    of.job[2] = done - of.pool;
    return mp_const_none;
}

static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(table_obj, 4, 4, table);
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(window_obj, 4, 4, window);

mp_obj_t mpy_init(mp_obj_fun_bc_t *self, size_t n_args, size_t n_kw, mp_obj_t *args) {
    MP_DYNRUNTIME_INIT_ENTRY
    mp_store_global(MP_QSTR_table, MP_OBJ_FROM_PTR(&table_obj));
    mp_store_global(MP_QSTR_window, MP_OBJ_FROM_PTR(&window_obj));
    MP_DYNRUNTIME_INIT_EXIT
}
