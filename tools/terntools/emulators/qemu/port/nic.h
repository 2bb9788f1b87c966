// The network, on a card of QEMU (nic_card.h). A machine without one has functions that do nothing.
void nic_init(void);
void nic_poll(void);  // take what has come, and do what is due
void nic_soft_reset(void);
