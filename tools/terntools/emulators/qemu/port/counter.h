// A counter of 32 bits, which turns. It has to be read once in each turn: poll_input() does that.
#include <stdint.h>

struct counter {
    uint32_t last, turns;
};

static inline uint64_t counter_ticks(struct counter *counter, uint32_t now) {
    counter->turns += now < counter->last;
    counter->last = now;
    return (uint64_t)counter->turns << 32 | now;
}
