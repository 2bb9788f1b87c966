// 64-bit integers and bit counts, which GCC calls by these names. Its own library has them in files that need a libc.
#include <stdint.h>

static uint64_t divide(uint64_t n, uint64_t d, uint64_t *rest) {
    uint64_t q = 0, r = 0;
    for (int i = 63; i >= 0; i--) {
        r = r << 1 | (n >> i & 1);
        if (r >= d) {
            r -= d;
            q |= 1ULL << i;
        }
    }
    *rest = r;
    return q;
}

uint64_t __udivdi3(uint64_t n, uint64_t d) {
    uint64_t r;
    return divide(n, d, &r);
}

uint64_t __umoddi3(uint64_t n, uint64_t d) {
    uint64_t r;
    divide(n, d, &r);
    return r;
}

int64_t __divdi3(int64_t n, int64_t d) {
    uint64_t r, q = divide(n < 0 ? -(uint64_t)n : n, d < 0 ? -(uint64_t)d : d, &r);
    return (n < 0) != (d < 0) ? -q : q;
}

int64_t __moddi3(int64_t n, int64_t d) {
    uint64_t r;
    divide(n < 0 ? -(uint64_t)n : n, d < 0 ? -(uint64_t)d : d, &r);
    return n < 0 ? -r : r;
}

int64_t __muldi3(int64_t a, int64_t b) {
    uint32_t al = a, ah = (uint64_t)a >> 32, bl = b, bh = (uint64_t)b >> 32;
    uint32_t p0 = (al & 0xffff) * (bl & 0xffff), p1 = (al >> 16) * (bl & 0xffff);
    uint32_t p2 = (al & 0xffff) * (bl >> 16), p3 = (al >> 16) * (bl >> 16);
    uint32_t middle = (p0 >> 16) + (p1 & 0xffff) + (p2 & 0xffff);
    uint32_t high = p3 + (p1 >> 16) + (p2 >> 16) + (middle >> 16) + al * bh + ah * bl;
    return (uint64_t)high << 32 | (middle << 16 | (p0 & 0xffff));
}

int __popcountsi2(unsigned n) {
    int count = 0;
    for (; n; n &= n - 1) {
        count++;
    }
    return count;
}
