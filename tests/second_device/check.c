/* device --check: the device's own functions on lines of input, for test_vectors.py; included by device.c.
 *
 * A line is `name hex hex ...`, with `-` for no bytes and integers of 4 bytes, least significant first; the answer is one
 * line of decimal numbers and hexadecimal strings, or `refused`. */
static u8 arguments[8][65536];
static int sizes[8];

static void print_hex(const u8 *p, int n) {
    if (n == 0) putchar('-');
    while (n--) printf("%02x", *p++);
}

static void check_card(void) {                                              /* card -> decodes certified symbols hash */
    struct card c = {arguments[0], sizes[0], 0, 0, 0};
    u8 digest[32];
    int good = decode(&c);
    hash(digest, c.at, c.n, "", 0);
    printf("%d %d %d ", good, good && certified(&c, c.epsilon), good ? c.symbols : 0);
    print_hex(digest, 8);
}

static int feed(const u8 *bytes, int n) {                                    /* all random bytes that there are */
    random_file = tmpfile();
    random_failed = !random_file || fwrite(bytes, 1, n, random_file) != (size_t)n;
    if (!random_failed) rewind(random_file);
    return !random_failed;
}

static void check_draw(void) {                                              /* card, values i16 (sums i32), bytes -> bytes used, symbols */
    static i32 values[MOST_VALUES];
    static u32 symbols[MOST_VALUES];
    struct card c = {arguments[0], sizes[0], 0, 0, 0};
    int wide_values = sizes[0] && (arguments[0][0] & 15) == SUM, size = wide_values ? 4 : 2, k = sizes[1] / size;
    for (int i = 0; i < k; i++) values[i] = wide_values ? get_i32(arguments[1] + 4 * i) : get_i16(arguments[1] + 2 * i);
    if (!feed(arguments[2], sizes[2]) || !decode(&c)) { printf("refused"); return; }
    draw_all(&c, values, k, 0, symbols);
    if (random_failed) printf("refused"); else printf("%ld", ftell(random_file));
    fclose(random_file);
    if (random_failed) return;
    for (int i = 0; i < k; i++) printf(" %u", (unsigned)symbols[i]);
}

static void check_projection(void) {                                        /* card, bytes, question, values i16, how many -> bytes used, symbols */
    i32 values[MOST_VALUES];
    u32 symbols[99], n = get32(arguments[4]);
    struct card c = {arguments[0], sizes[0], 0, 0, 0};
    if (!feed(arguments[1], sizes[1]) || !decode(&c) || n > 99) { printf("refused"); return; }
    for (int i = 0; i < sizes[3] / 2; i++) values[i] = get_i16(arguments[3] + 2 * i);
    for (u32 i = 0; i < n; i++) symbols[i] = draw_projection(&c, values, sizes[3] / 2, arguments[2]);
    if (random_failed) printf("refused"); else printf("%ld", ftell(random_file));
    fclose(random_file);
    for (u32 i = 0; i < n && !random_failed; i++) printf(" %u", (unsigned)symbols[i]);
}

static void check_unit(void) {                                              /* norm, R, r, totals i32 -> clipped, vector */
    static i64 totals[MOST_VALUES], vector[MOST_VALUES];
    int n = sizes[3] / 4;
    for (int j = 0; j < n; j++) totals[j] = get_i32(arguments[3] + 4 * j);
    printf("%d", unit_vector(vector, totals, n, get32(arguments[0]), get32(arguments[1]), get32(arguments[2])));
    for (int j = 0; j < n; j++) printf(" %ld", (long)vector[j]);
}

static void check_pack(void) {                                              /* base, symbols u32 -> packed */
    static u32 symbols[MOST_VALUES];
    static u8 packed[MOST_PACKED];
    u32 base = get32(arguments[0]);
    int k = sizes[1] / 4, size = packed_size(base, k);
    for (int i = 0; i < k; i++) symbols[i] = get32(arguments[1] + 4 * i);
    if (size < 0) { printf("refused"); return; }
    pack(packed, size, base, symbols, k);
    print_hex(packed, size);
}

