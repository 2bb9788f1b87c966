/* Cards (cards.md): decoding, certification, draws; included by device.c. A card is read where it lies; `symbols` is M, 0
 * until it is decoded. */
struct card { const u8 *at; int n, shape, symbols; u32 epsilon; };

static int decode(struct card *c);

static struct card inner(const struct card *c, int index) {                 /* a card within a card; symbols stay 0 if it does not decode */
    int m = c->at[5], levels = 6 + 2 * (m - 1), first = get16(c->at + 9);
    struct card in = {c->at, 0, 0, 0, 0};
    if (c->shape == MIXTURE) { in.at += index ? 11 + first : 11; in.n = index ? c->n - 11 - first : first; }
    else if (index < m) { in.at += levels + 13 * index; in.n = 13; }        /* m level cards, then m value cards */
    else { in.at += levels + 13 * m + 17 * (index - m); in.n = 17; }
    if (in.n < 1 || (in.at[0] & 15) > WINDOW || !decode(&in)) in.symbols = 0;
    return in;
}

static int decode_table(struct card *c) {
    const u8 *at = c->at;
    if (c->n < 7 || at[5] > 5 || at[6] < 2 || at[6] > 16) return 0;
    int rows = (1 << at[5]) + 1, m = at[6];
    if (c->n != 7 + m + 4 * rows * (m - 1)) return 0;
    for (int i = 1; i < m; i++)
        if (get_i8(at + 7 + i) <= get_i8(at + 6 + i)) return 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < m - 1; j++) {
            const u8 *threshold = at + 7 + m + 4 * (i * (m - 1) + j);
            if (get32(threshold) <= (j ? get32(threshold - 4) : 0) || get32(threshold) >= T) return 0;
        }
    c->symbols = m;
    return 1;
}

static int decode_window(struct card *c) {
    const u8 *at = c->at;
    if (c->n != 13) return 0;
    u32 n = get16(at + 5), w = get16(at + 7), p = get32(at + 9);
    if (n < 2 || n > 256 || w < 1 || w >= n || p < 1 || p >= T) return 0;
    c->symbols = n;
    return 1;
}

static int decode_laplace(struct card *c) {
    const u8 *at = c->at;
    if (c->n != 22) return 0;
    i64 q = at[5], t = get32(at + 6), s = get32(at + 10), lo = get_i32(at + 14), hi = get_i32(at + 18), most = 1 << 20;
    if (q > 14 || t < 1 || t > most || s < 1 || s > most) return 0;
    if (lo < -most || lo > -(1 << q) || hi > most || hi < 1 << q || hi - lo > 65535) return 0;
    c->symbols = hi - lo + 1;
    return 1;
}

static int decode_mixture(struct card *c) {
    if (c->n < 11 || get32(c->at + 5) < 1 || get32(c->at + 5) >= T || 11 + (int)get16(c->at + 9) > c->n) return 0;
    struct card a = inner(c, 0), b = inner(c, 1);
    c->symbols = a.symbols + b.symbols;
    return a.symbols && b.symbols && c->symbols <= 256;
}

static int decode_hierarchy(struct card *c) {
    int m = c->n > 5 ? c->at[5] : 0;
    if (m < 2 || m > 16 || c->n != 6 + 2 * (m - 1) + 30 * m) return 0;
    for (i32 i = 0, above = ONE + 1; i < m - 1; i++) {
        i32 bound = get_i16(c->at + 6 + 2 * i);
        if (bound >= above || bound <= -ONE) return 0;
        above = bound;
    }
    for (int i = 0; i < 2 * m; i++) {
        struct card in = inner(c, i);
        if (in.shape != (i < m ? WINDOW : TABLE) || in.symbols != (i < m ? m : 2)) return 0;
        if (i < m ? get16(in.at + 7) != 1 : in.at[5] || get_i8(in.at + 7) != -1 || get_i8(in.at + 8) != 1) return 0;
    }
    c->symbols = 2 * m;
    return 1;
}

static int within(i64 a, i64 low, i64 high) { return low <= a && a <= high; }

/* The fields of a sum card, from its norm on. */
struct sum { i64 norm, unit, radius, reach, clipped, kept, t, c, m; int q, b; };

static struct sum sum_of(const struct card *c) {
    const u8 *at = c->at;
    return (struct sum){at[5], get16(at + 6), get16(at + 8), get32(at + 10), get_i16(at + 14), get_i16(at + 16),
                        get32(at + 18), get32(at + 22), get32(at + 26), at[30], at[31]};
}

