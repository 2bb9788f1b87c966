// A virtio network card (Virtual I/O Device 1.1: 2.6 split virtqueues, 4.2 over MMIO, 5.1 network device).
#include <string.h>
#include "../board.h"
#include "../nic_card.h"

#define FIRST 0x10001000 // of the eight transports of QEMU's machine `virt`
#define END 0x10009000
#define MAGIC 0x74726976
#define NETWORK_CARD 1
#define VERSION_1 1 // feature bit 32
#define QUEUE 16
#define RECEIVE 0
#define TRANSMIT 1
#define DEVICE_WRITES 2
#define HEADER 12

enum {
    MAGIC_VALUE = 0x000, VERSION = 0x004, DEVICE_ID = 0x008, DRIVER_FEATURES = 0x020, DRIVER_FEATURES_SELECT = 0x024,
    QUEUE_SELECT = 0x030, QUEUE_NUM = 0x038, QUEUE_READY = 0x044, QUEUE_NOTIFY = 0x050, INTERRUPT_STATUS = 0x060,
    INTERRUPT_ACKNOWLEDGE = 0x064, STATUS = 0x070, QUEUE_DESCRIPTORS = 0x080, QUEUE_AVAILABLE = 0x090, QUEUE_USED = 0x0a0,
};

static struct {
    struct { uint32_t address, high, length; uint16_t flags, next; } descriptors[QUEUE];
    struct { uint16_t flags, index, ring[QUEUE], event; } available;
    struct { uint16_t flags, index; struct { uint32_t id, length; } ring[QUEUE]; uint16_t event; } used __attribute__((aligned(4)));
} queues[2] __attribute__((aligned(4096)));
static uint8_t buffers[2][QUEUE][HEADER + NIC_FRAME + 4];
static uint16_t seen[2]; // of used.index
static uint32_t base;

#define REGISTER(at) (*(volatile uint32_t *)(base + (at)))
#define FENCE() __asm volatile ("fence" : : : "memory")

static void offer(int queue, uint16_t i) {
    uint16_t at = queues[queue].available.index;
    queues[queue].available.ring[at % QUEUE] = i;
    FENCE();
    queues[queue].available.index = at + 1;
    FENCE();
}

static void queue_init(int queue) {
    for (int i = 0; i < QUEUE; i++) {
        queues[queue].descriptors[i].address = (uint32_t)buffers[queue][i];
        queues[queue].descriptors[i].length = sizeof buffers[queue][i];
        queues[queue].descriptors[i].flags = queue == RECEIVE ? DEVICE_WRITES : 0;
    }
    REGISTER(QUEUE_SELECT) = queue;
    REGISTER(QUEUE_NUM) = QUEUE;
    REGISTER(QUEUE_DESCRIPTORS) = (uint32_t)queues[queue].descriptors;
    REGISTER(QUEUE_AVAILABLE) = (uint32_t)&queues[queue].available;
    REGISTER(QUEUE_USED) = (uint32_t)&queues[queue].used;
    REGISTER(QUEUE_READY) = 1;
}

static bool is_card(void) {
    return REGISTER(MAGIC_VALUE) == MAGIC && REGISTER(VERSION) == 2 && REGISTER(DEVICE_ID) == NETWORK_CARD;
}

void nic_card_init(void) {
    for (base = FIRST; base < END && !is_card(); base += 0x1000) {
    }
    board_require(base < END, "network card");
    REGISTER(STATUS) = 0;
    REGISTER(STATUS) = 1 | 2; // acknowledged, with a driver
    REGISTER(DRIVER_FEATURES_SELECT) = 1;
    REGISTER(DRIVER_FEATURES) = VERSION_1;
    REGISTER(STATUS) = 1 | 2 | 8; // features agreed
    queue_init(RECEIVE);
    queue_init(TRANSMIT);
    REGISTER(STATUS) = 1 | 2 | 8 | 4; // go
    for (int i = 0; i < QUEUE; i++) {
        offer(RECEIVE, i);
    }
    REGISTER(QUEUE_NOTIFY) = RECEIVE;
}

bool nic_card_send(const uint8_t *frame, size_t n) {
    uint16_t next = queues[TRANSMIT].available.index;
    FENCE();
    if ((uint16_t)(next - *(volatile uint16_t *)&queues[TRANSMIT].used.index) == QUEUE) {
        return false;
    }
    uint16_t i = next % QUEUE; // they are used in their order
    memset(buffers[TRANSMIT][i], 0, HEADER);
    memcpy(buffers[TRANSMIT][i] + HEADER, frame, n);
    queues[TRANSMIT].descriptors[i].length = HEADER + n;
    offer(TRANSMIT, i);
    REGISTER(QUEUE_NOTIFY) = TRANSMIT;
    return true;
}

size_t nic_card_receive(uint8_t *frame) {
    REGISTER(INTERRUPT_ACKNOWLEDGE) = REGISTER(INTERRUPT_STATUS);
    FENCE();
    if (seen[RECEIVE] == *(volatile uint16_t *)&queues[RECEIVE].used.index) {
        return 0;
    }
    FENCE();
    int at = seen[RECEIVE]++ % QUEUE;
    uint32_t i = queues[RECEIVE].used.ring[at].id;
    size_t n = queues[RECEIVE].used.ring[at].length - HEADER;
    if (n > NIC_FRAME) {
        n = NIC_FRAME;
    }
    memcpy(frame, buffers[RECEIVE][i] + HEADER, n);
    offer(RECEIVE, i);
    REGISTER(QUEUE_NOTIFY) = RECEIVE;
    return n;
}
