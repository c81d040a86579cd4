/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - one client's conversation. */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OUT 16384
_Static_assert(OUT >= WG_WIRE_LARGEST, "a record fits");

struct wg_out {
	int fd, err;
	double end;
	size_t n;
	char buf[OUT];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Wait for the socket, but neither longer than a quiet client is borne nor beyond the end. */
static int ready(int fd, short what, double end)
{
	double left = end - now();
	struct pollfd p = { .fd = fd, .events = what };
	int rc;

	if (left > WG_SESSION_IDLE_S)
		left = WG_SESSION_IDLE_S;
	if (left <= 0)
		return -ETIMEDOUT;
	rc = poll(&p, 1, (int)(left * 1000) + 1);
	if (rc < 0)
		return errno == EINTR ? 0 : -errno;
	return rc ? 0 : -ETIMEDOUT;
}

static int flush(struct wg_out *o)
{
	size_t at = 0;

	while (!o->err && at < o->n) {
		ssize_t n = send(o->fd, o->buf + at, o->n - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			at += (size_t)n;
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			o->err = -errno;
		else
			o->err = ready(o->fd, POLLOUT, o->end);
	}
	o->n = 0;
	return o->err;
}

int wg_out_put(struct wg_out *o, const void *record)
{
	const struct wg_wire_head *h = record;

	if (o->n + h->size > sizeof(o->buf))
		flush(o);
	if (o->err)
		return o->err;
	memcpy(o->buf + o->n, record, h->size);
	o->n += h->size;
	return 0;
}

int wg_session_run(int fd, wg_answer_fn answer, void *arg)
{
	struct wg_out o = { .fd = fd, .end = now() + WG_SESSION_S };
	char in[WG_WIRE_LARGEST];
	size_t have = 0;
	int requests = 0;

	for (;;) {
		struct wg_wire_request q;
		struct wg_wire_done done;
		int size = wg_wire_whole(in, have);
		ssize_t n;

		if (size < 0)
			return size;
		if (size) {
			if (++requests > WG_SESSION_REQUESTS)
				return -E2BIG;
			if (!wg_wire_take(in, size, &q, sizeof(q), sizeof(q)))
				return -EPROTO;
			have -= (size_t)size;
			memmove(in, in + size, have);
			wg_wire_begin(&done, WG_WIRE_DONE, sizeof(done));
			answer(arg, &q, &o, &done);
			wg_out_put(&o, &done);
			if (flush(&o))
				return o.err;
			continue;
		}
		/* No room is left for descriptors that may come along: the kernel drops them. */
		n = recv(fd, in + have, sizeof(in) - have, MSG_DONTWAIT);
		if (n == 0)
			return 0;
		if (n > 0) {
			have += (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			return -errno;
		} else {
			int rc = ready(fd, POLLIN, o.end);

			if (rc)
				return rc;
		}
	}
}
