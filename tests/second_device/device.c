/* A second device: one board of the protocol in shared_specs, in C99, written from those texts alone.
 *
 *     device DIRECTORY [--random FILE]   a board on standard input and output, as on a serial port
 *     device --check                     lines `name hex hex ...` on standard input, a line of results each
 *
 * Read it beside the texts; each part names its own. With --random the bytes of all draws come from FILE, one report
 * after the other: for comparisons, never for data. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

enum { LONGEST = 2560, CREDIT = 128, MOST_VALUES = 1025, MOST_PACKED = 256, MOST_TRAINED = 32, LAST_ROUND = (1 << 30) - 1 };
enum { ONE_BITS = 14, ONE = 1 << ONE_BITS, T = 1 << 30 };               /* 1 in Q1.14; the whole of a card's probability */
static const u32 FLEET = 0xFFFFFFFF;
static const u8 SCHEMA[8] = {0x6e, 0x98, 0xd4, 0xb7, 0xf5, 0x4c, 0xd8, 0x01};

enum { HELLO_REQUEST = 1, ROUND, MODEL = 4, FLEET_KEY, HELLO = 0x81, REPORT, ERROR = 0x84, REPORTS };
enum { OK, ERR_FRAME, ERR_TAG, ERR_DEVICE, ERR_OLD_ROUND, ERR_CHANGED_ROUND, ERR_CARD, ERR_NOT_CERTIFIED, ERR_POLICY,
       ERR_BUDGET, ERR_LEDGER, ERR_ENTROPY, ERR_DATA, ERR_TOO_SOON, ERR_AHEAD, ERR_MODEL, ERR_SLOT, ERR_UNIT, ERR_MEASURE };
enum { TABLE = 1, WINDOW, LAPLACE, MIXTURE, HIERARCHY, SUM, PROJECTION };

/* ---- Bytes and integers. C leaves `>>` of a negative number to the compiler, and `<<` of one undefined. ---- */
static u32 get16(const u8 *p) { return p[0] | (u32)p[1] << 8; }
static u32 get32(const u8 *p) { return get16(p) | get16(p + 2) << 16; }
static i32 get_i8(const u8 *p) { return p[0] < 128 ? p[0] : p[0] - 256; }
static i32 get_i16(const u8 *p) { return get16(p) < 0x8000 ? (i32)get16(p) : (i32)get16(p) - 0x10000; }
static i32 get_i32(const u8 *p) { return get32(p) < 0x80000000 ? (i32)get32(p) : (i32)(get32(p) - 0x80000000) - 0x7FFFFFFF - 1; }
static u8 *put16(u8 *p, u32 v) { p[0] = v & 255; p[1] = v >> 8 & 255; return p + 2; }
static u8 *put32(u8 *p, u32 v) { return put16(put16(p, v & 0xFFFF), v >> 16); }
static u8 *put(u8 *p, const void *from, size_t n) { if (n) memcpy(p, from, n); return p + n; }

static i64 floor_div(i64 a, i64 n) { return a / n - (a % n < 0); }          /* for n > 0 */
static i64 down(i64 a, int n) { return floor_div(a, (i64)1 << n); }         /* a >> n, downwards */
static i64 nearest(i64 a, int n) { return n ? down(a + ((i64)1 << (n - 1)), n) : a; }
static i64 clamp(i64 a, i64 b) { return a > b ? b : a < -b ? -b : a; }
static i64 least(i64 a, i64 b) { return a < b ? a : b; }

/* ---- Tags (wire.md) ---- */
#include "sha256.c"

static int same(const u8 *a, const u8 *b, int n) {                          /* in constant time */
    u8 difference = 0;
    while (n--) difference |= *a++ ^ *b++;
    return difference == 0;
}

static int tag_verifies(const u8 *key, size_t n_key, const u8 *frame, int n) {
    u8 digest[32];
    hash(digest, key, n_key, frame, n - 8);
    return same(digest, frame + n - 8, 8);
}

/* ---- COBS, as on serial; the 0x00 that ends a frame is not part of these ---- */
static int cobs_encode(u8 *out, const u8 *in, int n) {
    int code = 0, o = 1;
    for (int i = 0; i < n; i++) {
        if (in[i]) out[o++] = in[i];
        if (!in[i] || (o - code == 255 && i + 1 < n)) { out[code] = o - code; code = o++; }
    }
    out[code] = o - code;
    return o;
}

static int cobs_decode(u8 *out, const u8 *in, int n) {                      /* the length, or -1 */
    int o = 0;
    for (int i = 0; i < n;) {
        int code = in[i++];
        if (code == 0 || i + code - 1 > n || o + code - 1 > LONGEST) return -1;
        for (int j = 1; j < code; j++) { if (!in[i]) return -1; out[o++] = in[i++]; }
        if (code < 255 && i < n) { if (o == LONGEST) return -1; out[o++] = 0; }
    }
    return o;
}

/* ---- Packed symbols (wire.md): one number in base M ---- */
static int packed_size(u32 base, int k) {                                   /* of base**k - 1, or -1 above 256 bytes */
    u8 top[MOST_PACKED + 1] = {0};
    int n = 0;
    for (int i = 0; i < k; i++) {                                           /* top = top * base + base - 1 */
        u64 carry = base - 1;
        for (int j = 0; j < n || carry; j++) {
            if (j == MOST_PACKED) return -1;
            carry += (u64)top[j] * base;
            top[j] = carry & 255;
            carry >>= 8;
            if (j >= n) n = j + 1;
        }
    }
    return n;
}