static int decode_sum(struct card *c) {
    if (c->n != 32) return 0;
    struct sum s = sum_of(c);
    if (!within(s.norm, 1, 2) || !within(s.radius, 1, 4096) || !within(s.reach, 1, (1 << 30) - 1)) return 0;
    if (!within(s.clipped, -4096, 4096) || !within(s.kept, -4096, 4096) || !within(s.t, 1, 1 << 20)) return 0;
    if (s.norm == 1 && (s.c || s.m)) return 0;
    if (s.norm == 2 && (!within(s.c, 1, 1 << 19) || !within(s.c, 1, 4 * s.t * s.m))) return 0;
    if (s.norm == 2 && !within(s.t * s.m, 1, least(1 << 20, 64 * s.c))) return 0;
    c->symbols = 1 << s.b % 32;
    return within(s.q, 0, 20) && within(s.b, 2, 16);
}

/* The fields of a projection card, from n on; the weights of all symbols together. */
struct projection { i64 n, k, a, b, radius, total; };

static struct projection projection_of(const struct card *c) {
    const u8 *at = c->at;
    struct projection p = {at[5], at[6], get32(at + 7), get32(at + 11), get16(at + 15), 0};
    p.total = p.k * p.a + ((i64)(2 << p.n % 8) - p.k) * p.b;
    return p;
}

static int decode_projection(struct card *c) {
    if (c->n != 17) return 0;
    struct projection p = projection_of(c);
    c->symbols = 2 << p.n % 8;
    return within(p.n, 1, 7) && within(p.k, 1, c->symbols / 2) && within(p.b, 1, p.a) && p.total <= 1 << 20 && within(p.radius, 1, 1 << 15);
}

static int decode(struct card *c) {
    if (c->n < 5 || c->n > 2048 || c->at[0] >> 4 != 1) return 0;
    c->shape = c->at[0] & 15;
    c->epsilon = get32(c->at + 1);
    c->symbols = 0;
    if (c->epsilon < 1 || c->epsilon > 20000000) return 0;
    switch (c->shape) {
        case TABLE: return decode_table(c);
        case WINDOW: return decode_window(c);
        case LAPLACE: return decode_laplace(c);
        case MIXTURE: return decode_mixture(c);
        case HIERARCHY: return decode_hierarchy(c);
        case SUM: return decode_sum(c);
        case PROJECTION: return decode_projection(c);
    }
    return 0;
}

/* ---- Certification: exact, in integers of five words (cards.md, Widths) ---- */
struct wide { u32 limb[5]; };

static struct wide wide(u64 v) { struct wide w = {{v & 0xFFFFFFFF, v >> 32}}; return w; }

static struct wide times(struct wide a, struct wide b) {
    struct wide r = wide(0);
    for (int i = 0; i < 5; i++)
        for (u64 j = 0, carry = 0; i + j < 5; j++) {
            carry += (u64)a.limb[i] * b.limb[j] + r.limb[i + j];
            r.limb[i + j] = carry & 0xFFFFFFFF;
            carry >>= 32;
        }
    return r;
}

static struct wide plus(struct wide a, struct wide b) {
    u64 carry = 0;
    for (int i = 0; i < 5; i++) { carry += (u64)a.limb[i] + b.limb[i]; a.limb[i] = carry & 0xFFFFFFFF; carry >>= 32; }
    return a;
}

static struct wide over(struct wide a, u32 n) {
    u64 rest = 0;
    for (int i = 4; i >= 0; i--) { rest = rest << 32 | a.limb[i]; a.limb[i] = rest / n; rest %= n; }
    return a;
}

static int at_most(struct wide a, struct wide b) {
    for (int i = 4; i >= 0; i--) if (a.limb[i] != b.limb[i]) return a.limb[i] < b.limb[i];
    return 1;
}

static struct wide exp_lower(u32 epsilon) {
    struct wide term = wide((u64)1 << 60), sum = term;
    for (u32 i = 1; !at_most(term, wide(0)); i++) {
        term = over(times(term, wide(epsilon)), i * 1000000);
        sum = plus(sum, term);
    }
    return over(sum, 1 << 20);
}

static int ratio_kept(struct wide e, struct wide likely, struct wide unlikely) {
    return at_most(times(likely, wide((u64)1 << 40)), times(e, unlikely));
}

