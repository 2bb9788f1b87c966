// What each machine of QEMU gives the port: rv32/machine.c, xtensa/machine.c, m33/machine.c.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The clock runs in ticks of MACHINE_TICK_NS (mpconfigport.h).
uint64_t qemu_ticks(void);
// The finest count that the machine has: of instructions with `-icount shift=0`, else of no fixed unit.
uint32_t qemu_fine_ticks(void);

void qemu_init(void);
// Whether a byte or a packet has come, so that all have to be taken; cheap enough to ask after every few bytecodes.
bool qemu_has_input(void);
// Sleep for so long, or until a byte or a packet comes.
void qemu_wait_us(uint32_t us);

int qemu_getc(void);  // a byte, or -1
void qemu_putc(uint8_t byte);

void qemu_reset(void) __attribute__((noreturn));
void qemu_exit(int status) __attribute__((noreturn));  // ends QEMU with that status
// For the handlers of exceptions: say what happened, and end.
void qemu_crash(uint32_t cause, uint32_t at, uint32_t address, uint32_t caller) __attribute__((noreturn));

// A file of the host, by QEMU's semihosting; -1 where that fails, else a descriptor or how much was moved.
int qemu_open(const char *name, bool writable);
int qemu_read(int file, void *buffer, size_t n);
int qemu_write(int file, const void *buffer, size_t n);
int qemu_seek(int file, uint32_t at);
void qemu_close(int file);
