/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_socket.c - both ends of the observer's socket: what a client may send to the daemon's
 * session, in whatever pieces, and what a false daemon may answer to the client. The first byte
 * says which end and how the rest is cut.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bpf/session.h"
#include "collect/observer_client.h"
#ifndef WG_LIBFUZZER /* linked with the readers' libraries, which may have been built without the observer */
#include "bpf/session.c"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n);

#define LARGEST 65536

/* The daemon's facts, replaced: every field of the request is used, some answers are long. */
static void answer(void *arg, const struct wg_wire_request *q, struct wg_out *o,
		   struct wg_wire_done *done)
{
	struct wg_wire_task t;
	unsigned int records = (unsigned int)q->pid % 40;

	++*(unsigned int *)arg;
	if (q->head.type != WG_WIRE_ASK_TASKS) {
		done->error = ENOSYS;
		return;
	}
	for (unsigned int i = 0; i < records; i++) {
		wg_wire_begin(&t, WG_WIRE_TASK, sizeof(t));
		t.pid = q->pid;
		t.tid = (int32_t)i;
		if (wg_out_put(o, &t))
			return;
	}
}

struct feed {
	int fd;
	const uint8_t *in;
	size_t n, piece;
	uint64_t got;
};

/* Sends the input in pieces, reads whatever comes, and hangs up. */
static void *feed(void *arg)
{
	struct feed *f = arg;
	static __thread char buf[65536];
	ssize_t k;

	for (size_t at = 0; at < f->n;) {
		size_t piece = f->piece < f->n - at ? f->piece : f->n - at;
		struct pollfd p = { .fd = f->fd, .events = POLLIN | POLLOUT };

		if (poll(&p, 1, 1000) <= 0)
			break;
		if (p.revents & POLLIN) {
			k = recv(f->fd, buf, sizeof(buf), MSG_DONTWAIT);
			if (k == 0)
				break;
			f->got += k > 0 ? (uint64_t)k : 0;
		}
		if (p.revents & POLLOUT) {
			k = send(f->fd, f->in + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
			if (k > 0)
				at += (size_t)k;
			else if (k < 0 && errno != EAGAIN)
				break;
		}
		if (p.revents & (POLLHUP | POLLERR))
			break;
	}
	shutdown(f->fd, SHUT_WR);
	while ((k = recv(f->fd, buf, sizeof(buf), 0)) > 0)
		f->got += (uint64_t)k;
	return NULL;
}

static void each(const void *record, int size, void *arg)
{
	uint64_t *sum = arg;
	uint8_t last;

	/* All of it can be read. */
	memcpy(&last, (const char *)record + size - 1, 1);
	*sum += last + (uint64_t)size;
	if (size < (int)sizeof(struct wg_wire_head) || size > WG_WIRE_LARGEST)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n)
{
	unsigned int answers = 0;
	struct feed f;
	pthread_t t;
	int fd[2];

	if (n < 2 || n > LARGEST || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		return 0;
	f.fd = fd[1];
	f.in = in + 1;
	f.n = n - 1;
	f.piece = (size_t)1 << (in[0] >> 1 & 15);
	if (f.n / f.piece > 2000)
		f.piece = f.n / 2000 + 1;
	f.got = 0;
	if (pthread_create(&t, NULL, feed, &f)) {
		close(fd[0]);
		close(fd[1]);
		return 0;
	}
	if (in[0] & 1) {
		struct wg_observer_client *c = wg_observer_client_on(fd[0]);
		struct wg_wire_done done;
		uint64_t sum = 0;

		for (int i = 0; c && i < 4; i++) {
			int rc = wg_observer_client_ask(c, WG_WIRE_ASK_TASKS, 1, each, &sum, &done);

			if (rc)
				break;
			if (strnlen(done.why, sizeof(done.why)) == sizeof(done.why))
				abort(); /* not ended: would be printed beyond it */
		}
		wg_observer_client_close(c);
	} else {
		int rc = wg_session_run(fd[0], answer, &answers);

		/* Never a request from less than its bytes; never out of time with a client that hangs up. */
		if ((uint64_t)answers * sizeof(struct wg_wire_request) > f.n || rc == -ETIMEDOUT)
			abort();
		close(fd[0]);
	}
	pthread_join(t, NULL);
	close(fd[1]);
	return 0;
}