static void pack(u8 *out, int size, u32 base, const u32 *symbols, int k) {
    memset(out, 0, size);
    while (k--) {
        u64 carry = symbols[k];
        for (int j = 0; j < size; j++) {
            carry += (u64)out[j] * base;
            out[j] = carry & 255;
            carry >>= 8;
        }
    }
}

/* ---- Cards: decoded, certified, obeyed ---- */
#include "cards.c"

/* ---- ROUND (wire.md) ---- */
struct round {
    u32 device, number, tau;
    int model, range, exponent, classes, d, k, batch, epochs, rate, values;     /* values: how many there are to choose from */
    const u8 *question;                         /* parameters, or a bit a feature */
    struct card card;
};

static int asks(const struct round *r, int feature) { return r->question[feature / 8] >> feature % 8 & 1; }

static int is_local(int model) { return (model >= 5 && model <= 7) || model == 11; }

static int parse_round(struct round *r, const u8 *f, int n) {               /* f: n bytes, 17 or more, the tag included */
    if (n < 26 + 8) return 0;
    *r = (struct round){get32(f + 1), get32(f + 5), get32(f + 20), f[9], f[10], get_i8(f + 11), f[12], get16(f + 13), get16(f + 15),
                        f[17], f[18], f[19], 0, f + 26, {f, 0, 0, 0, 0}};
    int model = r->model, local = is_local(model), collect = model == 8 || model == 9, softmax = model == 4 || model >= 10;
    if (r->device == 0 || r->number < 1 || r->number > LAST_ROUND || model < 1 || model > 11) return 0;
    if (r->d < 1 || r->d > 128 || r->range > (model <= 3 || model == 8 || model == 10 ? 12 : model == 9)) return 0;
    if (collect ? r->exponent < 0 || r->exponent > (model == 9 ? 12 : 0) : r->exponent > -12 || r->exponent < (local ? -16 : -30)) return 0;
    if (!collect && r->classes * r->d > 1024) return 0;
    if (r->batch > (collect || model == 4 ? 0 : 32)) return 0;
    if (local ? r->epochs < 1 || r->rate > 16 || r->tau < 1 || r->tau > 1 << 23 : r->epochs || r->rate || r->tau) return 0;
    int size = collect ? (r->d + 7) / 8 : 2 * r->classes * r->d;
    r->card.n = get16(f + 24);
    r->card.at = r->question + size;
    if (r->card.n < 1 || r->card.n > 2048 || n != 26 + size + r->card.n + 8) return 0;
    int sum = (r->card.at[0] & 15) == SUM, counts = sum && model == 9;      /* counts: categories, of which `classes` are counted */
    if (softmax || counts ? r->classes < 2 || r->classes > 128 : r->classes != 1) return 0;
    if (counts && r->range) return 0;
    if (collect) {
        for (int j = 0; j < 8 * size; j++) {
            if (asks(r, j) && j >= r->d) return 0;
            r->values += asks(r, j) * r->classes;
        }
    } else r->values = model == 4 ? r->k : r->classes * r->d;
    if (model != 4 && sum) r->values++;                                     /* the tally */
    return r->values <= MOST_VALUES && r->k >= 1 && r->k <= r->values && (model != 4 || r->k == 1 || r->k == r->classes);
}

static u64 cost(const struct round *r, int in_rho) {
    int sum = r->card.shape == SUM, times_ = r->model == 4 || r->card.shape >= SUM ? 1 : r->k;
    return times_ * (in_rho && !(sum && r->card.at[5] == 2) ? rho_of(r->card.epsilon) : r->card.epsilon);
}

/* ---- What a device computes (arithmetic.md). Sums need 64 bits: a prediction has 37, a residual times a feature 40. ---- */
struct records { int d; i64 n; const u8 *rows; };                           /* rows of d features and a label, i16 each */

static const u8 *record(const struct records *s, i64 i) { return s->rows + (i % s->n) * 2 * (s->d + 1); }

static double e_to(double x) {                                              /* exp(x) for -12 <= x <= 0 */
    double term = 1, sum = 1;
    for (int i = 1; i < 99; i++) sum += term *= -x / i;
    return 1 / sum;
}

static i32 sigmoid(i64 t) {                                                 /* 1 / (1 + exp(t)) */
    if (t < 0) return ONE - sigmoid(-t);
    if (t >= 10 * ONE) return 0;
    i32 i = t >> 11, f = t & 2047;
    i32 a = ONE / (1 + 1 / e_to(-i / 8.0)) + 0.5, b = ONE / (1 + 1 / e_to(-(i + 1) / 8.0)) + 0.5;
    return a - (((a - b) * f + 1024) >> 11);
}

static i64 dot(const i32 *m, const u8 *x, int d) {
    i64 s = 0;
    for (int j = 0; j < d; j++) s += (i64)m[j] * get_i16(x + 2 * j);
    return s;
}

static i64 residual(int model, const i32 *m, int e, int fine, const u8 *x, int d) {
    i64 s = dot(m, x, d), z = nearest(s, -e), y = get_i16(x + 2 * d), margin = (i64)1 << (14 - e);
    if (model == 1) return clamp(z - y, (2047 >> fine) * (i64)ONE);
    if (model == 2) return y > 0 ? -sigmoid(z) : sigmoid(-z);
    return y > 0 ? (s < margin ? -ONE : 0) : (s > -margin ? ONE : 0);
}

