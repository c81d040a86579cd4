/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c - who the other ranks of this host are, noted while they live.
 *
 * A rank that exits takes its recorder file with it, and nobody could say afterwards that it had
 * ever been there. So each rank writes down the processes whose recorder files name the same
 * communicators. Helper thread only; a few times after a communicator was made, then seldom.
 * The files are of the same user, but may be of another version or half written: they are read
 * with pread and checked, never mapped.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "comms.h"
#include "hooks.h"
#include "peers.h"
#include "sys.h"
#include "text.h"

#define RANKS_ON_A_HOST 1024

static struct {
	uint32_t first, size; /* entries of PEERS; size 0: none yet */
	uint32_t known;
	uint32_t looks;	 /* so far */
	uint32_t wait;	 /* rounds until the next */
} of_comm[256];
static uint32_t peers_end;
static uint64_t own_pidns;

static void take(int32_t c, const struct wgrec_header *h, int32_t rank)
{
	struct wgrec_peer *peers = wg_rec_section(WGREC_PEERS, NULL), *x;
	struct wgrec_comm *e = wg_comm_at(c);

	if (!peers || !e || rank < 0 || rank >= e->size || rank == e->rank ||
	    (uint32_t)rank >= of_comm[c].size)
		return;
	x = &peers[of_comm[c].first + (uint32_t)rank];
	if (x->host[0])
		return;
	x->rank = rank;
	/* Numbers of another PID namespace mean nothing here. */
	x->pid = h->pidns == own_pidns ? h->pid : 0;
	x->start_ticks = h->start_ticks;
	memcpy(x->boot_id, h->boot_id, sizeof(x->boot_id));
	memcpy(x->host, h->host, sizeof(x->host));
	x->boot_id[sizeof(x->boot_id) - 1] = 0;
	x->host[sizeof(x->host) - 1] = 0;
	if (!x->host[0])
		strcpy(x->host, "localhost");
	of_comm[c].known++;
}

static long pread_all(int fd, void *buf, size_t n, uint64_t at)
{
	return wg_sys4(SYS_pread64, fd, buf, n, at) == (long)n;
}

static void look_into(int dir, const char *name, uint32_t ncomms)
{
	struct wgrec_header h;
	struct wgrec_comm e;
	int fd = (int)wg_sys4(SYS_openat, dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);

	if (fd < 0)
		return;
	if (!pread_all(fd, &h, sizeof(h), 0) || memcmp(h.magic, WGREC_MAGIC, sizeof(h.magic)) ||
	    h.min_version > WGREC_VERSION || h.endian != WGREC_ENDIAN ||
	    (h.pid == wg_rec->pid && h.start_ticks == wg_rec->start_ticks && h.pidns == own_pidns) ||
	    memcmp(h.boot_id, wg_rec->boot_id, sizeof(h.boot_id)))
		goto out;
	for (uint32_t s = 0; s < h.nsections && s < WGREC_MAX_SECTIONS; s++) {
		const struct wgrec_section *x = &h.sections[s];
		size_t size = x->entry_size < sizeof(e) ? x->entry_size : sizeof(e);

		if (x->kind != WGREC_COMMS || !x->entry_size || x->entry_size > 65536)
			continue;
		for (uint64_t i = 0; i < x->used && i < 256; i++) {
			memset(&e, 0, sizeof(e));
			if (x->offset > (1ull << 40) || !pread_all(fd, &e, size, x->offset + i * x->entry_size))
				break;
			e.id[sizeof(e.id) - 1] = 0;
			if (!e.valid || !e.id[0])
				continue;
			for (uint32_t c = 0; c < ncomms; c++) {
				const struct wgrec_comm *own = wg_comm_at((int32_t)c);

				if (own && own->valid && !strncmp(own->id, e.id, sizeof(own->id)))
					take((int32_t)c, &h, e.rank);
			}
		}
	}
out:
	wg_sys1(SYS_close, fd);
}

static void look_around(uint32_t ncomms)
{
	char path[48], buf[4096];
	struct wg_text t = wg_text(path, sizeof(path));
	long got;
	int dir;

	wg_puts(&t, "/dev/shm/waitgraph-");
	wg_putu(&t, (uint64_t)wg_sys0(SYS_geteuid));
	dir = wg_sys_open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (dir < 0)
		return;
	while ((got = wg_sys3(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		for (long at = 0; at < got;) {
			struct { /* linux_dirent64 */
				uint64_t ino;
				int64_t off;
				unsigned short length;
				unsigned char type;
				char name[];
			} *d = (void *)(buf + at);
			size_t n = strlen(d->name);

			at += d->length;
			if (n > 4 && !strcmp(d->name + n - 4, ".rec"))
				look_into(dir, d->name, ncomms);
		}
	wg_sys1(SYS_close, dir);
}

void wg_peers_tick(uint32_t ncomms)
{
	bool due = false;
	struct stat st;

	if (!wg_rec || !ncomms)
		return;
	if (!own_pidns)
		own_pidns = stat("/proc/self/ns/pid", &st) ? wg_rec->pidns : (uint64_t)st.st_ino;
	if (ncomms > sizeof(of_comm) / sizeof(of_comm[0]))
		ncomms = sizeof(of_comm) / sizeof(of_comm[0]);
	for (uint32_t c = 0; c < ncomms; c++) {
		struct wgrec_comm *e = wg_comm_at((int32_t)c);

		if (!e || !e->valid || e->size < 2 || e->size > RANKS_ON_A_HOST)
			continue;
		if (!of_comm[c].size) {
			if (!wg_rec_use(WGREC_PEERS, peers_end + (uint32_t)e->size))
				continue;
			of_comm[c].first = peers_end;
			of_comm[c].size = (uint32_t)e->size;
			peers_end += (uint32_t)e->size;
			__atomic_store_n(&e->peers_first, of_comm[c].first, __ATOMIC_RELEASE);
		}
		if (of_comm[c].known + 1 >= of_comm[c].size)
			continue;
		if (of_comm[c].wait) {
			of_comm[c].wait--;
			continue;
		}
		/* Ranks of other hosts never appear: look often at first, once a minute later. */
		of_comm[c].wait = of_comm[c].looks++ < 10 ? 0 : 60;
		due = true;
	}
	if (due)
		look_around(ncomms);
}

void wg_peers_fork_child(void)
{
	memset(of_comm, 0, sizeof(of_comm));
	peers_end = 0;
	own_pidns = 0;
}
