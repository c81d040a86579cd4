// SPDX-License-Identifier: Apache-2.0
/*
 * scout.c - reads, for a dump, what only the process itself may read of its threads.
 *
 * A bare thread for a few milliseconds, with a descriptor table of its own: no number of the program's
 * is taken, not even for a moment, and one that is out of descriptors does not stop it. It shares
 * its maker's thread-local memory, so raw system calls only.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "lifecycle.h"
#include "sys.h"
#include "text.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static char stack[16 * 1024] __attribute__((aligned(16)));
static volatile uint32_t running; /* its TID; the kernel clears it and wakes */

void wg_scout_fork_child(void)
{
	running = 0;
}

static long read_small(int dir, const char *name, char *buf, size_t size)
{
	long n, fd = wg_sys4(SYS_openat, dir, name, O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	n = wg_sys3(SYS_read, fd, buf, size - 1);
	wg_sys1(SYS_close, fd);
	buf[n > 0 ? n : 0] = 0;
	return n;
}

static void look_at(int dir, uint32_t tid, struct wgrec_task *task)
{
	char name[40], text[256], *p;
	struct wg_text t = wg_text(name, sizeof(name));

	memset(task, 0, sizeof(*task));
	wg_putu(&t, tid);
	wg_puts(&t, "/schedstat");
	if (read_small(dir, name, text, sizeof(text)) > 0) {
		p = strchr(text, ' ');
		p = p ? strchr(p + 1, ' ') : NULL;
		for (p = p ? p + 1 : text + strlen(text); *p >= '0' && *p <= '9'; p++)
			task->slices = task->slices * 10 + (uint64_t)(*p - '0');
	}
	t = wg_text(name, sizeof(name));
	wg_putu(&t, tid);
	wg_puts(&t, "/syscall");
	if (read_small(dir, name, task->syscall, sizeof(task->syscall)) <= 0)
		task->syscall[0] = 0;
	for (p = task->syscall; *p && *p != '\n'; p++)
		;
	*p = 0;
	task->at = wg_ticks();
	__atomic_store_n(&task->tid, tid, __ATOMIC_RELEASE);
}

static int scout(void *arg)
{
	uint64_t capacity, n = 0, own = (uint64_t)wg_sys_tid();
	struct wgrec_task *tasks = wg_rec_section(WGREC_TASKS, &capacity);
	static uint64_t most; /* entries ever written */
	static char buf[4096];
	long got, dir;

	(void)arg;
	wg_sys5(SYS_prctl, PR_SET_NAME, "waitgraph-scout", 0, 0, 0);
	if (wg_sys3(SYS_close_range, 3, ~0u, 0)) /* only copies: they would keep pipes open for ms */
		for (int fd = 3; fd < 1024; fd++)
			wg_sys1(SYS_close, fd);
	dir = wg_sys_open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	while (dir >= 0 && tasks && (got = wg_sys3(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		for (long at = 0; at < got;) {
			unsigned short length;
			const char *name = buf + at + 19; /* ino, off, length, type */
			uint32_t tid = 0;

			memcpy(&length, buf + at + 16, sizeof(length));
			at += length;
			for (; *name >= '0' && *name <= '9'; name++)
				tid = tid * 10 + (uint32_t)(*name - '0');
			if (!tid || tid == own || n >= capacity || !wg_rec_use(WGREC_TASKS, n + 1))
				continue;
			look_at((int)dir, tid, &tasks[n++]);
		}
	for (; tasks && n < most; n++)
		__atomic_store_n(&tasks[n].tid, 0, __ATOMIC_RELEASE); /* of an earlier dump */
	most = n;
	for (;;)
		wg_sys1(SYS_exit, 0);
	return 0;
}

void wg_scout(void)
{
	struct timespec limit = { 0, 200 * 1000 * 1000 };
	uint32_t tid;
	uint64_t mask;

	/* Without a record nowhere to write; one that is still at work is let be. */
	if (!wg_rec || running)
		return;
	running = 1;
	mask = wg_sys_mask(SIG_SETMASK, ~0ull);
	if (clone(scout, stack + sizeof(stack),
		  CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			  CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
		  NULL, (pid_t *)&running, NULL, (pid_t *)&running) < 0)
		running = 0;
	wg_sys_mask(SIG_SETMASK, mask);
	tid = running;
	if (tid) /* the kernel's wake at the end is of the shared kind */
		wg_sys6(SYS_futex, WG_SYS_ARG(&running), FUTEX_WAIT, (long)tid, WG_SYS_ARG(&limit), 0, 0);
}
