// SPDX-License-Identifier: Apache-2.0
/*
 * dump.c - starts the reader, `waitgraph dump PID --from-signal`, as a grandchild.
 *
 *	this process ── clone(VM, no exit signal) ──▶ keeper ── clone(VM|VFORK) + exec ──▶ waitgraph
 *
 * The keeper never executes anything, so it stays what only __WCLONE can wait for: no wait() of the
 * program ever returns it. It lives as long as the reader does, so the reader is not handed to
 * a subreaper, which may be the program itself. It shares our memory and therefore touches none of
 * libc's: raw system calls, a stack of its own, all signals blocked. Its descriptor table is a copy,
 * emptied at once: no pipe or lock of the program is kept open by us, and a program that is out of
 * descriptors can be dumped, too.
 *
 * /proc/self/mem opened by the keeper is this process' memory (it is the same memory), which needs
 * no permission; the reader inherits it. No ptracer is set.
 *
 * One reader at a time; a request meanwhile makes the keeper run it once more.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "doors.h"
#include "lifecycle.h"
#include "sys.h"
#include "text.h"

#ifndef __WCLONE
#define __WCLONE 0x80000000
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define READER_SECONDS 60
enum { MEM_FD = 3, PROC_FD = 4 };
enum { IDLE, RUNNING, AGAIN };

static volatile uint32_t state;
static volatile int keeper_pid[2]; /* by stack; 0: nobody to wait for */
static uint32_t round_no;
static char keeper_stack[2][24 * 1024] __attribute__((aligned(16)));
static char reader_stack[8 * 1024] __attribute__((aligned(16)));

static char candidates[4][512]; /* paths to try, in order */
static char pid_text[16];
static char *reader_env[WG_TOOL_ENV + 1];

void wg_dump_fork_child(void)
{
	state = IDLE;
	keeper_pid[0] = keeper_pid[1] = 0;
	wg_scout_fork_child();
}

/* ---- what to execute ------------------------------------------------------------------ */