static u32 count(const struct card *c, int knot, int symbol) {              /* of a table: n_ij */
    const u8 *row = c->at + 7 + c->symbols + 4 * knot * (c->symbols - 1);
    u32 below = symbol ? get32(row + 4 * (symbol - 1)) : 0;
    return (symbol < c->symbols - 1 ? get32(row + 4 * symbol) : T) - below;
}

static int certified_hierarchy(const struct card *c, struct wide e) {
    int m = c->at[5];
    for (int symbol = 0; symbol < 2 * m; symbol++) {
        int t = symbol / 2, j = symbol % 2;
        struct card value = inner(c, m + t);
        struct wide most = wide(0), fewest = wide(0);
        for (int end = 0; end < 2 * m; end++) {                             /* both ends of every range */
            int i = end / 2;
            i64 low = i < m - 1 ? get_i16(c->at + 6 + 2 * i) : -ONE, high = i ? get_i16(c->at + 4 + 2 * i) - 1 : ONE;
            i64 x = end % 2 ? high : low;
            u64 p = get32(inner(c, i).at + 9), q = t == i ? p * (m - 1) : T - p;
            struct wide w = times(wide(q), wide((u64)count(&value, 0, j) * (ONE - x) + (u64)count(&value, 1, j) * (ONE + x)));
            if (end == 0 || !at_most(w, most)) most = w;
            if (end == 0 || at_most(w, fewest)) fewest = w;
        }
        if (!ratio_kept(e, most, fewest)) return 0;
    }
    return 1;
}

static i64 largest_tally(const struct sum *s) {
    i64 a = s->clipped < 0 ? -s->clipped : s->clipped, b = s->kept < 0 ? -s->kept : s->kept;
    return a > b ? a : b;
}

static int certified_sum(const struct card *c, u64 loss) {
    struct sum s = sum_of(c);
    i64 tally = largest_tally(&s);
    i64 vectors = s.unit ? 1 : 2;                                            /* a run is there or not; a device's is replaced */
    if (s.norm == 1) return loss * s.t >= (u64)1000000 * vectors * (s.radius + tally);
    i64 moved = vectors * vectors * (s.radius * s.radius + tally * tally);
    return at_most(times(wide((u64)1000000 * s.m), wide(moved)), times(wide(2 * loss * s.c), wide(s.t)));
}

/* What a report of this epsilon costs in rho: the least p with e (X - 2**40) <= p (X + 2**40) (ledger.md). */
static u64 rho_of(u32 e) {
    struct wide lower = exp_lower(e), one = wide((u64)1 << 40);
    struct wide x = plus(plus(lower, over(over(lower, 1 << 30), 1 << 7)), wide(1)), most = times(wide(e), x);
    u64 low = 0, high = e;                                                  /* low is too small, high is not */
    while (high - low > 1) {
        u64 p = (low + high) / 2;
        if (at_most(most, plus(times(wide(p), plus(x, one)), times(wide(e), one)))) high = p; else low = p;
    }
    return high;
}

static int certified(const struct card *c, u32 epsilon) {
    const u8 *at = c->at;
    struct wide e = exp_lower(epsilon);
    if (c->shape == TABLE) {
        for (int j = 0; j < c->symbols; j++) {
            u32 most = 0, fewest = T;
            for (int i = 0; i <= 1 << at[5]; i++) {
                u32 n = count(c, i, j);
                if (n > most) most = n;
                if (n < fewest) fewest = n;
            }
            if (!ratio_kept(e, wide(most), wide(fewest))) return 0;
        }
        return 1;
    }
    if (c->shape == WINDOW) {
        u64 w = get16(at + 7), s = get16(at + 5) - w, p = get32(at + 9);
        return ratio_kept(e, wide(p * s), wide(w * (T - p))) && ratio_kept(e, wide(w * (T - p)), wide(p * s));
    }
    if (c->shape == LAPLACE)                                                /* below 2**45 and 2**55: 64 bits */
        return (u64)epsilon * get32(at + 6) >= ((u64)2 << at[5]) * get32(at + 10) * 1000000;
    if (c->shape == MIXTURE) {
        struct card a = inner(c, 0), b = inner(c, 1);
        return certified(&a, epsilon) && certified(&b, epsilon);
    }
    if (c->shape == SUM) return certified_sum(c, epsilon);
    if (c->shape == PROJECTION) return ratio_kept(e, wide(get32(at + 7)), wide(get32(at + 11)));
    return certified_hierarchy(c, e);
}

