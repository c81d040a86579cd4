/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - who asks, and what he may know: about processes that he could inspect himself, as
 * the kernel's ptrace_may_access() decides it, and under the numbers of his own PID namespace.
 */
#ifndef WG_ACCESS_H
#define WG_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct wg_asker {
	pid_t pid; /* as the daemon sees it */
	uid_t uid;
	gid_t gid;
	uint64_t pidns, userns; /* inodes */
	uint64_t caps;		/* permitted */
	bool same_pidns;	/* its numbers are the daemon's */
	bool all;		/* root of this machine: everything */
};

/* Who is at the other end. 0 or -errno. */
int wg_access_asker(int fd, struct wg_asker *a);
/* The daemon's number for what the asker calls `pid`; 0 when there is no such process for him. */
pid_t wg_access_pid(const struct wg_asker *a, pid_t pid);
/* The asker's number for the daemon's `pid` (or thread); 0 when he cannot see it. */
pid_t wg_access_shown(const struct wg_asker *a, pid_t pid);

struct wg_target { /* a process that was allowed, pinned */
	pid_t pid;
	int dir; /* /proc/PID: what is read through it is never of another process */
	uint64_t start_ticks;
	bool registers; /* its registers and arguments, too (Yama) */
};
/* May he? 0 with *t (close it), -ESRCH, -EACCES. The same answer for what does not exist and is not his, but to root. */
int wg_access_open(const struct wg_asker *a, pid_t pid, struct wg_target *t);
/* Still? To be asked after its facts were read and before they are sent: it may have run a setuid program since. */
bool wg_access_still(const struct wg_asker *a, const struct wg_target *t);
void wg_access_close(struct wg_target *t);

#endif
