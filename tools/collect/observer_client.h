/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observer_client.h - the asking side of waitgraphd's socket. Believes nothing that it has not
 * checked: the socket's path can come from the environment.
 */
#ifndef WG_OBSERVER_CLIENT_H
#define WG_OBSERVER_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/protocol.h"

struct wg_observer_client;
/* Connect. 0; -ENOENT, -ECONNREFUSED: it does not run; -EACCES: that is not root's nor ours; -errno. */
int wg_observer_client_open(struct wg_observer_client **out);
/* Speak over a connected socket, which becomes the client's. For tests. NULL: no memory. */
struct wg_observer_client *wg_observer_client_on(int fd);
void wg_observer_client_close(struct wg_observer_client *c);
/*
 * One request; each() gets every record of the answer but the last, whole and at most
 * WG_WIRE_LARGEST bytes (8-aligned), of types that it may not know. 0 or -errno, -ETIMEDOUT, -EPROTO; *done is
 * zero then. An error that the daemon reports stands in done->error, with reason and remedy.
 */
int wg_observer_client_ask(struct wg_observer_client *c, enum wg_wire_type what, int32_t pid,
			   void (*each)(const void *record, int size, void *arg), void *arg,
			   struct wg_wire_done *done);

#endif
