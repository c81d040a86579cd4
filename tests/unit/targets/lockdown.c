/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lockdown.c - runs a program under what a container or a careful system forbids.
 *
 *	lockdown [--calls] [--ptrace] [--uid N] -- CMD...
 *
 * --calls    system calls that default profiles refuse fail with EPERM: process_vm_readv,
 *            process_vm_writev, ptrace, perf_event_open, bpf, kcmp, pidfd_getfd, userfaultfd
 * --ptrace   no other process may be looked into, as where Yama says so: /proc/PID/mem, maps,
 *            syscall, fd of every process outside are refused by the kernel's own check, though
 *            signals still reach them. (A user namespace of its own has that effect; Yama leaves
 *            maps and fd readable, so this forbids more.)
 * --uid N    as that user, without groups and capabilities
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static void fail(const char *what)
{
	fprintf(stderr, "lockdown: %s: %s\n", what, strerror(errno));
	exit(71);
}

static void forbid_calls(void)
{
	static const unsigned int calls[] = { SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace,
		SYS_perf_event_open, SYS_bpf, SYS_kcmp, SYS_pidfd_getfd, SYS_userfaultfd };
	enum { N = sizeof(calls) / sizeof(calls[0]) };
	struct sock_filter code[N + 3];
	struct sock_fprog program = { N + 3, code };

	code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					       offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < N; i++)
		code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i],
							   (unsigned char)(N - i), 0);
	code[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		fail("seccomp");
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail(path);
	close(fd);
}

static void forbid_ptrace(void)
{
	char map[64];
	unsigned int uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWUSER))
		fail("unshare");
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	put("/proc/self/uid_map", map);
	put("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	put("/proc/self/gid_map", map);
}

int main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--calls")) {
			forbid_calls();
		} else if (!strcmp(argv[i], "--ptrace")) {
			forbid_ptrace();
		} else if (!strcmp(argv[i], "--uid") && i + 1 < argc) {
			unsigned int id = (unsigned int)atoi(argv[++i]);

			if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id))
				fail("setresuid");
			/* Its files in /proc are its own again, as after a login. */
			prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		} else {
			fprintf(stderr, "lockdown: %s?\n", argv[i]);
			return 64;
		}
	}
	if (i + 1 >= argc)
		return 64;
	execvp(argv[i + 1], argv + i + 1);
	fail(argv[i + 1]);
}
