/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc.c - System V semaphores and message queues that a thread is blocked on.
 *
 * They have a number and no descriptor, so nothing in /proc leads from one user to the next.
 * The kernel keeps, for every semaphore, who operated on it last, and for every queue who
 * sent and who received last; the same calls that the program uses tell it, to whoever may
 * read the object. Numbers mean something only inside their IPC namespace: that of the
 * process is compared with our own first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <unistd.h>

#include "procfs.h"

#define MAX_OPS 500	 /* SEMOPM of the kernel's default */
#define MAX_SEMS 32000	 /* SEMMSL */

union semun { /* the caller has to define it: semctl(2) */
	int val;
	struct semid_ds *buf;
	unsigned short *array;
};

int wg_ipc_blocking_op(const struct sembuf *ops, size_t n, unsigned short *values, size_t nvalues)
{
	for (size_t i = 0; i < n; i++) {
		int v;

		if (ops[i].sem_num >= nvalues)
			return -1;
		v = values[ops[i].sem_num];
		if (!ops[i].sem_op ? v != 0 : v + ops[i].sem_op < 0)
			return (int)i;
		values[ops[i].sem_num] = (unsigned short)(v + ops[i].sem_op);
	}
	return -1; /* it could go on right now */
}

static bool same_namespace(const struct wg_pproc *k)
{
	char theirs[64], ours[64];
	ssize_t n = k->dirfd < 0 ? -1 : readlinkat(k->dirfd, "ns/ipc", theirs, sizeof(theirs));
	ssize_t m = readlink("/proc/self/ns/ipc", ours, sizeof(ours));

	return n > 0 && n == m && !memcmp(theirs, ours, (size_t)n);
}

static bool alive(const struct wg_pctx *c, int32_t pid)
{
	const struct wg_hostproc *h = wg_host_proc(c, pid);

	return h && h->state != 'Z' && h->state != 'X';
}

static int semaphore(struct wg_wait *w, struct wg_mem *m)
{
	struct sembuf ops[MAX_OPS];
	struct semid_ds ds;
	union semun arg = { .buf = &ds };
	unsigned short *values;
	size_t n = w->has_args && w->args[2] <= MAX_OPS ? (size_t)w->args[2] : 0;
	int id = (int)w->key, at, pid;

	if (!n || !m || wg_mem_read(m, w->args[1], ops, n * sizeof(ops[0])))
		return -EFAULT;
	if (semctl(id, 0, IPC_STAT, arg))
		return -errno;
	if (ds.sem_nsems > MAX_SEMS)
		return -E2BIG;
	values = calloc(ds.sem_nsems + 1, sizeof(*values));
	if (!values)
		return -ENOMEM;
	arg.array = values;
	if (semctl(id, 0, GETALL, arg)) {
		at = -errno;
		free(values);
		return at;
	}
	at = wg_ipc_blocking_op(ops, n, values, ds.sem_nsems);
	if (at >= 0)
		w->ipc_value = values[ops[at].sem_num];
	free(values);
	if (at < 0)
		return -EAGAIN;
	w->ipc_num = ops[at].sem_num;
	pid = semctl(id, ops[at].sem_num, GETPID);
	w->ipc_last = pid > 0 ? pid : 0; /* 0 as well for one of a namespace that we do not see */
	return 0;
}

static int queue(struct wg_wait *w)
{
	struct msqid_ds ds;

	if (msgctl((int)w->key, IPC_STAT, &ds))
		return -errno;
	w->ipc_value = (int64_t)ds.msg_qnum;
	w->ipc_last = !strcmp(w->syscall_name, "msgsnd") ? ds.msg_lrpid : ds.msg_lspid;
	return 0;
}

void wg_ipc_collect(struct wg_facts *f, struct wg_process *p, struct wg_thread *t)
{
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_wait *w = &t->wait;
	int rc;

	w->ipc_known = w->ipc_last_alive = false;
	w->ipc_last = 0;
	w->ipc_num = w->ipc_value = WG_NO_INT;
	if (w->op != WG_OP_SYSV || !wg_has_int(w->key) || wg_has_int(w->fd) || !w->syscall_name)
		return;
	if (!same_namespace(k)) {
		wg_add_missing(f, p, "who uses a System V object", "another IPC namespace",
			       "run in the container");
		return;
	}
	rc = strncmp(w->syscall_name, "sem", 3) ? queue(w) : semaphore(w, k->mem);
	if (rc) {
		wg_add_missing(f, p, "who uses a System V object", strerror(-rc),
			       rc == -EACCES ? "run as root or as its owner" : NULL);
		return;
	}
	w->ipc_known = true;
	w->ipc_last_alive = w->ipc_last && alive(wg_pctx(f), w->ipc_last);
}
