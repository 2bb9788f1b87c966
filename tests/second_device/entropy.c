/* Random bytes (entropy.md): health tests, seeds, Hash_DRBG with SHA-256 (SP 800-90A, 10.1.1), and the pool; included by
 * cards.c. The raw bytes are the operating system's; with --random there is no generator, and FILE gives every byte. */
static FILE *random_file;
static int random_failed;                       /* for good: ERR_ENTROPY until the program is started anew */
static int (*raw_source)(u8 *out, int n);       /* how many bytes it gave */

static struct { int last, run, first, in_window, equal; } health;

static int healthy(u8 byte) {                                               /* each raw byte, in order */
    health.run = health.in_window && byte == health.last ? health.run + 1 : 1;
    health.last = byte;
    if (health.in_window % 512 == 0) { health.first = byte; health.equal = 0; health.in_window = 0; }
    health.in_window++;
    health.equal += byte == health.first;
    return health.run < 9 && health.equal < 71;
}

enum { STATE = 55, PIECE = 192, SLICE = 16, MOST_REQUEST = 65536 };
static struct { u8 v[STATE], c[STATE]; u32 requests; } drbg;
static struct { u8 bytes[PIECE]; int at, requested; u8 data[STATE]; } pool; /* requested: bytes of the request that is open; 0: none */
static struct { u8 raw[256], also[32]; int n, n_also, portion; u32 reports; } seeding;

static void derive(u8 out[STATE], const u8 *input, int n) {                 /* Hash_df, 440 bits */
    u8 block[64], head[5] = {1, 0, 0, 440 >> 8, 440 & 255};
    for (; head[0] <= 2; head[0]++) hash(block + 32 * (head[0] - 1), head, 5, input, n);
    memcpy(out, block, STATE);
}

static void add(u8 *v, const u8 *big, int n) {                              /* v += big, modulo 2**440 */
    for (int i = STATE - 1, carry = 0; i >= 0; i--) {
        carry += v[i] + (n > 0 ? big[--n] : 0);
        v[i] = carry & 255;
        carry >>= 8;
    }
}

static void seed_generator(const u8 seed[48], int again) {
    u8 material[1 + STATE + 48] = {1};
    if (again) { memcpy(material + 1, drbg.v, STATE); memcpy(material + 1 + STATE, seed, 48); }
    derive(drbg.v, again ? material : seed, again ? 1 + STATE + 48 : 48);
    material[0] = 0;
    memcpy(material + 1, drbg.v, STATE);
    derive(drbg.c, material, 1 + STATE);
    drbg.requests = 1;
    memset(&pool, 0, sizeof pool);
    pool.at = PIECE;
}

static void end_request(void) {
    u8 digest[32], number[4] = {drbg.requests >> 24, drbg.requests >> 16 & 255, drbg.requests >> 8 & 255, drbg.requests & 255};
    if (!pool.requested) return;
    hash(digest, (const u8 *)"\3", 1, drbg.v, STATE);
    add(drbg.v, digest, 32);
    add(drbg.v, drbg.c, STATE);
    add(drbg.v, number, 4);
    drbg.requests++;
    pool.requested = 0;
    memset(pool.data, 0, STATE);
}

static void fill_pool(void) {
    if (pool.requested + PIECE > MOST_REQUEST) end_request();
    if (!pool.requested) memcpy(pool.data, drbg.v, STATE);
    for (int i = 0; i < PIECE; i += 32) { hash(pool.bytes + i, pool.data, STATE, "", 0); add(pool.data, (const u8 *)"\1", 1); }
    pool.requested += PIECE;
    pool.at = 0;
}

static void take_raw(int n, int count) {                                    /* n bytes, `count` of them for a seed, or none */
    u8 *to = seeding.raw + seeding.n;
    if (random_failed || raw_source(to, n) != n) random_failed = 1;
    for (int i = 0; i < n && !random_failed; i++) random_failed = !healthy(to[i]);
    seeding.n += count;
    if (random_failed) { memset(&pool, 0, sizeof pool); pool.at = PIECE; }
    if (random_failed || seeding.n < 256) return;
    u8 seed[64];
    for (int half = 0; half < 2; half++) hash(seed + 32 * half, seeding.raw + 128 * half, 128, seeding.also, seeding.n_also);
    seed_generator(seed, drbg.requests != 0);
    memset(seeding.raw, 0, 256);
    seeding.n = 0;
}

static void start_generator(int portion) {
    static const u8 answer[8] = {0x48, 0xf1, 0xbd, 0x75, 0x5b, 0x6b, 0x06, 0x25};   /* of a seed of the bytes 0 .. 47 */
    u8 known[48];
    for (int i = 0; i < 48; i++) known[i] = i;
    seed_generator(known, 0);
    fill_pool();
    random_failed = !same(pool.bytes, answer, 8);
    drbg.requests = 0;
    seeding.portion = portion;
    for (int i = 0; i < 10; i++) take_raw(128, i < 8 ? 0 : 128);
}

static u32 random_byte(void) {
    int c = EOF;
    if (random_failed) return 0;
    if (random_file) {
        random_failed = (c = getc(random_file)) == EOF;
        return random_failed ? 0 : c;
    }
    if (pool.at == PIECE) fill_pool();
    c = pool.bytes[pool.at];
    pool.bytes[pool.at++] = 0;
    return c;
}

static void end_of_draws(void) {                                            /* after it nothing is held from which the draws follow */
    if (random_file) return;
    for (; pool.at % SLICE; pool.at++) pool.bytes[pool.at] = 0;
    end_request();
    if (++seeding.reports % (4 * (u32)seeding.portion) == 0) take_raw(seeding.portion, seeding.portion);
}
