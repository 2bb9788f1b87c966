// Files of the host by ARM's semihosting protocol, which RISC-V shares ("Semihosting for AArch32 and AArch64", 2.0).
// The machine that includes this has defined semihost(operation, arguments).
#include <string.h>

int qemu_open(const char *name, bool writable) {
    uintptr_t arguments[] = {(uintptr_t)name, writable ? 3 : 1, strlen(name)}; // "r+b" or "rb"
    return semihost(0x01, arguments);
}

int qemu_write(int file, const void *buffer, size_t n) {
    uintptr_t arguments[] = {file, (uintptr_t)buffer, n};
    return n - semihost(0x05, arguments); // it tells what is left
}

int qemu_read(int file, void *buffer, size_t n) {
    uintptr_t arguments[] = {file, (uintptr_t)buffer, n};
    return n - semihost(0x06, arguments);
}

void qemu_close(int file) {
    uintptr_t arguments[] = {file};
    semihost(0x02, arguments);
}

int qemu_seek(int file, uint32_t at) {
    uintptr_t arguments[] = {file, at};
    return semihost(0x0a, arguments);
}

void qemu_exit(int status) {
    uintptr_t arguments[] = {0x20026, status}; // ADP_Stopped_ApplicationExit
    semihost(0x20, arguments);
    for (;;) {
    }
}
