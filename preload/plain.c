// SPDX-License-Identifier: Apache-2.0
/*
 * plain.c - what the recorder can say by itself, when no reader can be executed.
 *
 * Runs in a signal handler, in our helper thread or in the keeper (dump.c), which share memory with
 * a program in any state: no libc state, no locks, and no write without a deadline.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>

#include "inflight.h"
#include "lifecycle.h"
#include "sys.h"
#include "text.h"

#define DEADLINE_MS 2000

struct out {
	int fd, file;
	char buf[400];
};

/*
 * A full pipe: better a gap than one more thread that hangs. One without a reader would raise
 * SIGPIPE in a program that may not expect it.
 */
void wg_say(int fd, const char *s, size_t n)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	struct timespec limit = { DEADLINE_MS / 1000, 0 };

	if (fd >= 0 && wg_sys5(SYS_ppoll, &p, 1, &limit, NULL, 8) == 1 && p.revents == POLLOUT)
		wg_sys3(SYS_write, fd, s, n);
}

static void line(struct out *o, struct wg_text *t)
{
	wg_puts(t, "\n");
	wg_say(o->fd, o->buf, t->n);
	if (o->file >= 0)
		wg_sys3(SYS_write, o->file, o->buf, t->n);
	*t = wg_text(o->buf, sizeof(o->buf));
}

static uint64_t used_of(enum wgrec_kind kind, uint64_t capacity)
{
	for (unsigned int i = 0; i < WGREC_MAX_SECTIONS; i++)
		if (wg_rec->sections[i].kind == kind)
			return wg_rec->sections[i].used < capacity ? wg_rec->sections[i].used : capacity;
	return 0;
}

static void put_age(struct wg_text *t, uint64_t now, uint64_t then)
{
	wg_put_seconds(t, now > then ? wg_ticks_to_ns(now - then) : 0);
	wg_puts(t, " s");
}

static void threads(struct out *o, struct wg_text *t, uint64_t now)
{
	uint64_t capacity, n;
	const struct wgrec_thread *th = wg_rec_section(WGREC_THREADS, &capacity);

	n = th ? used_of(WGREC_THREADS, capacity) : 0;
	for (uint64_t i = 0; i < n; i++) {
		uint32_t depth = th[i].depth;

		if (!th[i].tid || !depth)
			continue;
		wg_puts(t, "  thread ");
		wg_putu(t, th[i].tid);
		wg_puts(t, " (");
		wg_putn(t, th[i].name, sizeof(th[i].name));
		wg_puts(t, "):");
		for (uint32_t d = 0; d < depth && d < WGREC_DEPTH; d++) {
			const struct wgrec_call *c = &th[i].calls[d];

			if (c->fn >= WG_FN_COUNT)
				continue;
			wg_puts(t, d ? " > " : " in ");
			wg_puts(t, wg_names[c->fn].name);
			wg_puts(t, " for ");
			put_age(t, now, c->since);
			if (c->device >= 0) {
				wg_puts(t, ", device ");
				wg_puti(t, c->device);
			}
			if (c->flags & WGREC_CALLF_STREAM) {
				wg_puts(t, ", stream ");
				wg_putx(t, c->stream);
			}
		}
		line(o, t);
	}
}

static void devices(struct out *o, struct wg_text *t, uint64_t now)
{
	uint64_t capacity;
	const struct wgrec_device *d = wg_rec_section(WGREC_DEVICES, &capacity);

	for (uint64_t i = 0; d && i < capacity; i++) {
		if (!d[i].valid)
			continue;
		wg_puts(t, "  device ");
		wg_putu(t, i);
		wg_puts(t, ": free ");
		wg_putu(t, d[i].free >> 20);
		wg_puts(t, " of ");
		wg_putu(t, d[i].total >> 20);
		wg_puts(t, " MiB (");
		put_age(t, now, d[i].free_at);
		wg_puts(t, " ago), own ");
		wg_putu(t, d[i].own >> 20);
		wg_puts(t, " MiB, peak ");
		wg_putu(t, d[i].peak >> 20);
		wg_puts(t, " MiB, failed allocations ");
		wg_putu(t, d[i].failures);
		line(o, t);
	}
}

static void failures(struct out *o, struct wg_text *t, uint64_t now)
{
	uint64_t capacity;
	const struct wgrec_failure *f = wg_rec_section(WGREC_FAILURES, &capacity);

	for (uint64_t i = 0; f && i < capacity; i++) {
		if (!f[i].seq || f[i].fn >= WG_FN_COUNT)
			continue;
		wg_puts(t, "  failed: ");
		wg_puts(t, wg_names[f[i].fn].name);
		wg_puts(t, " of ");
		wg_putu(t, f[i].asked);
		wg_puts(t, " bytes by thread ");
		wg_putu(t, f[i].tid);
		wg_puts(t, ", ");
		put_age(t, now, f[i].at);
		wg_puts(t, f[i].recovered ? " ago, went on" : " ago");
		line(o, t);
	}
}

static int open_file(void)
{
	static char path[640];
	static char dir[300];
	int fd = -EBADF;

	if (!wg_settings.dir[0])
		return -1;
	for (size_t i = 1, n = strlen(wg_settings.dir); i <= n; i++)
		if (wg_settings.dir[i] == '/' || !wg_settings.dir[i]) {
			memcpy(dir, wg_settings.dir, i);
			dir[i] = 0;
			wg_sys3(SYS_mkdirat, WG_AT_FDCWD, dir, 0700);
		}
	for (unsigned int n = 1; n < 1000; n++) {
		struct wg_text t = wg_text(path, sizeof(path));

		wg_puts(&t, wg_settings.dir);
		wg_puts(&t, "/");
		wg_puts(&t, wg_rec && wg_rec->host[0] ? wg_rec->host : "localhost");
		wg_puts(&t, "-");
		wg_putu(&t, wg_rec ? wg_rec->pid : 0);
		wg_puts(&t, "-");
		wg_putu(&t, wg_rec ? wg_rec->start_ticks : 0);
		wg_puts(&t, "-");
		wg_putu(&t, n);
		wg_puts(&t, ".txt");
		fd = wg_sys_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd != -EEXIST)
			break;
	}
	return fd;
}

void wg_plain_report(int fd)
{
	struct out o = { .fd = fd };
	struct wg_text t = wg_text(o.buf, sizeof(o.buf));
	uint64_t now = wg_ticks();

	o.file = open_file();
	wg_puts(&t, "waitgraph: no dump by the waitgraph program (not found, or it failed); what the "
		    "recorder knows:");
	line(&o, &t);
	if (!wg_rec) {
		wg_puts(&t, "  CUDA is not initialised in this process");
		line(&o, &t);
	} else {
		threads(&o, &t, now);
		devices(&o, &t, now);
		failures(&o, &t, now);
	}
	wg_puts(&t, "waitgraph: end");
	line(&o, &t);
	if (o.file >= 0)
		wg_sys1(SYS_close, o.file);
}
