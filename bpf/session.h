/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one client's conversation: requests in, records out, all within a deadline. Knows
 * the protocol and no BPF, so that it is fuzzed as it is.
 */
#ifndef WG_SESSION_H
#define WG_SESSION_H

#include <stddef.h>

#include "protocol.h"

#define WG_SESSION_REQUESTS 1024 /* in one connection, which may last */
#define WG_SESSION_S 20		 /* so long in all, and */
#define WG_SESSION_IDLE_S 5	 /* so long without a word, or without reading the answer */

struct wg_out; /* an answer on its way; writes are collected */
/* Send one record. 0, or -errno from then on: the client is gone or too slow. */
int wg_out_put(struct wg_out *o, const void *record);

/* Answers one well-formed request: puts its records and fills *done, whose head is ready. */
typedef void (*wg_answer_fn)(void *arg, const struct wg_wire_request *q, struct wg_out *o,
			     struct wg_wire_done *done);

/*
 * Talk to the client on fd (a stream socket, blocking) until he hangs up, breaks the protocol or
 * runs out of time. Does not close fd. 0 or -errno (-EPROTO, -ETIMEDOUT, -E2BIG).
 */
int wg_session_run(int fd, wg_answer_fn answer, void *arg);

#endif
