// SPDX-License-Identifier: Apache-2.0
/*
 * exec.c - programs that the program starts: they get the signal mask that it set, and a record of a
 * process that became another program says so. Also the ends that pass no destructor.
 *
 * These run in children of vfork() and after fork() in processes with threads: nothing here
 * allocates, locks or writes to memory that is not its own, but for the thread-local state of the
 * thread that called vfork(), which waits meanwhile.
 */
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "doors.h"
#include "lifecycle.h"
#include "sys.h"


#define LIBC_FN(type, name)                                                                        \
	((type)(wg_libc.name ? wg_libc.name : (wg_doors_init(), wg_libc.name)))

struct leaving {
	unsigned int undo;
};

static struct leaving leave(void)
{
	struct leaving l = { .undo = wg_signal_unhold() };

	wg_recorder_flag(WGREC_F_RETIRED, 0); /* nothing in a child: the file is its parent's */
	return l;
}

static int stayed(struct leaving l, int rc)
{
	int was = errno;

	wg_recorder_flag(0, WGREC_F_RETIRED);
	wg_signal_rehold(l.undo);
	errno = was;
	return rc;
}

WG_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	struct leaving l = leave();

	return stayed(l, LIBC_FN(int (*)(const char *, char *const *, char *const *), execve)(
				 path, argv, envp));
}

WG_EXPORT int execv(const char *path, char *const argv[])
{
	struct leaving l = leave();

	return stayed(l, LIBC_FN(int (*)(const char *, char *const *), execv)(path, argv));
}

WG_EXPORT int execvp(const char *file, char *const argv[])
{
	struct leaving l = leave();

	return stayed(l, LIBC_FN(int (*)(const char *, char *const *), execvp)(file, argv));
}

WG_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	struct leaving l = leave();

	return stayed(l, LIBC_FN(int (*)(const char *, char *const *, char *const *), execvpe)(
				 file, argv, envp));
}

WG_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	struct leaving l = leave();

	return stayed(l, LIBC_FN(int (*)(int, char *const *, char *const *), fexecve)(fd, argv, envp));
}

WG_EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags);
WG_EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags)
{
	struct leaving l;

	if (!wg_libc.execveat) {
		errno = ENOSYS;
		return -1;
	}
	l = leave();
	return stayed(l, LIBC_FN(int (*)(int, const char *, char *const *, char *const *, int),
				 execveat)(fd, path, argv, envp, flags));
}

/* The list forms, as libc does it: on the stack. */
#define LIST(call, with_env)                                                                       \
	va_list ap;                                                                                \
	size_t n = 1;                                                                              \
                                                                                                   \
	va_start(ap, arg);                                                                         \
	while (va_arg(ap, char *))                                                                 \
		n++;                                                                               \
	va_end(ap);                                                                                \
	{                                                                                          \
		char **argv = __builtin_alloca((n + 1) * sizeof(char *));                          \
		char **envp;                                                                       \
                                                                                                   \
		argv[0] = (char *)arg;                                                             \
		va_start(ap, arg);                                                                 \
		for (size_t i = 1; i <= n; i++)                                                    \
			argv[i] = va_arg(ap, char *);                                              \
		envp = with_env ? va_arg(ap, char **) : environ;                                   \
		va_end(ap);                                                                        \
		return call;                                                                       \
	}

WG_EXPORT int execl(const char *path, const char *arg, ...)
{
	LIST(execve(path, argv, envp), false)
}

WG_EXPORT int execle(const char *path, const char *arg, ...)
{
	LIST(execve(path, argv, envp), true)
}

WG_EXPORT int execlp(const char *path, const char *arg, ...)
{
	LIST(execvpe(path, argv, envp), false)
}

/* These start the program themselves, with the mask that this thread has. */
WG_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	typedef int (*fn)(pid_t *, const char *, const posix_spawn_file_actions_t *,
			  const posix_spawnattr_t *, char *const[], char *const[]);
	unsigned int undo = wg_signal_unhold();
	int rc = LIBC_FN(fn, posix_spawn)(pid, path, actions, attr, argv, envp);

	wg_signal_rehold(undo);
	return rc;
}

WG_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	typedef int (*fn)(pid_t *, const char *, const posix_spawn_file_actions_t *,
			  const posix_spawnattr_t *, char *const[], char *const[]);
	unsigned int undo = wg_signal_unhold();
	int rc = LIBC_FN(fn, posix_spawnp)(pid, file, actions, attr, argv, envp);

	wg_signal_rehold(undo);
	return rc;
}

WG_EXPORT int system(const char *command)
{
	unsigned int undo = wg_signal_unhold();
	int rc = LIBC_FN(int (*)(const char *), system)(command);
	int was = errno;

	wg_signal_rehold(undo);
	errno = was;
	return rc;
}

WG_EXPORT FILE *popen(const char *command, const char *mode)
{
	unsigned int undo = wg_signal_unhold();
	FILE *f = LIBC_FN(FILE *(*)(const char *, const char *), popen)(command, mode);
	int was = errno;

	wg_signal_rehold(undo);
	errno = was;
	return f;
}

/* ---- the end ------------------------------------------------------------------------------ */

WG_EXPORT void exit(int status)
{
	wg_exiting();
	LIBC_FN(void (*)(int), exit)(status);
	__builtin_unreachable();
}

WG_EXPORT void _exit(int status)
{
	wg_ended();
	for (;;)
		wg_sys1(SYS_exit_group, status);
}

WG_EXPORT void _Exit(int status)
{
	_exit(status);
}

WG_EXPORT void quick_exit(int status)
{
	wg_exiting();
	LIBC_FN(void (*)(int), quick_exit)(status);
	__builtin_unreachable();
}