static void probabilities(i32 *p, const i32 *m, int e, int classes, const u8 *x, int d, int q) {
    i64 z[128], most = 0, weight[128], sum = 0;
    for (int i = 0; i < classes; i++) {
        z[i] = nearest(dot(m + i * d, x, d), -e);
        if (i == 0 || z[i] > most) most = z[i];
    }
    for (int i = 0; i < classes; i++) {
        i64 t = most - z[i];
        weight[i] = 0;
        if (t < 12 * ONE) {
            i64 b = t >> 8 & 63, f = t & 255, w = 2 * ONE * e_to(-(double)(t >> 14)) + 0.5;
            i64 b0 = ONE * e_to(-b / 64.0) + 0.5, b1 = ONE * e_to(-(b + 1) / 64.0) + 0.5;
            weight[i] = (w * (b0 - (((b0 - b1) * f + 128) >> 8)) + 8192) >> 14;
        }
        sum += weight[i];
    }
    for (int i = 0; i < classes; i++) {
        i64 step = 1 << (14 - q);
        p[i] = ONE * weight[i] / sum / step * step;
    }
}

/* The residuals of a record, one for each class. */
static void residuals(i32 *r, int model, const i32 *m, int e, int classes, int fine, const u8 *x, int d) {
    if (model != 10) { r[0] = residual(model, m, e, fine, x, d); return; }
    probabilities(r, m, e, classes, x, d, 14);
    i32 label = get_i16(x + 2 * d);
    if (label >= 0 && label < classes) r[label] -= ONE;
}

static void mean_gradient(i32 *g, int model, const i32 *m, int e, int classes, int range, const struct records *s, i64 from, i64 n) {
    int fine = least(range, 10), d = s->d;
    i64 sums[MOST_VALUES] = {0};
    for (i64 i = from; i < from + n; i++) {
        const u8 *x = record(s, i);
        i32 r[128];
        residuals(r, model, m, e, classes, fine, x, d);
        for (int j = 0; j < classes * d; j++) sums[j] += nearest((i64)r[j / d] * get_i16(x + 2 * (j % d)), 14 - fine);
    }
    for (int j = 0; j < classes * d; j++) g[j] = clamp(floor_div(sums[j] * (1 << (range - fine)) + (n >> 1), n), ONE);
}

static void local_training(i32 *values, const struct round *r, const i32 *m, const struct records *s) {
    i32 fine[MOST_VALUES], p[MOST_VALUES], g[MOST_VALUES];
    int v = r->values, h = -6 - r->exponent - r->rate, model = r->model == 11 ? 10 : r->model - 4;
    i64 n = r->batch ? r->batch : MOST_TRAINED;                             /* records of a step; the last one may have fewer */
    for (int j = 0; j < v; j++) { fine[j] = 256 * m[j]; p[j] = m[j]; }
    for (int epoch = 0; epoch < r->epochs; epoch++)
        for (i64 from = 0; from < s->n; from += n) {
            mean_gradient(g, model, p, r->exponent, r->classes, 0, s, from, least(n, s->n - from));
            for (int j = 0; j < v; j++) {
                i64 step = h >= 0 ? (i64)g[j] * (1 << h) : nearest(g[j], -h);
                fine[j] = clamp(fine[j] - step, 256 * 32767);
                p[j] = nearest(fine[j], 8);
            }
        }
    for (int j = 0; j < v; j++) {
        i64 moved = (i64)fine[j] - 256 * m[j], size = moved < 0 ? -moved : moved;
        size = size >= r->tau ? ONE : (2 * ONE * size + r->tau) / (2 * (i64)r->tau);
        values[j] = moved < 0 ? -size : size;
    }
}

/* The n records that a gradient uses, of c: from this one on. */
static i64 choose_records(u32 number, int batch, i64 c, i64 *n) {
    *n = batch ? least(batch, c) : c;
    return (i64)(number - 1) * *n % c;
}

/* A feature as a category: itself, or the bin of a number, of 2**e from -1 to 1. */
static i64 category_of(i64 x, int e) {
    i64 width = (i64)2 * ONE >> e;
    if (e == 0) return x;
    return x < -ONE ? 0 : x >= ONE ? ((i64)1 << e) - 1 : (x + ONE) / width;
}

/* A category's bucket of n: the same for all who know the client and the round. */
static i32 bucket(u32 client, u32 number, i64 category, int n) {
    u8 whose[8], digest[32];
    put32(put32(whose, client), number);
    hash(digest, whose, 8, "", 0);
    return ((u64)get32(digest) * (category < 0 ? 0 : least(category, 8190)) + get32(digest + 4)) % 8191 % n;
}

/* ---- Sums of units (arithmetic.md) ---- */
static int bits(i64 n) { int l = 0; while (n >> l) l++; return l; }

static i64 scaled(i64 a, int n) { return n >= 0 ? a * ((i64)1 << n) : down(a, -n); }   /* a * 2**n, downwards */

static i64 length_of(const i64 *v, int n, int norm) {                       /* of norm 2 its square */
    i64 sum = 0;
    for (int j = 0; j < n; j++) sum += norm == 2 ? v[j] * v[j] : v[j] < 0 ? -v[j] : v[j];
    return sum;
}

