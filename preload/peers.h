/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h - who the other ranks of this host are (peers.c). */
#ifndef WG_PEERS_H
#define WG_PEERS_H

#include <stdint.h>

void wg_peers_tick(uint32_t ncomms); /* helper thread, about once a second */
void wg_peers_fork_child(void);

#endif
