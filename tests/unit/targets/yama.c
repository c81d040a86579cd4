/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yama.c - preloaded into a reader: what Yama's ptrace_scope=1 refuses to everybody but ancestors.
 *
 * Attaching: /proc/PID/mem, syscall, stack and process_vm_readv of another process. Looking at
 * maps, fd, exe stays allowed, and what was opened before (an inherited descriptor) goes on
 * working. Needed where the kernel has no Yama, or the test is root.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int refused(int dir, const char *path)
{
	static const char *const names[] = { "mem", "syscall", "stack" };
	const char *name = strrchr(path, '/');
	char link[64], where[512], own[32];
	size_t n;
	ssize_t k;

	name = name ? name + 1 : path;
	for (n = 0; n < 3 && strcmp(name, names[n]); n++)
		;
	if (n == 3)
		return 0;
	where[0] = 0;
	if (path[0] != '/' && dir != AT_FDCWD) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
		k = readlink(link, where, sizeof(where) - 1);
		where[k > 0 ? k : 0] = 0;
	} else {
		snprintf(where, sizeof(where), "%s", path);
	}
	snprintf(own, sizeof(own), "/proc/%d/", (int)getpid());
	return !strncmp(where, "/proc", 5) && strncmp(where, "/proc/self/", 11) &&
	       strncmp(where, "/proc/thread-self/", 18) && strncmp(where, own, strlen(own));
}

static int open_any(int dir, const char *path, int flags, int mode)
{
	if (refused(dir, path)) {
		errno = EACCES;
		return -1;
	}
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	return open_any(dir, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n,
			 const struct iovec *there, unsigned long m, unsigned long flags)
{
	if (pid != getpid()) {
		errno = EPERM;
		return -1;
	}
	return syscall(SYS_process_vm_readv, pid, here, n, there, m, flags);
}
