/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collect.h - from live processes and files to facts.
 *
 * One file per source; each adds to the facts and knows nothing of the others.
 * All return 0 or -errno; a source that could not answer says so in `missing` and
 * returns 0. Nothing here stops, signals or interrupts the target, and no source
 * can hang the reader: see deadline.h.
 */
#ifndef WG_COLLECT_H
#define WG_COLLECT_H

#include "../facts.h"

struct wg_collect_options {
	const int32_t *pids; /* what the user asked about */
	size_t npids;
	bool follow;	  /* go on to children, peers, lock owners, other ranks of this host */
	bool no_stacks;	  /* skip native and Python stacks */
	bool allow_ptrace; /* the user said --ptrace: threads may be stopped for microseconds */
	bool no_bpf;
	double gap_s;	  /* between the two samples; 0: default (0.3 s) */
	double deadline_s; /* of the whole; 0: default (10 s) */
	int mem_fd;	  /* inherited /proc/self/mem of pids[0]; -1 none */
	int proc_fd;	  /* inherited /proc/self directory of pids[0]; -1 none */
	bool second_always; /* take the second sample even if nothing ran recently */
	/*
	 * What only the process itself may read where ptrace is forbidden: an inherited file of
	 * lines "TID CONTENT", CONTENT being one line of /proc/self/task/TID/syscall of pids[0].
	 * 0 or -1: none (0 is stdin and never it).
	 */
	int syscall_fd;
};

/*
 * Collect everything about o->pids (and, with follow, all they wait on).
 * 0; -ESRCH: none of them exists, or the first does not (and left no recorder file); -EACCES:
 * the kernel hides them from this user altogether (hidepid), not even threads can be listed.
 * Anything less is not an error: what could not be read stands in `missing`.
 * mem_fd and proc_fd are used but not closed. Blocks for at most about deadline_s.
 */
int wg_collect(struct wg_facts *f, const struct wg_collect_options *o);

#endif
