// A boot ROM for the emulated Pico: what the Pico SDK calls of the RP2040's own, and no more.
//
// Written from the RP2040 datasheet (section 2.8, Bootrom) without Raspberry Pi's source. Floats are those of
// libgcc. Flash is what rp2040js makes it, memory that can be stored to; so that the runner can keep it in a
// file, it is told of each change by a breakpoint: BKPT_FLASH with the offset in r0 and the length in r1.

#include <stddef.h>
#include <stdint.h>

#define ROM __attribute__((used, noinline))

#define XIP_BASE 0x10000000u
#define BKPT_FLASH "1"
#define BKPT_USB_BOOT "2"
#define BKPT_MISSING "3"

// ---- Start ----

// The second stage (the first 256 bytes of flash) only sets up the flash chip; it is not needed here.
__attribute__((naked)) void rom_reset(void) {
    __asm volatile(
        "ldr  r0, =0x10000100\n"  // the firmware's vector table
        "ldr  r1, =0xe000ed08\n"  // VTOR
        "str  r0, [r1]\n"
        "ldmia r0!, {r1, r2}\n"
        "msr  msp, r1\n"
        "bx   r2\n"
        ".ltorg\n");
}

void rom_hang(void) {
    for (;;) {
        __asm volatile("wfi");
    }
}

// Tables are pairs of 16-bit words, code and address, up to a zero code.
ROM uint32_t rom_lookup(const uint16_t *table, uint32_t code) {
    for (; table[0] != 0; table += 2) {
        if (table[0] == code) {
            return table[1];
        }
    }
    return 0;
}

// ---- Memory ----

ROM uint8_t *rom_memset(uint8_t *start, uint32_t value, uint32_t n) {
    uint8_t *to = start;
    uint8_t byte = (uint8_t)value;
    for (; n > 0 && ((uintptr_t)to & 3) != 0; n--) {
        *to++ = byte;
    }
    uint32_t word = byte * 0x01010101u;
    for (; n >= 4; n -= 4, to += 4) {
        *(volatile uint32_t *)to = word;
    }
    for (; n > 0; n--) {
        *(volatile uint8_t *)to++ = byte;
    }
    return start;
}

ROM uint8_t *rom_memcpy(uint8_t *start, const uint8_t *from, uint32_t n) {
    uint8_t *to = start;
    if ((((uintptr_t)to ^ (uintptr_t)from) & 3) == 0) {
        for (; n > 0 && ((uintptr_t)to & 3) != 0; n--) {
            *to++ = *from++;
        }
        for (; n >= 4; n -= 4, to += 4, from += 4) {
            *(volatile uint32_t *)to = *(const uint32_t *)from;
        }
    }
    for (; n > 0; n--) {
        *(volatile uint8_t *)to++ = *from++;
    }
    return start;
}

// ---- Bits ----

ROM uint32_t rom_popcount(uint32_t x) {
    uint32_t count = 0;
    for (; x != 0; x &= x - 1) {
        count++;
    }
    return count;
}

ROM uint32_t rom_clz(uint32_t x) {
    return x == 0 ? 32 : (uint32_t)__builtin_clz(x);
}

ROM uint32_t rom_ctz(uint32_t x) {
    return x == 0 ? 32 : 31 - (uint32_t)__builtin_clz(x & -x);
}

ROM uint32_t rom_reverse(uint32_t x) {
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++, x >>= 1) {
        reversed = reversed << 1 | (x & 1);
    }
    return reversed;
}

// ---- Flash ----

ROM void rom_flash_nothing(void) {
}

static inline void flash_changed(uint32_t offset, uint32_t n) {
    register uint32_t r0 __asm("r0") = offset;
    register uint32_t r1 __asm("r1") = n;
    __asm volatile("bkpt #" BKPT_FLASH : : "r"(r0), "r"(r1) : "memory");
}

ROM void rom_flash_erase(uint32_t offset, uint32_t n, uint32_t block_size, uint32_t block_command) {
    (void)block_size;
    (void)block_command;
    volatile uint32_t *flash = (volatile uint32_t *)(XIP_BASE + offset);
    for (uint32_t i = 0; i < n / 4; i++) {
        flash[i] = 0xffffffffu;
    }
    flash_changed(offset, n);
}

// Programming clears bits and sets none.
ROM void rom_flash_program(uint32_t offset, const uint8_t *data, uint32_t n) {
    volatile uint32_t *flash = (volatile uint32_t *)(XIP_BASE + offset);
    for (uint32_t i = 0; i < n / 4; i++, data += 4) {
        flash[i] &= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    }
    flash_changed(offset, n);
}

ROM void rom_usb_boot(void) {
    for (;;) {
        __asm volatile("bkpt #" BKPT_USB_BOOT);
    }
}

// ---- Floats ----

ROM void rom_missing(void) {
    for (;;) {
        __asm volatile("bkpt #" BKPT_MISSING);
    }
}

// The SDK asks for this with n = 0, for the magnitude of a negative float.
ROM uint64_t rom_float_to_ufix64(float x, int n) {
    for (; n > 0; n--) {
        x *= 2;
    }
    return (uint64_t)x;
}
