/* SPDX-License-Identifier: Apache-2.0 */
/* observer_client.c - asks waitgraphd. */
#include "observer_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_S 3.0	/* one answer, whatever its length */
#define MOST_RECORDS 200000
#define BUF (4 * WG_WIRE_LARGEST)

struct wg_observer_client {
	int fd;
	size_t have, at;
	_Alignas(8) char buf[BUF];
	_Alignas(8) char record[WG_WIRE_LARGEST];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct wg_observer_client *wg_observer_client_on(int fd)
{
	struct wg_observer_client *c = malloc(sizeof(*c));

	if (c) {
		c->fd = fd;
		c->have = c->at = 0;
	}
	return c;
}

int wg_observer_client_open(struct wg_observer_client **out)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = getenv("WAITGRAPH_SOCKET");
	socklen_t n = sizeof(struct ucred);
	struct ucred peer;
	int fd, rc;

	*out = NULL;
	if (!path || !*path)
		path = WG_SOCKET_PATH;
	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	strcpy(a.sun_path, path);
	/* Not blocking: a daemon whose queue is full does not hold up the reader. */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		rc = -errno;
		goto out;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n)) {
		rc = -errno;
		goto out;
	}
	/* Whoever else listens there could tell anything. */
	if (peer.uid != 0 && peer.uid != geteuid()) {
		rc = -EACCES;
		goto out;
	}
	*out = wg_observer_client_on(fd);
	if (*out)
		return 0;
	rc = -ENOMEM;
out:
	close(fd);
	return rc;
}

void wg_observer_client_close(struct wg_observer_client *c)
{
	if (!c)
		return;
	close(c->fd);
	free(c);
}

static int wait_for(int fd, short what, double end)
{
	struct pollfd p = { .fd = fd, .events = what };
	double left = end - now();
	int rc;

	if (left <= 0)
		return -ETIMEDOUT;
	rc = poll(&p, 1, (int)(left * 1000) + 1);
	if (rc < 0)
		return errno == EINTR ? 0 : -errno;
	return rc ? 0 : -ETIMEDOUT;
}

static int send_all(int fd, const void *buf, size_t n, double end)
{
	size_t at = 0;

	while (at < n) {
		ssize_t k = send(fd, (const char *)buf + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		int rc;

		if (k > 0) {
			at += (size_t)k;
			continue;
		}
		if (k < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		rc = wait_for(fd, POLLOUT, end);
		if (rc)
			return rc;
	}
	return 0;
}

/* The next record into c->record; its size or -errno. */
static int next(struct wg_observer_client *c, double end)
{
	for (;;) {
		int size = wg_wire_whole(c->buf + c->at, c->have - c->at), rc;
		ssize_t k;

		if (size) {
			if (size > 0)
				memcpy(c->record, c->buf + c->at, (size_t)size);
			c->at += size > 0 ? (size_t)size : 0;
			return size;
		}
		memmove(c->buf, c->buf + c->at, c->have - c->at);
		c->have -= c->at;
		c->at = 0;
		k = recv(c->fd, c->buf + c->have, sizeof(c->buf) - c->have, MSG_DONTWAIT);
		if (k > 0) {
			c->have += (size_t)k;
			continue;
		}
		if (k == 0)
			return -ECONNRESET;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		rc = wait_for(c->fd, POLLIN, end);
		if (rc)
			return rc;
	}
}

int wg_observer_client_ask(struct wg_observer_client *c, enum wg_wire_type what, int32_t pid,
			   void (*each)(const void *record, int size, void *arg), void *arg,
			   struct wg_wire_done *done)
{
	double end = now() + ANSWER_S;
	struct wg_wire_request q;
	int rc;

	memset(done, 0, sizeof(*done));
	wg_wire_begin(&q, what, sizeof(q));
	q.pid = pid;
	rc = send_all(c->fd, &q, sizeof(q), end);
	/* Refused at the door: the reason may stand there to be read all the same. */
	if (rc && rc != -EPIPE)
		return rc;
	for (int i = 0; i < MOST_RECORDS; i++) {
		struct wg_wire_head h;
		int size = next(c, end);

		if (size < 0)
			return size;
		memcpy(&h, c->record, sizeof(h));
		if (h.type != WG_WIRE_DONE) {
			if (each)
				each(c->record, size, arg);
			continue;
		}
		if (!wg_wire_take(c->record, size, done, sizeof(*done), sizeof(*done)))
			return -EPROTO;
		done->why[sizeof(done->why) - 1] = 0;
		done->remedy[sizeof(done->remedy) - 1] = 0;
		return 0;
	}
	return -E2BIG;
}
