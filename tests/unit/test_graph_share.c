/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph over what processes share without a descriptor: mapped words, System V objects, the
 * daemon of a FUSE mount, children behind a wait for a signal.
 */
#include "graph_facts.h"

/* ---- shared words ---------------------------------------------------------------------- */

static struct wg_process *shared_word(struct wg_facts *f, bool mapped)
{
	struct wg_process *p = proc(f, 100, "trainer"), *q = proc(f, 200, "other");

	sem(MAIN(p), 0x10);
	MAIN(p)->wait.futex.is_shared = MAIN(p)->wait.futex.has_map = true;
	MAIN(p)->wait.futex.op = 9 | 256;
	MAIN(p)->wait.futex.map_ino = 55;
	MAIN(p)->wait.sharers_known = true;
	if (mapped)
		*wg_push(f->arena, &MAIN(p)->wait.sharers) = 200;
	return q; /* no relative, another program */
}

static void mapper_stopped(struct wg_facts *f) { stops(shared_word(f, true)); }
static void mapper_works(struct wg_facts *f) { runs(MAIN(shared_word(f, true))); }
static void mapper_locked(struct wg_facts *f) { mutex(MAIN(shared_word(f, true)), 0x400, 200); }
/* Whoever works and does not have the memory cannot post. */
static void worker_not_mapped(struct wg_facts *f) { runs(MAIN(shared_word(f, false))); }

static void kin_not_mapped(struct wg_facts *f) /* a child that lives and unmapped it, one that has ended */
{
	struct wg_process *q = shared_word(f, false), *d = proc(f, 300, "trainer");

	q->comm = "trainer";
	child_of(f, q, f->procs.v[0]);
	child_of(f, d, f->procs.v[0]);
	runs(MAIN(q));
	dead(d, 0, 9);
}

/* ---- System V ---------------------------------------------------------------------------- */

static struct wg_thread *semop_at(struct wg_facts *f, struct wg_process *p, int64_t num, int32_t last)
{
	struct wg_thread *t = MAIN(p);

	(void)f;
	io(t, WG_OP_SYSV, 0);
	t->wait.syscall_name = "semtimedop";
	t->wait.fd = WG_NO_INT;
	t->wait.key = 10;
	t->wait.ipc_known = true;
	t->wait.ipc_num = num;
	t->wait.ipc_value = 0;
	t->wait.ipc_last = last;
	return t;
}

static struct wg_process *sem_taken(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "a"), *q = proc(f, 200, "b");

	semop_at(f, p, 0, 200)->wait.ipc_last_alive = true;
	return q;
}

static void sem_holder_works(struct wg_facts *f) { runs(MAIN(sem_taken(f))); }
static void sem_holder_locked(struct wg_facts *f) { mutex(MAIN(sem_taken(f)), 0x400, 200); }

static void sem_holder_gone(struct wg_facts *f)
{
	sem_taken(f);
	MAIN(f->procs.v[0])->wait.ipc_last_alive = false;
	f->procs.n = 1;
}

static void sem_two_taken(struct wg_facts *f)
{
	semop_at(f, sem_taken(f), 1, 100)->wait.ipc_last_alive = true;
}

/* The other one waits at the same semaphore: a taker like this one, it holds nothing. */
static void sem_two_takers(struct wg_facts *f)
{
	semop_at(f, sem_taken(f), 0, 200)->wait.ipc_last_alive = true;
}

static struct wg_process *msg_from(struct wg_facts *f, const char *call)
{
	struct wg_process *q = sem_taken(f);

	MAIN(f->procs.v[0])->wait.syscall_name = call;
	MAIN(f->procs.v[0])->wait.ipc_num = WG_NO_INT;
	return q;
}

static void msg_sender_silent(struct wg_facts *f) { pauses(MAIN(msg_from(f, "msgrcv"))); }
static void msg_reader_stopped(struct wg_facts *f) { stops(msg_from(f, "msgsnd")); }

/* ---- FUSE -------------------------------------------------------------------------------- */

static struct wg_process *fuse(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app"), *d = proc(f, 200, "fs");
	struct wg_file *x = file(f, p, 3, WG_FILE_REG, 700, O_RDONLY);

	x->remote_fs = true;
	x->fs_type = "fuse.fs";
	x->fs_mount = "/data";
	io(MAIN(p), WG_OP_READ, 3);
	MAIN(p)->state = 'D';
	MAIN(p)->wait.fs_type = "fuse.fs";
	MAIN(p)->wait.fs_daemon_pid = 200;
	MAIN(p)->wait.remote_fs = true;
	x = file(f, d, 5, WG_FILE_CHAR, 9, O_RDWR);
	x->path = "/dev/fuse";
	io(MAIN(d), WG_OP_READ, 5);
	return d;
}

