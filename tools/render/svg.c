/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c - the wait-graph laid out by graphviz's `dot`, when that is installed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "render.h"

extern char **environ;

#define LAYOUT_S 30 /* a graph that dot cannot lay out in this time is not readable either */

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Feed `in` and gather the answer, both without blocking: dot may start to write early. */
static int pump(int *to, int from, const char *in, size_t n, char **out, size_t *out_n)
{
	double end = now_s() + LAYOUT_S;
	size_t sent = 0, cap = 0;

	fcntl(*to, F_SETFL, O_NONBLOCK);
	for (;;) {
		struct pollfd p[2] = { { .fd = *to, .events = POLLOUT },
				       { .fd = from, .events = POLLIN } };
		double left = end - now_s();
		ssize_t k;

		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(p, 2, (int)(left * 1000) + 1) < 0 && errno != EINTR)
			return -errno;
		if (p[0].revents) {
			k = write(*to, in + sent, n - sent);
			if (k < 0 && errno != EAGAIN && errno != EINTR)
				return -errno;
			sent += k > 0 ? (size_t)k : 0;
			if (sent == n) {
				close(*to);
				*to = -1;
			}
		}
		if (!p[1].revents)
			continue;
		if (cap - *out_n < 65536) {
			char *more = realloc(*out, cap = cap ? cap * 2 : 262144);

			if (!more)
				return -ENOMEM;
			*out = more;
		}
		k = read(from, *out + *out_n, cap - *out_n);
		if (k < 0 && errno != EINTR)
			return -errno;
		if (!k)
			return 0;
		*out_n += k > 0 ? (size_t)k : 0;
	}
}

int wg_render_svg(FILE *out, const struct wg_graph *g)
{
	char *argv[] = { "dot", "-Tsvg", NULL }, *text = NULL, *svg = NULL;
	int in[2] = { -1, -1 }, back[2] = { -1, -1 }, status = 0, rc;
	posix_spawn_file_actions_t fa;
	size_t n = 0, svg_n = 0;
	FILE *memory = open_memstream(&text, &n);
	pid_t child = -1;

	if (!memory)
		return -errno;
	rc = wg_render_dot(memory, g);
	if (fclose(memory) && !rc)
		rc = -ENOMEM;
	if (rc)
		goto out;
	if (pipe2(in, O_CLOEXEC) || pipe2(back, O_CLOEXEC)) {
		rc = -errno;
		goto out;
	}
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, in[0], 0);
	posix_spawn_file_actions_adddup2(&fa, back[1], 1);
	rc = posix_spawnp(&child, "dot", &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(in[0]);
	close(back[1]);
	in[0] = back[1] = -1;
	if (rc) {
		rc = -rc; /* -ENOENT: graphviz is not installed */
		child = -1;
		goto out;
	}
	rc = pump(&in[1], back[0], text, n, &svg, &svg_n);
	if (rc)
		kill(child, SIGKILL);
	if (waitpid(child, &status, 0) == child && !rc &&
	    (!WIFEXITED(status) || WEXITSTATUS(status)))
		rc = WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -ENOENT : -EIO;
	if (!rc && svg_n) {
		errno = 0;
		if (fwrite(svg, 1, svg_n, out) != svg_n || fflush(out))
			rc = errno ? -errno : -EIO;
	} else if (!rc) {
		rc = -EIO;
	}
out:
	for (int i = 0; i < 2; i++) {
		if (in[i] >= 0)
			close(in[i]);
		if (back[i] >= 0)
			close(back[i]);
	}
	free(text);
	free(svg);
	return rc;
}
