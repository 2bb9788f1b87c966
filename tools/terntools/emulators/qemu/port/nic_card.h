// A network card of QEMU: rv32/virtio_net.c, xtensa/opencores.c.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NIC_FRAME 1514 // bytes of the longest, without its checksum

void nic_card_init(void);
bool nic_card_send(const uint8_t *frame, size_t n);  // false where it is busy
size_t nic_card_receive(uint8_t *frame);  // bytes of the next frame that has come, 0 where none has