static void check_coordinates(void) {                                       /* Q, values, k -> the k chosen */
    static u16 entries[MOST_VALUES];
    int k = get32(arguments[2]);
    choose(entries, arguments[0], get32(arguments[1]), k);
    for (int i = 0; i < k; i++) printf("%s%d", i ? " " : "", entries[i]);
}

static void check_round(void) {                                             /* key, frame -> 0 and fields, or an error code */
    struct round r;
    const u8 *f = arguments[1];
    int n = sizes[1];
    if (n < 17 || n > LONGEST) { printf("%d", ERR_FRAME); return; }
    if (!tag_verifies(arguments[0], sizes[0], f, n)) { printf("%d", ERR_TAG); return; }
    if (!parse_round(&r, f, n)) { printf("%d", ERR_FRAME); return; }
    printf("0 %u %u %d %d %d %d %d %d %d %d %d %u %d ", (unsigned)r.device, (unsigned)r.number, r.model, r.range, r.exponent, r.classes,
           r.d, r.k, r.batch, r.epochs, r.rate, (unsigned)r.tau, r.values);
    print_hex(r.question, r.card.at - r.question);
    putchar(' ');
    print_hex(r.card.at, r.card.n);
}

static void print_ledger(const struct ledger *l) {
    printf("%u %u %u %d %d ", (unsigned)l->budget, (unsigned)l->spent, (unsigned)l->last, l->state, l->measure);
    print_hex(l->question, 32);
    putchar(' ');
    print_hex(l->report, l->n);
}

static void check_ledger(void) {                                            /* file -> its fields; it is the one that `pay` goes on from */
    ahead.active = 0;
    if (decode_ledger(&ahead.real, arguments[0], sizes[0])) print_ledger(&ahead.real); else printf("refused");
}

static void check_pay(void) {                                               /* round, question, price, report, at once -> answer, spent, file */
    struct ledger *l = &ahead.real, changed = *l;
    u8 file[60 + sizeof l->report];
    u32 number = get32(arguments[0]), price = get32(arguments[2]);
    int code = number > LAST_ROUND ? ERR_FRAME : compare_round(l, number, 0), n = 0;
    if (code == ERR_CHANGED_ROUND && l->state == ANSWERED && same(l->question, arguments[1], 32)) {
        printf("again %u - ", (unsigned)l->spent);
        print_hex(l->report, l->n);
        return;
    }
    if (code == ERR_AHEAD) code = OK;           /* these rounds have no bound */
    if (code == OK && (price == 0 || (sizes[3] && (sizes[3] < 18 || sizes[3] > 273)) || price > l->budget - l->spent)) code = ERR_BUDGET;
    if (code == OK) {
        memcpy(changed.report, arguments[3], sizes[3]);
        changed.n = sizes[3];
        n = pay(&changed, number, arguments[1], price, get32(arguments[4]), l->budget, file);
    }
    printf("%s %u ", code == OK ? "paid" : code == ERR_OLD_ROUND ? "old" : code == ERR_CHANGED_ROUND ? "changed" : "refused", (unsigned)l->spent);
    print_hex(file, n);
}

static void check_values(void) {                                            /* frame, records' d, rows -> the values */
    static i32 values[MOST_VALUES];
    struct round r;
    struct records s = {get32(arguments[1]), 0, arguments[2]};
    s.n = sizes[2] / (2 * (s.d + 1));
    if (!parse_round(&r, arguments[0], sizes[0]) || s.n == 0 || s.d != r.d) { printf("refused"); return; }
    decode(&r.card);
    compute(values, &r, &s, r.device);
    for (int i = 0; i < r.values; i++) printf("%s%ld", i ? " " : "", (long)values[i]);
}

static const char *raw_text;
static u32 raw_block, raw_at;

static int raw_of_text(u8 *out, int n) {                                    /* SHA-256("text 0") | SHA-256("text 1") | ... */
    static u8 block[32];
    char text[300];
    for (int i = 0; i < n; i++, raw_at++) {
        if (raw_at % 32 == 0) hash(block, (const u8 *)text, snprintf(text, sizeof text, "%s %u", raw_text, (unsigned)raw_block++), "", 0);
        out[i] = block[raw_at % 32];
    }
    return n;
}