/* The vector of a unit with these totals; whether it is clipped. */
static int unit_vector(i64 *vector, const i64 *totals, int n, int norm, i64 radius, i64 reach) {
    i64 most = 0, a[MOST_VALUES], size;
    for (int j = 0; j < n; j++) {
        i64 t = totals[j] < 0 ? -totals[j] : totals[j];
        if (t > most) most = t;
        vector[j] = 0;
    }
    if (most == 0) return 0;
    int s = bits(most) - 14;
    for (int j = 0; j < n; j++) a[j] = scaled(totals[j], -s);
    if (norm == 2) {
        i64 g = length_of(a, n, 2) / 16384 + 1, root = 0, h = 0;
        for (; g < 1 << 26; g *= 4) h++;
        while ((root + 1) * (root + 1) <= g) root++;
        size = -scaled(-(root + 1), 7 + s - h);                             /* upwards */
    } else size = scaled(length_of(a, n, 1), s);
    i64 larger = size > reach ? size : reach;
    int l = bits(larger), y = 29 - bits(radius), k = y + l - 15 - s;
    i64 p = scaled(radius, y) / (scaled(larger, 15 - l) + (l > 15));
    if (k > 30) return size > reach;
    for (int j = 0; j < n; j++) vector[j] = nearest(a[j] * p, k);
    if (length_of(vector, n, norm) > (norm == 2 ? radius * radius : radius))
        for (int j = 0; j < n; j++) vector[j] = a[j] < 0 ? -down(-a[j] * p, k) : down(a[j] * p, k);
    return size > reach;
}

static void sum_units(i32 *sums, const struct round *r, const struct records *s) {
    struct sum card = sum_of(&r->card);
    int n = r->values - 1, fine = r->range, d = r->d;
    i32 m[MOST_VALUES], residual_of[128];
    i64 totals[MOST_VALUES], vector[MOST_VALUES], most = 1 << 29;
    int collect = r->model == 8 || r->model == 9;
    for (int j = 0; !collect && j < n; j++) m[j] = get_i16(r->question + 2 * j);
    memset(sums, 0, (n + 1) * sizeof *sums);
    for (i64 i = 0; i < s->n;) {
        i64 end = card.unit ? least(s->n, (i / card.unit + 1) * card.unit) : s->n;
        memset(totals, 0, sizeof totals);
        for (; i < end; i++) {
            const u8 *x = record(s, i);
            for (int j = 0, at = 0; collect && j < d; j++) {
                if (!asks(r, j)) continue;
                i64 v = category_of(get_i16(x + 2 * j), r->exponent), last = r->classes - 1;
                i64 *total = totals + at + (r->model == 8 ? 0 : v < 0 ? 0 : least(v, last));
                *total = clamp(*total + (r->model == 8 ? scaled(v, fine) : ONE), most);
                at += r->classes;
            }
            if (collect) continue;
            residuals(residual_of, r->model, m, r->exponent, r->classes, fine, x, d);
            for (int j = 0; j < n; j++)
                totals[j] = clamp(totals[j] + nearest((i64)residual_of[j / d] * get_i16(x + 2 * (j % d)), 14 - fine), most);
        }
        sums[n] += unit_vector(vector, totals, n, card.norm, card.radius, card.reach) ? card.clipped : card.kept;
        for (int j = 0; j < n; j++) sums[j] += vector[j];
    }
}

static void compute(i32 *values, const struct round *r, const struct records *s, u32 client) {
    i32 m[MOST_VALUES];
    if (r->card.shape == SUM) { sum_units(values, r, s); return; }
    i64 n, from = choose_records(r->number, r->batch, s->n, &n);
    const u8 *one = record(s, r->number - 1);                               /* the record of models 4, 8 and 9 */
    if (r->model == 8 || r->model == 9) {
        for (int j = 0; j < r->d; j++) {
            i64 v = category_of(get_i16(one + 2 * j), r->exponent), n = r->card.symbols;
            if (!asks(r, j)) continue;
            if (r->model == 8) *values++ = clamp(v * (1 << r->range), ONE);
            else *values++ = r->range ? bucket(client, r->number, v, n) : v < 0 ? 0 : least(v, n - 1);
        }
        return;
    }
    for (int j = 0; j < r->classes * r->d; j++) m[j] = get_i16(r->question + 2 * j);
    if (r->model == 4) {
        i32 p[128], label = 0;
        probabilities(p, m, r->exponent, r->classes, one, r->d, r->k == 1 ? 14 : r->card.at[5]);
        for (int i = 1; i < r->classes; i++) if (p[i] > p[label]) label = i;
        for (int i = 0; i < r->k; i++) values[i] = r->k == 1 ? label : p[i];
    }
    else if (is_local(r->model)) local_training(values, r, m, s);
    else mean_gradient(values, r->model, m, r->exponent, r->classes, r->range, s, from, n);
}


/* Which k of the values: a partial shuffle that both sides can make, from the question's digest Q. */
static struct { u8 q[36], block[32]; int at; u32 blocks; } shuffle;

static u32 shuffle_byte(void) {
    if (shuffle.at == 32) {
        put32(shuffle.q + 32, shuffle.blocks++);
        hash(shuffle.block, shuffle.q, 36, "", 0);
        shuffle.at = 0;
    }
    return shuffle.block[shuffle.at++];
}

static int ascending(const void *a, const void *b) { return *(const u16 *)a - *(const u16 *)b; }

static void choose(u16 *entries, const u8 q[32], int values, int k) {       /* entries: room for all values; the first k count */
    memcpy(shuffle.q, q, 32);
    memcpy(shuffle.block + 24, q + 24, 8);
    shuffle.at = 24;
    shuffle.blocks = 0;
    for (int i = 0; i < values; i++) entries[i] = i;
    if (k == values) return;
    for (int i = 0; i < k; i++) {
        int j = i + uniform_from(shuffle_byte, values - i);
        u16 other = entries[j];
        entries[j] = entries[i];
        entries[i] = other;
    }
    qsort(entries, k, sizeof *entries, ascending);
}

/* ---- The board's files (storage.md) ---- */
struct client { u32 id, most_cost, budget, first_record, records, shapes; const u8 *key; double *paid_at; };

