// lwIP on a network card of QEMU, whose user network is at the other end, and the module `_nic` for modules/network.py.
#include <string.h>
#include "py/mphal.h"
#include "py/runtime.h"
#include "machine.h"
#include "board.h"
#include "nic.h"

#if MICROPY_PY_LWIP

#include "lwip/dns.h"
#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/netif.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"
#include "nic_card.h"

static struct netif netif;
static uint8_t frame[NIC_FRAME];

int mp_mod_network_prefer_dns_use_ip_version = 4; // of extmod/modnetwork.c, for extmod/modlwip.c

u32_t sys_now(void) {
    return qemu_ticks() / (1000000 / MACHINE_TICK_NS);
}

static err_t send(struct netif *to, struct pbuf *packet) {
    static uint8_t out[NIC_FRAME];
    size_t n = pbuf_copy_partial(packet, out, sizeof out, 0);
    return nic_card_send(out, n) ? ERR_OK : ERR_MEM;
}

static err_t prepare(struct netif *of) {
    of->linkoutput = send;
    of->output = etharp_output;
    of->mtu = 1500;
    of->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
    of->name[0] = 'w';
    of->name[1] = 'l';
    return ERR_OK;
}

// QEMU's user network gives these addresses (its manual, "Using the user mode network stack").
void nic_init(void) {
    lwip_init();
    static const uint8_t address[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56}; // QEMU's default
    nic_card_init();
    ip4_addr_t own, mask, gateway;
    IP4_ADDR(&own, 10, 0, 2, 15);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    IP4_ADDR(&gateway, 10, 0, 2, 2);
    memcpy(netif.hwaddr, address, sizeof address);
    netif.hwaddr_len = sizeof address;
    netif_add(&netif, &own, &mask, &gateway, NULL, prepare, ethernet_input);
    netif_set_default(&netif);
    ip_addr_t names;
    IP_ADDR4(&names, 10, 0, 2, 3);
    dns_setserver(0, &names);
}

void nic_poll(void) {
    size_t n;
    while ((n = nic_card_receive(frame)) != 0) {
        struct pbuf *packet = netif_is_up(&netif) ? pbuf_alloc(PBUF_RAW, n, PBUF_POOL) : NULL;
        if (packet != NULL) {
            pbuf_take(packet, frame, n);
            if (netif.input(packet, &netif) != ERR_OK) {
                pbuf_free(packet);
            }
        }
    }
    netif_poll_all(); // loopback
    sys_check_timeouts();
}

void nic_soft_reset(void) {
    radio_is_on = false;
    netif_set_link_down(&netif);
    netif_set_down(&netif);
}

static mp_obj_t nic_radio(size_t n_args, const mp_obj_t *args) {
    if (n_args) {
        radio_is_on = mp_obj_is_true(args[0]);
    }
    return mp_obj_new_bool(radio_is_on);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(nic_radio_obj, 0, 1, nic_radio);

// up(on): join the network or leave it.
static mp_obj_t nic_up(mp_obj_t on) {
    if (mp_obj_is_true(on)) {
        netif_set_up(&netif);
        netif_set_link_up(&netif);
    } else {
        netif_set_link_down(&netif);
        netif_set_down(&netif);
    }
    return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(nic_up_obj, nic_up);

static const mp_rom_map_elem_t globals_table[] = {
    { MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR__nic) },
    { MP_ROM_QSTR(MP_QSTR_radio), MP_ROM_PTR(&nic_radio_obj) },
    { MP_ROM_QSTR(MP_QSTR_up), MP_ROM_PTR(&nic_up_obj) },
};
static MP_DEFINE_CONST_DICT(globals, globals_table);
const mp_obj_module_t nic_module = { .base = { &mp_type_module }, .globals = (mp_obj_dict_t *)&globals };
MP_REGISTER_MODULE(MP_QSTR__nic, nic_module);

#else

void nic_init(void) {
}
void nic_poll(void) {
}
void nic_soft_reset(void) {
}

#endif
