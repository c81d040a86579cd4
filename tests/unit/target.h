/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - start a program, wait for its "ready" line, and read it from outside as
 * collect.c does. Included by one test program each; everything is static.
 */
#ifndef WG_TEST_TARGET_H
#define WG_TEST_TARGET_H

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "collect/mem.h"

#define TARGETS WG_BUILD_DIR "/tests/targets/"
#define SCRIPTS WG_SOURCE_DIR "/tests/unit/targets/"

struct target {
	pid_t pid;
	int out; /* its stdout */
	char line[512];
	struct wg_facts *f;
	struct wg_process *p;
	struct wg_mem *m;
	struct wg_symbols *s;
};

static double __attribute__((unused)) now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void end_target(struct target *t)
{
	if (t->s)
		wg_symbols_close(t->s);
	if (t->m)
		wg_mem_close(t->m);
	if (t->f)
		wg_facts_free(t->f);
	if (t->pid > 0) {
		kill(t->pid, SIGKILL);
		waitpid(t->pid, NULL, 0);
	}
	if (t->out >= 0)
		close(t->out);
	memset(t, 0, sizeof(*t));
	t->out = -1;
}

/* Start argv; true when it said ready within 20 s. */
static bool start_target(struct target *t, const char *const *argv)
{
	size_t n = 0;
	int fd[2];

	memset(t, 0, sizeof(*t));
	t->out = -1;
	if (access(argv[0], X_OK) || pipe2(fd, O_CLOEXEC))
		return false;
	t->pid = fork();
	if (!t->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed assertion must not leave it behind */
		dup2(fd[1], 1);
		unsetenv("PYTHONUNBUFFERED");
		setenv("PYTHONIOENCODING", "utf-8", 1);
		setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
		execv(argv[0], (char *const *)argv);
		_exit(127);
	}
	close(fd[1]);
	t->out = fd[0];
	for (double end = now_ms() + 20000; now_ms() < end;) {
		struct pollfd pf = { .fd = t->out, .events = POLLIN };

		if (poll(&pf, 1, 1000) <= 0)
			continue;
		if (n + 1 >= sizeof(t->line) || read(t->out, t->line + n, 1) != 1)
			break;
		if (t->line[n] != '\n') {
			n++;
			continue;
		}
		t->line[n] = 0;
		if (!strncmp(t->line, "ready", 5)) {
			usleep(50000); /* from the line to the wait behind it */
			return true;
		}
		n = 0;
	}
	end_target(t);
	return false;
}

static void read_where(struct wg_thread *t)
{
	char path[80], buf[256] = "";
	unsigned long a[9];
	long nr;
	ssize_t k;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", t->pid, t->tid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return;
	k = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (k <= 0 || sscanf(buf, "%ld %lx %lx %lx %lx %lx %lx %lx %lx", &nr, &a[0], &a[1], &a[2],
			     &a[3], &a[4], &a[5], &a[6], &a[7]) != 9)
		return;
	t->sp = a[6];
	t->pc = a[7];
	t->wait.nr = nr;
	t->wait.has_args = true;
	for (int i = 0; i < 6; i++)
		t->wait.args[i] = a[i];
	if (nr == 202 || nr == 98) {
		t->wait.op = WG_OP_FUTEX;
		t->wait.futex.addr = a[0];
		t->wait.futex.op = (int32_t)a[1];
	}
}

/* Threads, descriptors, memory and symbols: what the readers need of procfs.c and files.c. */
static void look_at(struct target *t)
{
	char path[80];
	struct dirent *e;
	DIR *d;

	t->f = wg_facts_new();
	t->p = wg_add_process(t->f);
	t->p->pid = t->pid;
	snprintf(path, sizeof(path), "/proc/%d/task", t->pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0])) {
			struct wg_thread *x = wg_add_thread(t->f, t->p);

			x->tid = atoi(e->d_name);
			read_where(x);
		}
	if (d)
		closedir(d);
	snprintf(path, sizeof(path), "/proc/%d/fd", t->pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0]))
			wg_add_file(t->f, t->p)->fd = atoi(e->d_name);
	if (d)
		closedir(d);
	t->m = wg_mem_open(t->f, t->p, -1);
	t->s = wg_symbols_open(t->m);
}

/* Descriptor of the target whose file has this name; -1 none. */
static int __attribute__((unused)) fd_of(const struct target *t, const char *name)
{
	for (size_t i = 0; i < t->p->files.n; i++) {
		char path[80], link[4096];
		ssize_t k;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, t->p->files.v[i].fd);
		k = readlink(path, link, sizeof(link) - 1);
		if (k <= 0)
			continue;
		link[k] = 0;
		if (strrchr(link, '/') && !strcmp(strrchr(link, '/') + 1, name))
			return t->p->files.v[i].fd;
	}
	return -1;
}

static bool __attribute__((unused)) have_program(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/usr/bin/%s", name);
	return !access(path, X_OK);
}

/* Run a test function as an ordinary user (nobody); its asserts count. */
static void __attribute__((unused)) as_nobody(void (*fn)(void))
{
	int status;
	pid_t pid;

	if (geteuid()) {
		fn(); /* already one */
		return;
	}
	pid = fork();
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(2);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

#endif