static void check_health(void) {                                            /* raw bytes -> where they fail, or never */
    memset(&health, 0, sizeof health);
    for (int i = 0; i < sizes[0]; i++) if (!healthy(arguments[0][i])) { printf("%d", i); return; }
    printf("never");
}

static void check_generator(void) {                                         /* text, other bytes, portion, pairs of u32 -> all bytes drawn */
    raw_text = (char *)arguments[0];
    arguments[0][sizes[0]] = 0;
    raw_block = raw_at = 0;
    raw_source = raw_of_text;
    random_file = NULL;
    memset(&health, 0, sizeof health);
    memset(&seeding, 0, sizeof seeding);
    memcpy(seeding.also, arguments[1], seeding.n_also = sizes[1]);
    start_generator(get32(arguments[2]));
    if (random_failed) { printf("refused"); return; }
    for (int i = 0; i < sizes[3]; i += 8)
        for (u32 reports = get32(arguments[3] + i); reports--; end_of_draws())
            for (u32 n = get32(arguments[3] + i + 4); n--;) printf("%02x", (unsigned)random_byte());
}

static void check_line(const char *name) {
    static u8 out[LONGEST + 16];
    u8 digest[32];
    if (!strcmp(name, "card")) check_card();
    else if (!strcmp(name, "draw")) check_draw();
    else if (!strcmp(name, "projection")) check_projection();
    else if (!strcmp(name, "unit")) check_unit();
    else if (!strcmp(name, "pack")) check_pack();
    else if (!strcmp(name, "coordinates")) check_coordinates();
    else if (!strcmp(name, "round")) check_round();
    else if (!strcmp(name, "ledger")) check_ledger();
    else if (!strcmp(name, "pay")) check_pay();
    else if (!strcmp(name, "health")) check_health();
    else if (!strcmp(name, "generator")) check_generator();
    else if (!strcmp(name, "values")) check_values();
    else if (!strcmp(name, "encode")) print_hex(out, cobs_encode(out, arguments[0], sizes[0]));
    else if (!strcmp(name, "decode")) {
        int n = cobs_decode(out, arguments[0], sizes[0]);
        if (n < 0) printf("refused"); else print_hex(out, n);
    } else if (!strcmp(name, "choice")) {                                   /* round, batch, records there are -> the first, and how many */
        i64 n, from = choose_records(get32(arguments[0]), get32(arguments[1]), get32(arguments[2]), &n);
        printf("%ld %ld", (long)from, (long)n);
    } else if (!strcmp(name, "exp_lower")) {                                /* micro-epsilon -> the integer */
        struct wide e = exp_lower(get32(arguments[0]));
        for (int i = 3; i >= 0; i--) printf("%08x", (unsigned)e.limb[i]);
    } else if (!strcmp(name, "hash")) {                                     /* key, data -> H(key, data) */
        hash(digest, arguments[0], sizes[0], arguments[1], sizes[1]);
        print_hex(digest, 32);
    } else if (!strcmp(name, "question")) {                                 /* key, device, frame -> Q */
        struct client c = {get32(arguments[1]), 0, 0, 0, 0, 0, arguments[0], NULL};
        question(digest, &c, arguments[2], sizes[2]);
        print_hex(digest, 32);
    } else if (!strcmp(name, "unhide")) {                                   /* key, FLEET_KEY -> the fleet's key */
        struct client c = {0, 0, 0, 0, 0, 0, arguments[0], NULL};
        unhide(digest, &c, arguments[1]);
        print_hex(digest, 32);
    } else printf("unknown");
    putchar('\n');
}

static int check(void) {
    static char line[1 << 18];
    while (fgets(line, sizeof line, stdin)) {
        char *name = strtok(line, " \n"), *word;
        memset(sizes, 0, sizeof sizes);
        for (int i = 0; name && i < 8 && (word = strtok(NULL, " \n")); i++)
            for (unsigned byte; *word != '-' && sizes[i] < (int)sizeof arguments[i] && sscanf(word, "%2x", &byte) == 1; word += 2)
                arguments[i][sizes[i]++] = byte;
        if (name) check_line(name);
    }
    return 0;
}