/* ---- Random draws: one stream of bytes, each read only when it is needed ---- */
#include "entropy.c"

/* How many of these thresholds out of 2**48 are <= r, a random number whose bytes are read only until that is known. */
static int thresholds_passed(const u64 *thresholds, int n) {
    u64 low = 0, size = (u64)1 << 48;                                       /* r is in low .. low + size - 1 */
    for (;;) {
        int passed = 0, known = 1;
        for (int i = 0; i < n; i++) {
            if (thresholds[i] <= low) passed++;
            else if (thresholds[i] < low + size) known = 0;
        }
        if (known || random_failed) return passed;
        size >>= 8;
        low += random_byte() * size;
    }
}

static int bernoulli(u32 f, int bits) {                                     /* 1 with probability f / 2**bits */
    u64 threshold = (u64)f << (48 - bits);
    return !thresholds_passed(&threshold, 1);
}

static u32 uniform_from(u32 (*next_byte)(void), u32 n) {                    /* 0 .. n-1, n at most 2**30 */
    u32 mask = 1, v;
    if (n == 1) return 0;
    while (mask < n - 1) mask = 2 * mask + 1;
    do {
        v = 0;
        for (int shift = 0; shift < 32 && mask >> shift; shift += 8) v |= next_byte() << shift;
        v &= mask;
    } while (v >= n && !random_failed);
    return v;
}

static u32 uniform(u32 n) { return uniform_from(random_byte, n); }

static i64 laplace_noise(i64 t, i64 s, int of_a_sum) {                      /* there an offset of 0 is kept at once */
    for (;;) {
        i64 offset, whole = 0, k;
        do {                                                                /* Bernoulli(exp(-offset/t)) */
            offset = uniform(t);
            for (k = 1; !(of_a_sum && offset == 0) && !random_failed && uniform(t) < offset && (k == 1 || uniform(k) == 0); k++) {}
        } while (k % 2 == 0);
        do {                                                                /* Bernoulli(exp(-1)) */
            for (k = 2; uniform(k) == 0 && !random_failed; k++) {}
            whole += k % 2;
        } while (k % 2 && !random_failed);
        i64 magnitude = (offset + t * whole) / s;
        int negative = random_byte() & 1;
        if (!negative) return magnitude;
        if (magnitude || random_failed) return -magnitude;
    }
}

static int decays(i64 a, i64 n, i64 b, i64 m) {                             /* Bernoulli(exp(-a b / (n m))) */
    int k = 1;
    if (a == 0 || b == 0) return 1;
    while (!random_failed && uniform(n) < a && uniform(m) < b && (k == 1 || uniform(k) == 0)) k++;
    return k % 2;
}

static int all_decay(i64 times_, i64 a, i64 n) {                            /* so many times Bernoulli(exp(-a / n)) are 1 */
    while (times_-- > 0) if (random_failed || !decays(a, n, 1, 1)) return 0;
    return 1;
}

static i64 gaussian_noise(const struct sum *s) {
    while (!random_failed) {
        i64 y = laplace_noise(s->t, 1, 1), distance = s->m * (y < 0 ? -y : y) - s->c, tm = s->t * s->m;
        if (distance < 0) distance = -distance;
        i64 x = distance / (2 * s->c), e = distance % (2 * s->c), v = distance / tm, g = distance % tm;
        if (all_decay(x * v, 1, 1) && all_decay(x, g, tm) && all_decay(v, e, 2 * s->c) && decays(e, 2 * s->c, g, tm)) return y;
    }
    return 0;
}

static u32 draw_sum(const struct card *c, i64 sum) {
    struct sum s = sum_of(c);
    i64 half = (i64)1 << (s.b - 1), w = nearest(sum + (s.norm == 1 ? laplace_noise(s.t, 1, 1) : gaussian_noise(&s)), s.q);
    return half + (w < -half ? -half : least(w, half - 1));
}

static i32 rounded(i32 b) {                                                 /* b / 2**15, up or down at random; b is not negative */
    return (b >> 15) + bernoulli(b & 32767, 15);
}

