// What makes a machine a board: its run's folder on the host, its clock of the day, its entropy, its network.
//
// The folder is QEMU's working directory. In it may be `flash` (what the flash holds; every write goes there), `epoch`
// (seconds since 1970 at the start, as text), `id` (8 bytes) and `seed` (8 bytes: the entropy is made of them, repeatable).
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void board_init(void);
extern uint8_t board_id[8];

void flash_init(void);
void nic_init(void);
void nic_poll(void);  // take what has come, and do what is due
void nic_soft_reset(void);

// Bytes of the hardware's generator. Without a radio (ESP-IDF, "Random Number Generation") they are pseudo-random only, and
// the same after every start.
void random_bytes(void *to, size_t n);
extern bool radio_is_on;