/* Our own path: from the loader's list it would need a lock, from here a read of our maps. */
static void beside_library(struct wg_text *t)
{
	extern const char __ehdr_start[] __attribute__((visibility("hidden")));
	static char line[1024];
	int fd = wg_sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	size_t n = 0;
	char c[512];
	long got;

	if (fd < 0)
		return;
	while ((got = wg_sys3(SYS_read, fd, c, sizeof(c))) > 0)
		for (long i = 0; i < got; i++) {
			uint64_t from = 0;
			char *path, *slash;

			if (c[i] != '\n') {
				if (n + 1 < sizeof(line))
					line[n++] = c[i];
				continue;
			}
			line[n] = 0;
			n = 0;
			for (const char *p = line; *p && *p != '-'; p++)
				from = from * 16 + (uint64_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
			if (from != (uint64_t)(uintptr_t)__ehdr_start)
				continue;
			path = strchr(line, '/');
			slash = path ? strrchr(path, '/') : NULL;
			if (slash) {
				*slash = 0;
				wg_puts(t, path);
				wg_puts(t, "/../bin/waitgraph");
			}
			goto out;
		}
out:
	wg_sys1(SYS_close, fd);
}

static void find_reader(void)
{
	const char *path = "/usr/local/bin:/usr/bin:/bin";
	unsigned int n = 0;
	struct wg_text t;

	memset(candidates, 0, sizeof(candidates));
	if (wg_settings.tool[0]) {
		t = wg_text(candidates[n++], sizeof(candidates[0]));
		wg_puts(&t, wg_settings.tool);
	}
	t = wg_text(candidates[n], sizeof(candidates[0]));
	beside_library(&t);
	if (candidates[n][0])
		n++;
	for (unsigned int i = 0; i < WG_TOOL_ENV && wg_tool_env[i][0]; i++)
		if (!strncmp(wg_tool_env[i], "PATH=", 5))
			path = wg_tool_env[i] + 5;
	while (*path && n < sizeof(candidates) / sizeof(candidates[0])) {
		size_t length = strcspn(path, ":");

		t = wg_text(candidates[n], sizeof(candidates[0]));
		wg_putn(&t, path, length);
		wg_puts(&t, "/waitgraph");
		/* One place of PATH is enough: the first that has it. */
		if (length && !wg_sys3(SYS_faccessat, WG_AT_FDCWD, candidates[n], 1 /* X_OK */))
			n++;
		else
			candidates[n][0] = 0;
		path += length + (path[length] == ':');
	}
	n = 0;
	for (unsigned int i = 0; i < WG_TOOL_ENV && wg_tool_env[i][0]; i++)
		reader_env[n++] = wg_tool_env[i];
	reader_env[n] = NULL;
}

/* ---- keeper and reader ---------------------------------------------------------------------- */

static int reader(void *arg)
{
	static char mem_fd[] = "3", proc_fd[] = "4", dump[] = "dump", from[] = "--from-signal",
		    mem[] = "--mem-fd", proc[] = "--proc-fd";

	(void)arg;
	wg_sys_mask(SIG_SETMASK, 0);
	for (unsigned int i = 0; i < sizeof(candidates) / sizeof(candidates[0]) && candidates[i][0]; i++) {
		char *argv[] = { candidates[i], dump, pid_text, from, mem, mem_fd, proc, proc_fd, NULL };

		wg_sys3(SYS_execve, candidates[i], argv, reader_env);
	}
	for (;;)
		wg_sys1(SYS_exit_group, 127);
	return 127;
}

static void close_from(unsigned int first)
{
	if (!wg_sys3(SYS_close_range, first, ~0u, 0))
		return;
	for (unsigned int fd = first; fd < 65536; fd++) /* kernels before 5.9 */
		wg_sys1(SYS_close, fd);
}

static void put_at(int fd, int at)
{
	if (fd >= 0 && fd != at) {
		wg_sys3(SYS_dup3, fd, at, 0);
		wg_sys1(SYS_close, fd);
	}
}

static void descriptors(void)
{
	char proc[32];
	struct wg_text t = wg_text(proc, sizeof(proc));
	int null;

	wg_puts(&t, "/proc/");
	wg_puts(&t, pid_text);
	close_from(3);
	/* In this order they get 3 and 4, whatever became of 0, 1 and 2. */
	null = wg_sys_open("/dev/null", O_RDWR, 0);
	if (null >= 0 && null <= 2) { /* the program had closed it */
		for (int fd = 0; fd <= 2; fd++)
			if (wg_sys3(SYS_fcntl, fd, F_GETFD, 0) < 0)
				wg_sys3(SYS_dup3, null, fd, 0);
	}
	if (null >= 0) {
		if (null != 0)
			wg_sys3(SYS_dup3, null, 0, 0);
		if (null != 1)
			wg_sys3(SYS_dup3, null, 1, 0);
		if (null > 2)
			wg_sys1(SYS_close, null);
	}
	put_at(wg_sys_open("/proc/self/mem", O_RDONLY, 0), MEM_FD);
	put_at(wg_sys_open(proc, O_RDONLY | O_DIRECTORY, 0), PROC_FD);
}

static bool crashed(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGILL || sig == SIGFPE ||
	       sig == SIGSYS || sig == SIGTRAP;
}

/* Exit status of the reader; 127 when it could not be started, or died on the way. */
static int run_reader(void)
{
	struct timespec tick = { 0, 10 * 1000 * 1000 };
	int status = 0;
	long pid, rc;

	pid = clone(reader, reader_stack + sizeof(reader_stack),
		    CLONE_VM | CLONE_VFORK | CLONE_UNTRACED | SIGCHLD, NULL);
	if (pid <= 0)
		return 127;
	for (unsigned int ticks = 0;; ticks++) {
		rc = wg_sys4(SYS_wait4, pid, &status, WNOHANG, NULL);
		if (rc == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : crashed(WTERMSIG(status)) ? 127 : 128;
		if (rc < 0 && rc != -EINTR)
			return 128;
		if (ticks == READER_SECONDS * 100)
			wg_sys2(SYS_kill, pid, SIGKILL); /* in D state even that may not end it */
		if (ticks >= (READER_SECONDS + 10) * 100)
			return 128;
		wg_sys2(SYS_nanosleep, &tick, NULL);
	}
}

static int keeper(void *arg)
{
	(void)arg;
	wg_sys5(SYS_prctl, PR_SET_NAME, "waitgraph-keep", 0, 0, 0);
	descriptors();
	find_reader(); /* here, where descriptors can be had */
	for (;;) {
		uint32_t running = RUNNING;

		if (run_reader() == 127)
			wg_plain_report(2);
		if (__atomic_compare_exchange_n(&state, &running, IDLE, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			break;
		__atomic_store_n(&state, RUNNING, __ATOMIC_RELEASE); /* asked again meanwhile */
	}
	for (;;)
		wg_sys1(SYS_exit_group, 0);
	return 0;
}

/* ---- asked ------------------------------------------------------------------------------------ */

static bool reap(unsigned int i, bool wait)
{
	int pid = keeper_pid[i];
	long rc;

	if (!pid)
		return true;
	rc = wg_sys4(SYS_wait4, pid, NULL, __WCLONE | (wait ? 0 : WNOHANG), NULL);
	if (rc == pid || rc == -ECHILD) {
		keeper_pid[i] = 0;
		return true;
	}
	return false;
}

void wg_dump_reap(void)
{
	bool gone = reap(0, false) & reap(1, false);
	uint32_t now = state;

	/* Killed from outside before it could say that it had ended. */
	if (gone && now != IDLE)
		__atomic_compare_exchange_n(&state, &now, IDLE, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE);
}

void wg_dump_request(void)
{
	uint32_t was;
	unsigned int i;
	uint64_t mask;
	struct wg_text t;
	int pid;

	if (wg_settings.emulated) {
		wg_plain_report(2);
		return;
	}
	wg_dump_reap();
	for (;;) {
		was = IDLE;
		if (__atomic_compare_exchange_n(&state, &was, RUNNING, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			break;
		if (was == AGAIN)
			return;
		if (was == RUNNING && __atomic_compare_exchange_n(&state, &was, AGAIN, false,
								  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return;
	}
	i = round_no++ & 1;
	reap(i, true); /* the one before the last has left its loop long ago */
	wg_scout();
	t = wg_text(pid_text, sizeof(pid_text));
	wg_putu(&t, (uint64_t)wg_sys_pid());
	mask = wg_sys_mask(SIG_SETMASK, ~0ull); /* our handlers must not run in the keeper */
	pid = clone(keeper, keeper_stack[i] + sizeof(keeper_stack[i]), CLONE_VM | CLONE_UNTRACED, NULL);
	if (pid > 0)
		keeper_pid[i] = pid;
	wg_sys_mask(SIG_SETMASK, mask);
	if (pid <= 0) {
		__atomic_store_n(&state, IDLE, __ATOMIC_RELEASE);
		wg_plain_report(2); /* no process may be made: that may be the very trouble */
	}
}