static u32 draw_table(const struct card *c, i32 v) {
    i32 b = (v + ONE) * (1 << c->at[5]), f = b & 32767, n = c->symbols - 1;
    const u8 *row = c->at + 7 + c->symbols + 4 * (b >> 15) * n;
    u64 thresholds[15];
    for (int j = 0; j < n; j++)                                             /* between two knots; 45 bits of 48 */
        thresholds[j] = 8 * ((u64)(32768 - f) * get32(row + 4 * j) + (f ? (u64)f * get32(row + 4 * (n + j)) : 0));
    return thresholds_passed(thresholds, n);
}

/* The symbol for v: a value in Q1.14, or a category where `categorical` (window cards of W = 1). */
static u32 draw(const struct card *c, i32 v, int categorical) {
    const u8 *at = c->at;
    if (c->shape == TABLE) return draw_table(c, v);
    if (c->shape == WINDOW) {
        u32 w = get16(at + 7), s = c->symbols - w, i = categorical ? v : rounded((v + ONE) * (i32)s);
        if (bernoulli(get32(at + 9), 30)) return i + uniform(w);
        u32 e = uniform(s);
        return e < i ? e : e + w;
    }
    if (c->shape == LAPLACE) {                                              /* v is on the grid already */
        i64 lo = get_i32(at + 14), hi = get_i32(at + 18), out = v + laplace_noise(get32(at + 6), get32(at + 10), 0);
        return (out < lo ? lo : out > hi ? hi : out) - lo;
    }
    if (c->shape == SUM) return draw_sum(c, v);
    if (c->shape == MIXTURE) {
        struct card a = inner(c, 0), b = inner(c, 1);
        return bernoulli(get32(at + 5), 30) ? draw(&a, v, 0) : a.symbols + draw(&b, v, 0);
    }
    int m = at[5], i = 0;
    while (i < m - 1 && v < get_i16(at + 6 + 2 * i)) i++;
    struct card level = inner(c, i);
    u32 t = draw(&level, i, 1);
    struct card value = inner(c, m + t);
    return 2 * t + draw(&value, v, 0);
}

/* Symbols of k values. On a laplace card all are rounded to the grid first, then each gets its noise. */
static void draw_all(const struct card *c, i32 *values, int k, int categorical, u32 *symbols) {
    int q = c->shape == LAPLACE ? c->at[5] : 0;
    if (c->shape == LAPLACE)
        for (int i = 0; i < k; i++) values[i] = rounded((values[i] + ONE) * (2 << q)) - (1 << q);
    for (int i = 0; i < k; i++) symbols[i] = draw(c, values[i], categorical);
}

static int odd(int i) { return i ? (i & 1) ^ odd(i >> 1) : 0; }             /* whether it has an odd number of ones */

static i64 magnitude(i64 a) { return a < 0 ? -a : a; }

/* The symbol for the d values of a question. */
static u32 draw_projection(const struct card *c, const i32 *x, int d, const u8 question[32]) {
    struct projection p = projection_of(c);
    int size = 1 << p.n;
    u8 s[64];
    i64 v[128] = {0}, w[128], squares = 0, length = 0;
    hash(s, question, 32, "rotation", 8);
    if (size == 128) hash(s + 32, s, 32, "", 0);
    for (int j = 0; j < d; j++) {
        i64 y = (magnitude(x[j]) + 4) >> 3;
        squares += y * y;
        v[j] = x[j];
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int j = 0, i = turn * size; j < size; j++, i++) if (s[i / 8] >> i % 8 & 1) v[j] = -v[j];
        for (int j = 0; j < size; j++) {
            w[j] = 0;
            for (int i = 0; i < size; i++) w[j] += odd(i & j) ? -v[i] : v[i];
        }
        memcpy(v, w, sizeof v);
    }
    while ((length + 1) * (length + 1) <= squares) length++;
    int t = uniform(2 * p.radius) >= p.radius + least(length, p.radius);
    i64 u = uniform(p.total), rank = u / p.a;
    if (u >= p.k * p.a) {
        i64 q = (u - p.k * p.a) / p.b;
        rank = q < p.k ? q : p.k + (q - p.k) / 2;
        t ^= q < p.k ? 1 : (q - p.k) % 2;
    }
    for (int j = 0; j < size; j++) {
        int above = 0;
        for (int i = 0; i < size; i++)
            above += magnitude(v[i]) > magnitude(v[j]) || (magnitude(v[i]) == magnitude(v[j]) && i < j);
        if (above == rank) return j + size * ((v[j] < 0) ^ t);
    }
    return 0;                                                               /* no random bytes: the report is lost */
}