static struct { u8 *rows; u32 first, clients; double *paid_at; } board;     /* clients.bin */
static struct { int present; u32 pause, slot, ahead, epoch, records, unit; u8 key[32]; } fleet;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static u8 *read_file(const char *name, size_t *n) {                         /* the whole file, to be freed; NULL if there is none */
    FILE *f = fopen(name, "rb");
    long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    u8 *data = size < 0 ? NULL : malloc(size + 1);
    if (data) { rewind(f); *n = fread(data, 1, size, f); }
    if (f) fclose(f);
    return data;
}

static int write_file(const char *name, const u8 *data, size_t n) {         /* durable, and in one step */
    char new_name[32];
    snprintf(new_name, sizeof new_name, "%s.new", name);
    FILE *f = fopen(new_name, "wb");
    if (!f) return 0;
    int good = fwrite(data, 1, n, f) == n && fflush(f) == 0 && fsync(fileno(f)) == 0;
    good = fclose(f) == 0 && good;
    return good && rename(new_name, name) == 0;
}

static void load_board(void) {
    size_t n;
    u8 *f = read_file("fleet.bin", &n);
    int damaged = f && (n != 52 || memcmp(f, "TFL3", 4));
    if (f && !damaged) {
        fleet.present = 1;
        memcpy(fleet.key, f + 4, 32);
        fleet.pause = get32(f + 36);
        fleet.slot = get16(f + 40);
        fleet.ahead = get16(f + 42);
        fleet.epoch = get32(f + 44);
        fleet.records = get16(f + 48);
        fleet.unit = get16(f + 50);
        damaged = fleet.pause > 86400 || fleet.ahead < 1 || fleet.ahead > 1000;
    }
    free(f);
    board.rows = read_file("clients.bin", &n);
    if (damaged) memset(&fleet, 0, sizeof fleet);
    if (damaged || !board.rows || n == 0 || n % 52 || get32(board.rows) == 0 || get16(board.rows + 50) & ~0xFEu) return;
    board.first = get32(board.rows);
    board.clients = n / 52;
    board.paid_at = calloc(board.clients, sizeof *board.paid_at);
    if (!board.paid_at) exit(1);
    for (u32 i = 0; i < board.clients; i++) board.paid_at[i] = now();       /* a board that starts pauses first */
}

static int find_client(struct client *c, u32 id) {
    if (id < board.first || id - board.first >= board.clients) return 0;
    const u8 *row = board.rows + 52 * (size_t)(id - board.first);
    *c = (struct client){get32(row), get32(row + 36), get32(row + 40), get32(row + 44), get16(row + 48), get16(row + 50),
                         row + 4, board.paid_at + (id - board.first)};
    return c->id == id && id != FLEET && !(c->shapes & ~0xFEu);
}

/* The client's records that count, read whole; -1 if they are there, else the detail of ERR_DATA. */
static i64 load_records(struct records *s, u8 **file, const struct client *c, int d, int may_be_none) {
    size_t n;
    u8 *f = *file = read_file("records.bin", &n);
    if (!f || n < 10 || memcmp(f, "TRD1", 4)) return 0;
    u64 row = 2 * (get16(f + 4) + 1), all = get32(f + 6);
    s->d = get16(f + 4);
    s->rows = f + 10 + row * c->first_record;
    s->n = fleet.records ? least(c->records, fleet.records) : c->records;
    if ((s->n == 0 && !may_be_none) || (u64)c->first_record + s->n > all || 10 + row * all != n) return 0;
    return s->d == d ? -1 : s->d;
}

/* ---- Ledger (ledger.md) ---- */
enum { IDLE, ANSWERED, RESERVED };
struct ledger { u32 budget, spent, last; u8 question[32]; int state, measure, n; u8 report[17 + MOST_PACKED]; };

/* While a board uses up what it has paid ahead: what is really spent, and what the file says. */
static struct { int active; struct ledger real; u32 spent, last; } ahead;

