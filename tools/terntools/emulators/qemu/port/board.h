// What makes a machine a board: its run's folder on the host, its clock of the day, its entropy.
//
// The folder is QEMU's working directory. In it are `flash` (what the flash holds, empty if new; every write goes there),
// `epoch` (seconds since 1970 at the start, as text) and `id` (8 bytes), and there may be `seed` (8 bytes: the entropy is
// made of them, repeatable).
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void board_init(void);
void board_reset(void) __attribute__((noreturn));
bool board_was_reset(void);
void board_require(bool is_there, const char *what);  // else say that the host does not give it, and end
extern uint8_t board_id[8];

// Bytes of the hardware's generator. Without a radio (ESP-IDF, "Random Number Generation") they are pseudo-random only, and
// the same after every start.
void random_bytes(void *to, size_t n);
extern bool radio_is_on;
