// The OpenCores 10/100 Ethernet MAC of QEMU's FPGA boards (OpenCores "Ethernet IP Core Specification", 0.4).
#include <string.h>
#include "../nic_card.h"

#define REGISTER(at) (*(volatile uint32_t *)(0xfd030000 + (at)))
enum { MODE = 0x00, INTERRUPT_SOURCE = 0x04, INTERRUPT_MASK = 0x08, TRANSMIT_BUFFERS = 0x20 };
enum { RECEIVES = 1, SENDS = 2, PADS = 1 << 15, ADDS_CHECKSUM = 1 << 13, PROMISCUOUS = 1 << 5 };
enum { RECEIVED = 1 << 2, BUSY = 1 << 4 };

// A descriptor: length << 16 | flags, and the address of the buffer. 128 of them, first those for sending.
#define DESCRIPTOR(i) ((volatile uint32_t *)(0xfd030400 + 8 * (i)))
enum { READY = 1 << 15, INTERRUPTS = 1 << 14, WRAPS = 1 << 13, EMPTY = 1 << 15 };

#define SENDING 1
#define RECEIVING 16
static uint8_t out[1536] __attribute__((aligned(4))), in[RECEIVING][1536] __attribute__((aligned(4)));
static int next;

void nic_card_init(void) {
    REGISTER(MODE) = 0;
    REGISTER(TRANSMIT_BUFFERS) = SENDING;
    DESCRIPTOR(0)[0] = WRAPS;
    DESCRIPTOR(0)[1] = (uint32_t)out;
    for (int i = 0; i < RECEIVING; i++) {
        DESCRIPTOR(SENDING + i)[1] = (uint32_t)in[i];
        DESCRIPTOR(SENDING + i)[0] = EMPTY | INTERRUPTS | (i == RECEIVING - 1 ? WRAPS : 0);
    }
    REGISTER(INTERRUPT_SOURCE) = 0xffffffff;
    REGISTER(INTERRUPT_MASK) = RECEIVED | BUSY;
    REGISTER(MODE) = RECEIVES | SENDS | PADS | ADDS_CHECKSUM | PROMISCUOUS;
}

bool nic_card_send(const uint8_t *frame, size_t n) {
    if (DESCRIPTOR(0)[0] & READY) {
        return false;
    }
    memcpy(out, frame, n);
    DESCRIPTOR(0)[0] = n << 16 | READY | WRAPS;
    return true;
}

size_t nic_card_receive(uint8_t *frame) {
    REGISTER(INTERRUPT_SOURCE) = RECEIVED | BUSY;
    volatile uint32_t *descriptor = DESCRIPTOR(SENDING + next);
    if (descriptor[0] & EMPTY) {
        return 0;
    }
    size_t n = (descriptor[0] >> 16) - 4; // without its checksum
    if (n > NIC_FRAME) {
        n = NIC_FRAME;
    }
    memcpy(frame, in[next], n);
    descriptor[0] = EMPTY | INTERRUPTS | (next == RECEIVING - 1 ? WRAPS : 0);
    next = (next + 1) % RECEIVING;
    return n;
}