static void fuse_silent(struct wg_facts *f) { fuse(f); }
static void fuse_locked(struct wg_facts *f) { mutex(MAIN(fuse(f)), 0x400, 200); }
static void fuse_works(struct wg_facts *f) { runs(MAIN(fuse(f))); }

/* A thread of it that works while the server is back at the device: some other business. */
static void fuse_other_works(struct wg_facts *f)
{
	struct wg_process *d = fuse(f);

	runs(thr(f, d, 201, "cleaner"));
}

static void fuse_gone(struct wg_facts *f)
{
	fuse(f);
	MAIN(f->procs.v[0])->wait.fs_daemon_pid = 0;
	MAIN(f->procs.v[0])->wait.fs_daemon_gone = true;
	f->procs.n = 1;
}

/* ---- waits for SIGCHLD -------------------------------------------------------------------- */

static struct wg_process *sigchld(struct wg_facts *f, bool awaited)
{
	struct wg_process *p = proc(f, 100, "timeout"), *q = proc(f, 200, "cmd");

	child_of(f, q, p);
	pauses(MAIN(p));
	MAIN(p)->wait.syscall_name = "rt_sigsuspend";
	if (awaited)
		MAIN(p)->wait.child = -1;
	return q;
}

static void sigchld_stopped(struct wg_facts *f) { stops(sigchld(f, true)); }
static void sigchld_works(struct wg_facts *f) { runs(MAIN(sigchld(f, true))); }
static void sigchld_not_awaited(struct wg_facts *f) { stops(sigchld(f, false)); }

#define Y WG_HUNG_YES
#define N WG_HUNG_NO
#define U WG_HUNG_NULL
static const struct graph_case cases[] = {
	{"who has it mapped is stopped", mapper_stopped, "stopped", Y, 200, 0, NULL, 1},
	{"who has it mapped works", mapper_works, "busy-cpu", N, 200, 0, NULL, 1},
	{"who has it mapped hangs", mapper_locked, "lock-self", Y, 200, 0, NULL, 1},
	{"nobody else has it mapped", worker_not_mapped, "no-waker", Y, 0, 0, NULL, 1},
	{"the one who had it mapped has ended", kin_not_mapped, "peer-dead", Y, 300, 0, NULL, 1},
	{"semaphore, last operator works", sem_holder_works, "busy-cpu", N, 200, 0, NULL, 1},
	{"semaphore, last operator hangs", sem_holder_locked, "lock-self", Y, 200, 0, NULL, 1},
	{"semaphore, last operator has ended", sem_holder_gone, "lock-orphaned", Y, 200, 0, "200", 1},
	{"two semaphores of a set", sem_two_taken, "deadlock", Y, 0, 0, NULL, 1},
	{"two takers of one semaphore", sem_two_takers, "unknown|no-waker", U, 0, 0, NULL, 0},
	{"queue, last sender silent", msg_sender_silent, "peer-silent", Y, 200, 0, NULL, 1},
	{"queue, last reader stopped", msg_reader_stopped, "stopped", Y, 200, 0, NULL, 1},
	{"FUSE, daemon forgot it", fuse_silent, "read-blocked", Y, 200, 0, NULL, -1},
	{"FUSE, daemon locked", fuse_locked, "lock-self", Y, 200, 200, NULL, -1},
	{"FUSE, daemon works", fuse_works, "busy-cpu", N, 200, 200, NULL, 1},
	{"FUSE, another thread works", fuse_other_works, "read-blocked", Y, 200, 0, NULL, 0},
	{"FUSE, daemon has ended", fuse_gone, "peer-dead", Y, 0, 0, NULL, 1},
	{"sigsuspend, child stopped", sigchld_stopped, "stopped", Y, 200, 0, NULL, -1},
	{"sigsuspend, child works", sigchld_works, "busy-cpu", N, 200, 0, NULL, 1},
	{"sigsuspend, SIGCHLD blocked", sigchld_not_awaited, "idle", N, 100, 0, NULL, -1},
};

RUN_CASES(cases)