static u32 crc32(const u8 *p, size_t n) {
    u32 crc = 0xFFFFFFFF;
    while (n--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

static int decode_ledger(struct ledger *l, const u8 *f, size_t size) {
    static const u8 none[32];
    u8 check[4];
    if (size < 58 || memcmp(f, "TLG3", 4) || get16(f + 52)) return 0;       /* this board has no counter to which it could be bound */
    *l = (struct ledger){get32(f + 4), get32(f + 8), get32(f + 12), {0}, f[48], f[49], get16(f + 50), {0}};
    int idle = l->state == IDLE, asked = memcmp(f + 16, none, 32) != 0;
    if (size < 58u + l->n || l->budget > 1000000000 || l->spent > l->budget || l->last > LAST_ROUND || l->state > RESERVED || l->measure > 1) return 0;
    put32(check, crc32(f, 54 + l->n));
    if (!same(check, f + 54 + l->n, 4) || (l->spent == 0) != idle || (l->last == 0 && !idle)) return 0;
    if ((l->state != ANSWERED && asked) || (l->state == ANSWERED ? l->n < 18 || l->n > 273 : l->n)) return 0;
    memcpy(l->question, f + 16, 32);
    memcpy(l->report, f + 54, l->n);
    return 1;
}

static int encode_ledger(u8 *f, const struct ledger *l) {
    u8 *p = put32(put32(put32(put(f, "TLG3", 4), l->budget), l->spent), l->last);
    p = put(p, l->question, 32);
    *p++ = l->state;
    *p++ = l->measure;
    p = put(put16(put16(p, l->n), 0), l->report, l->n);
    return put32(p, crc32(f, p - f)) - f;
}

/* What stands against a round of this number: OK if nothing does. ANSWERED and the same question: the report is there. */
static int compare_round(const struct ledger *l, u32 number, int for_fleet) {
    if (number <= l->last) return number < l->last ? ERR_OLD_ROUND : ERR_CHANGED_ROUND;
    return number - l->last > (for_fleet ? 1024u : 1u << 20) ? ERR_AHEAD : OK;
}

/* Pay for a report: l is what was, and becomes what is. The length of the file to be written, or 0 if an earlier one covers it. */
static int pay(struct ledger *l, u32 number, const u8 question[32], u64 price, i64 at_once, u32 budget, u8 *file) {
    i64 n = least(at_once, least((budget - l->spent) / price, LAST_ROUND - number + 1));
    int covered = ahead.active && number <= ahead.last && l->spent + price <= ahead.spent;
    struct ledger reserved = {l->budget, l->spent + n * price, number + n - 1, {0}, RESERVED, l->measure, 0, {0}};
    l->spent += price;
    l->last = number;
    l->state = l->n ? ANSWERED : RESERVED;                                  /* no report: this round is over, and paid for */
    if (l->n) memcpy(l->question, question, 32); else memset(l->question, 0, 32);
    if (!covered) {
        ahead.active = n > 1;
        ahead.spent = reserved.spent;
        ahead.last = reserved.last;
    }
    ahead.real = *l;
    return covered ? 0 : encode_ledger(file, n > 1 ? &reserved : l);
}

static u8 as_loaded[32];                        /* the hash of the ledger's file as this program knows it */

static const char *ledger_name(u32 id) {
    static char name[20];
    snprintf(name, sizeof name, "ledger/%08x", (unsigned)id);
    return name;
}

static u8 *read_ledger(u32 id, size_t *n, u8 digest[32]) {
    u8 *f = read_file(ledger_name(id), n);
    if (f) hash(digest, f, *n, "", 0);
    return f;
}

static int load_ledger(struct ledger *l, u32 id) {
    size_t n;
    if (ahead.active) { *l = ahead.real; return 1; }
    u8 *f = read_ledger(id, &n, as_loaded);
    int good = f && decode_ledger(l, f, n);
    free(f);
    return good;
}

static int store_ledger(u32 id, const u8 *file, int n) {                    /* refuses where another process has written */
    size_t size;
    u8 digest[32] = {0};
    int folder = open("ledger", O_RDONLY);
    if (folder < 0) return 0;
    flock(folder, LOCK_EX);
    free(read_ledger(id, &size, digest));
    int good = same(digest, as_loaded, 32) && write_file(ledger_name(id), file, n);
    close(folder);
    hash(as_loaded, file, n, "", 0);
    if (!good) ahead.active = 0;                                            /* what the file says counts again */
    return good;
}

/* ---- Answers ---- */
static void send_frame(const u8 *frame, int n) {
    u8 coded[LONGEST + 16];
    int size = cobs_encode(coded, frame, n);
    coded[size++] = 0;
    fwrite(coded, 1, size, stdout);
    fflush(stdout);
}

static void seal_and_send(u8 *frame, u8 *end, const u8 *key, int n_key) {
    u8 digest[32];
    hash(digest, key, n_key, frame, end - frame);
    send_frame(frame, put(end, digest, 8) - frame);
}

static void send_error(const u8 *answer_key, u32 device, u32 number, int code, u32 detail) {   /* device 0: the board, without a key */
    u8 f[22] = {ERROR}, *p = put32(put32(f + 1, device), number);
    *p++ = code;
    seal_and_send(f, put32(p, detail), answer_key, device ? 16 : 0);
}

static u32 budget_left(const struct client *c, const struct ledger *l) {
    u32 budget = least(c->budget, l->budget);
    return budget > l->spent ? budget - l->spent : 0;
}

static int credit_count;                        /* bytes taken since the last credit */

static void send_hello(u32 nonce) {
    static const char text[] = "second device; C99; tern protocol 2";
    u8 f[128] = {HELLO}, *p = put32(f + 1, nonce);
    struct client c;
    struct ledger l;
    *p++ = 2;
    p = put32(put32(put(p, SCHEMA, 8), board.first), board.clients);
    p = put16(put16(p, LONGEST), CREDIT);
    int known = find_client(&c, board.first) && load_ledger(&l, c.id);
    p = put32(p, known ? budget_left(&c, &l) : 0);
    p = put32(p, known ? l.spent : 0);
    p = put16(put32(put32(p, fleet.epoch), 0), fleet.records);
    p = put16(put16(p, 0), 0);
    *p++ = random_failed ? 0 : 2;
    *p++ = 0;
    *p++ = known ? l.measure : 0;
    p = put16(p, fleet.unit);
    p = put(p, "\0\0\0", 3);
    *p++ = sizeof text - 1;
    credit_count = 0;
    seal_and_send(f, put(p, text, sizeof text - 1), NULL, 0);
}

static int slot_exceeded(const struct round *r, int size) {
    i64 bound = fleet.records ? fleet.records : 65535, batch = r->batch ? r->batch : r->epochs ? MOST_TRAINED : bound;
    i64 records = r->model <= 3 || r->model == 10 ? batch : r->epochs ? r->epochs * (bound + bound / batch + 1) : 1;
    i64 unit = r->card.shape == SUM ? get16(r->card.at + 6) : 0, units = unit ? least(bound, (bound - 1) / unit + 2) : 1;
    i64 slow = 0;
    if (r->card.shape == SUM) {
        i64 c = get32(r->card.at + 22), wide = (i64)get32(r->card.at + 18) * get32(r->card.at + 26);
        records = bound;
        slow = c ? wide / (3 * c) + c / wide : 0;
    } else units = 0;
    i64 record = r->model == 9 ? 20 * r->d + 128 : r->classes * (r->d + 64) + (r->classes > 1 ? 224 : 128);
    i64 work = 240 + (records * record >> 8) + (r->k * size >> 11);
    if (r->model == 11 || (r->model == 10 && r->card.shape >= SUM) || (r->model == 8 && r->card.shape > SUM)) work += 50;
    work += (units * (r->values + 64) >> 6) + r->k * slow + (r->k >> 2) + (r->card.shape > WINDOW ? r->k : 0) + (r->card.n >> (r->card.shape == HIERARCHY ? 3 : 6));
    return fleet.slot && work > fleet.slot;
}

/* One client's answer to a ROUND whose tag has verified: OK and a report in l, or the code of an ERROR. The order of these
 * refusals is that of wire.md. */
static int answer(struct ledger *l, const struct client *c, const u8 q[32], const u8 *f, int n, u32 *detail) {
    struct round r;
    struct records s;
    *detail = 0;
    if (!parse_round(&r, f, n)) return ERR_FRAME;
    if (!load_ledger(l, c->id)) return ERR_LEDGER;
    *detail = l->last;
    int code = compare_round(l, r.number, r.device == FLEET);
    if (code == ERR_CHANGED_ROUND && l->state == ANSWERED && same(l->question, q, 32)) return OK;
    if (code != OK) return code;
    *detail = 0;
    int size = decode(&r.card) ? packed_size(r.card.symbols, r.k) : -1;
    int label = r.model == 4 && r.k == 1, category = label || r.model == 9;
    if (size < 0 || (r.model == 4 && !label && r.card.shape != LAPLACE)) return ERR_CARD;
    if (category && r.card.shape != SUM && (r.card.shape != WINDOW || get16(r.card.at + 7) != 1)) return ERR_CARD;
    if (label && r.card.symbols != r.classes) return ERR_CARD;
    int sum = r.card.shape == SUM;
    if (sum && (r.batch || r.range > 10 || r.model == 4 || is_local(r.model))) return ERR_CARD;
    int projection = r.card.shape == PROJECTION, many = 2 * r.values > r.card.symbols;
    if (projection && ((r.model > 3 && r.model != 8 && r.model != 10) || r.k > 1 || many)) return ERR_CARD;
    u32 unit = sum ? get16(r.card.at + 6) : 0;
    *detail = fleet.unit;
    if (unit && unit != fleet.unit) return ERR_UNIT;
    *detail = 0;
    if (sum && r.card.at[5] == 2 && !l->measure) return ERR_MEASURE;
    u64 price = cost(&r, l->measure);
    *detail = c->most_cost;
    if (price > c->most_cost || (c->shapes && !(c->shapes >> r.card.shape & 1))) return ERR_POLICY;
    *detail = 0;
    if (slot_exceeded(&r, size)) return ERR_SLOT;
    *detail = r.card.epsilon;
    if (!certified(&r.card, r.card.epsilon)) return ERR_NOT_CERTIFIED;
    u8 *file;
    i64 wrong = load_records(&s, &file, c, r.d, sum);
    *detail = wrong < 0 ? 0 : wrong;
    double waits = fleet.pause - (now() - *c->paid_at);
    code = wrong >= 0 ? ERR_DATA : random_failed ? ERR_ENTROPY : price > budget_left(c, l) ? ERR_BUDGET :
        fleet.pause && waits > 0 ? ERR_TOO_SOON : OK;
    if (code == ERR_BUDGET) *detail = budget_left(c, l);
    if (code == ERR_TOO_SOON) *detail = (u32)waits + 1;
    if (code == OK) {                           /* from here on the client pays, whatever happens */
        i32 values[MOST_VALUES];
        u32 symbols[MOST_VALUES];
        u16 chosen[MOST_VALUES];
        u8 digest[32], ledger[60 + sizeof l->report];
        compute(values, &r, &s, c->id);
        if (projection) symbols[0] = draw_projection(&r.card, values, r.values, q);
        else {
            choose(chosen, q, r.values, r.k);
            for (int i = 0; i < r.k; i++) values[i] = values[chosen[i]];    /* chosen[i] >= i: they ascend */
            draw_all(&r.card, values, r.k, category, symbols);
        }
        l->report[0] = REPORT;
        pack(put32(put32(l->report + 1, c->id), r.number), size, r.card.symbols, symbols, r.k);
        hash(digest, q + 8, 16, l->report, 9 + size);
        put(l->report + 9 + size, digest, 8);
        int failed = random_failed;             /* if the draw failed, the report is lost, and paid for all the same */
        l->n = failed ? 0 : 17 + size;
        end_of_draws();
        int n_file = pay(l, r.number, q, price, board.clients == 1 && fleet.present ? fleet.ahead : 1, least(c->budget, l->budget), ledger);
        if (n_file && !store_ledger(c->id, ledger, n_file)) code = ERR_LEDGER;
        else if (failed) code = ERR_ENTROPY;
        *c->paid_at = now();
    }
    free(file);
    return code;
}

/* Q: the question to this client. Its first 8 bytes are the tag of a ROUND for this client alone. */
static void question(u8 q[32], const struct client *c, const u8 *f, int n) {
    u8 head[37], *p = put(head, c->key, 32);
    *p++ = ROUND;
    put32(p, c->id);
    hash(q, head, 37, f + 5, n - 13);
}

static void on_round(const u8 *f, int n) {
    struct client c;
    struct ledger l;
    u8 q[32], rows[LONGEST] = {REPORTS};
    u32 detail;
    int code, end = 7;
    if (n < 17) { send_error(NULL, 0, 0, ERR_FRAME, 0); return; }
    u32 device = get32(f + 1), number = get32(f + 5);
    if (device == FLEET) {
        if (!fleet.present || !board.clients || !tag_verifies(fleet.key, 32, f, n)) { send_error(NULL, 0, number, ERR_DEVICE, FLEET); return; }
        for (u32 i = 0; i < board.clients; i++) {
            if (!find_client(&c, board.first + i)) { send_error(NULL, 0, number, ERR_DEVICE, board.first + i); continue; }
            question(q, &c, f, n);
            if ((code = answer(&l, &c, q, f, n, &detail)) != OK) { send_error(q + 8, c.id, number, code, detail); continue; }
            if (board.clients == 1 || fleet.slot) { send_frame(l.report, l.n); continue; }
            if (end + l.n - 5 > LONGEST) { send_frame(rows, end); end = 7; }
            put16(put32(rows + 1, number), l.n - 17);
            put(put(rows + end, l.report + 1, 4), l.report + 9, l.n - 9);   /* a row: device, symbols, tag */
            end += l.n - 5;
        }
        if (end > 7) send_frame(rows, end);
        return;
    }
    if (!find_client(&c, device)) { send_error(NULL, 0, number, ERR_DEVICE, device); return; }
    question(q, &c, f, n);
    if (!same(q, f + n - 8, 8)) { send_error(NULL, 0, number, ERR_TAG, 0); return; }
    if ((code = answer(&l, &c, q, f, n, &detail)) == OK) send_frame(l.report, l.n);
    else send_error(q + 8, c.id, number, code, detail);
}

static int unhide(u8 new_key[32], const struct client *c, const u8 *f) {    /* of FLEET_KEY, whose tag verifies */
    for (int half = 0; half < 2; half++) {
        u8 digest[32], label[20] = "tern fleet key ";
        *put32(label + 15, get32(f + 5)) = '1' + half;
        hash(digest, c->key, 32, label, 20);
        for (int i = 0; i < 16; i++) new_key[16 * half + i] = f[9 + 16 * half + i] ^ digest[i];
    }
    return 1;
}

static void on_fleet_key(const u8 *f, int n) {
    struct client c;
    u8 file[52] = "TFL3";
    if (n != 49) { send_error(NULL, 0, 0, ERR_FRAME, 0); return; }
    u32 epoch = get32(f + 5);
    if (get32(f + 1) != board.first || !find_client(&c, board.first)) { send_error(NULL, 0, 0, ERR_DEVICE, get32(f + 1)); return; }
    if (!tag_verifies(c.key, 32, f, n)) { send_error(NULL, 0, 0, ERR_TAG, 0); return; }
    if (fleet.present && fleet.epoch < epoch) {
        unhide(file + 4, &c, f);
        u8 *p = put16(put16(put32(file + 36, fleet.pause), fleet.slot), fleet.ahead);
        put16(put16(put32(p, epoch), fleet.records), fleet.unit);
        if (write_file("fleet.bin", file, 52)) { memcpy(fleet.key, file + 4, 32); fleet.epoch = epoch; }
    }
    send_hello(epoch);
}

static void on_frame(const u8 *f, int n) {
    if (n == 0 || f[0] == MODEL) return;        /* this board has no use for a model */
    if (f[0] == ROUND) on_round(f, n);
    else if (f[0] == FLEET_KEY) on_fleet_key(f, n);
    else if (f[0] != HELLO_REQUEST || n != 13) send_error(NULL, 0, 0, ERR_FRAME, 0);
    else if (!tag_verifies(NULL, 0, f, n)) send_error(NULL, 0, 0, ERR_TAG, 0);
    else send_hello(get32(f + 1));
}

static void serve(void) {                       /* the serial line: frames between zeros, a credit every 128 bytes */
    u8 coded[LONGEST + LONGEST / 254 + 2], frame[LONGEST];
    int c, n = 0;
    while ((c = getchar()) != EOF) {
        if (++credit_count == CREDIT) { credit_count = 0; putchar(0); fflush(stdout); }
        if (c) {
            if (n < (int)sizeof coded) coded[n] = c;
            n = least(n + 1, sizeof coded + 1);
            if (n == 2 && coded[0] == 0x0D && coded[1] == 0x03) return;     /* somebody wants the console */
        } else if (n) {
            int size = n > (int)sizeof coded ? -1 : cobs_decode(frame, coded, n);
            n = 0;
            if (size < 0) send_error(NULL, 0, 0, ERR_FRAME, 0);
            else on_frame(frame, size);
        }
    }
}

static int system_bytes(u8 *out, int n) {
    FILE *f = fopen("/dev/urandom", "rb");
    if (!f) return 0;
    n = fread(out, 1, n, f);
    fclose(f);
    return n;
}

#include "check.c"

int main(int n, char **arguments_) {
    if (n == 2 && !strcmp(arguments_[1], "--check")) return check();
    if (n == 4 && !strcmp(arguments_[2], "--random")) random_file = fopen(arguments_[3], "rb");
    else if (n == 2) { raw_source = system_bytes; start_generator(128); }
    else { fprintf(stderr, "usage: device DIRECTORY [--random FILE] | device --check\n"); return 2; }
    if (n == 4) random_failed = !random_file;
    if (chdir(arguments_[1])) { perror(arguments_[1]); return 1; }
    umask(077);                                 /* ledgers are for their owner alone */
    load_board();
    serve();
    return 0;
}
