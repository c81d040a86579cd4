/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.c - the blocked system call of a thread, decoded into what it waits for.
 *
 * Source: /proc/PID/task/TID/syscall (number, arguments, sp, pc) and the process' memory
 * for what the arguments point to; where the first is forbidden, the kernel function that
 * the thread sleeps in says at least the kind. Arguments live in the memory of a running
 * program: what does not fit is left out, never believed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <math.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include "procfs.h"

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

#define MAX_POLLFDS 4096
#define MAX_IOV 64

/* ---- names ------------------------------------------------------------------ */

#define S(nr, name) [nr] = #name,
static const char *const names[] = {
#if defined(__x86_64__)
#include "syscalls_x86_64.def"
#elif defined(__aarch64__)
#include "syscalls_aarch64.def"
#else
#error "no table of system calls for this machine"
#endif
};
#undef S
#define NAMES ((int64_t)(sizeof(names) / sizeof(names[0])))

const char *wg_syscall_name(int64_t nr)
{
	return nr >= 0 && nr < NAMES ? names[nr] : NULL;
}

/* ---- the table ---------------------------------------------------------------- */

enum form { /* what is special beyond fd, bytes and path */
	F_PLAIN, F_FUTEX, F_FUTEX_WAITV, F_FUTEX_WAIT2, F_IOV, F_MSG, F_MMSG, F_POLL, F_PPOLL, F_SELECT, F_PSELECT,
	F_EPOLL, F_EPOLL2, F_CONNECT, F_WAIT4, F_WAITID, F_FCNTL, F_NANOSLEEP, F_CLOCK_NANOSLEEP,
	F_SIGTIMEDWAIT, F_SEMTIMEDOP, F_MQ, F_SPLICE, F_SENDFILE, F_COPY_RANGE, F_MSYNC,
	F_GETEVENTS, F_VFORK, F_TWO_PATHS,
};

struct decoder {
	const char *name;
	enum wg_op op;
	int8_t fd, bytes, path, dirfd; /* argument numbers; -1 none */
	enum form form;
};
#define NO -1
static const struct decoder table[] = {
	{ "futex", WG_OP_FUTEX, NO, NO, NO, NO, F_FUTEX },
	{ "futex_waitv", WG_OP_FUTEX, NO, NO, NO, NO, F_FUTEX_WAITV },
	{ "futex_wait", WG_OP_FUTEX, NO, NO, NO, NO, F_FUTEX_WAIT2 },
	{ "read", WG_OP_READ, 0, 2, NO, NO, F_PLAIN },
	{ "pread64", WG_OP_READ, 0, 2, NO, NO, F_PLAIN },
	{ "readv", WG_OP_READ, 0, NO, NO, NO, F_IOV },
	{ "preadv", WG_OP_READ, 0, NO, NO, NO, F_IOV },
	{ "preadv2", WG_OP_READ, 0, NO, NO, NO, F_IOV },
	{ "recvfrom", WG_OP_READ, 0, 2, NO, NO, F_PLAIN },
	{ "recvmsg", WG_OP_READ, 0, NO, NO, NO, F_MSG },
	{ "recvmmsg", WG_OP_READ, 0, NO, NO, NO, F_MMSG },
	{ "readahead", WG_OP_READ, 0, 2, NO, NO, F_PLAIN },
	{ "write", WG_OP_WRITE, 0, 2, NO, NO, F_PLAIN },
	{ "pwrite64", WG_OP_WRITE, 0, 2, NO, NO, F_PLAIN },
	{ "writev", WG_OP_WRITE, 0, NO, NO, NO, F_IOV },
	{ "pwritev", WG_OP_WRITE, 0, NO, NO, NO, F_IOV },
	{ "pwritev2", WG_OP_WRITE, 0, NO, NO, NO, F_IOV },
	{ "sendto", WG_OP_WRITE, 0, 2, NO, NO, F_PLAIN },
	{ "sendmsg", WG_OP_WRITE, 0, NO, NO, NO, F_MSG },
	{ "sendmmsg", WG_OP_WRITE, 0, NO, NO, NO, F_PLAIN },
	{ "sendfile", WG_OP_WRITE, 0, 3, NO, NO, F_SENDFILE },
	{ "copy_file_range", WG_OP_WRITE, 2, 4, NO, NO, F_COPY_RANGE },
	{ "splice", WG_OP_SPLICE, 0, 4, NO, NO, F_SPLICE },
	{ "tee", WG_OP_SPLICE, 0, 2, NO, NO, F_SPLICE },
	{ "vmsplice", WG_OP_SPLICE, 0, NO, NO, NO, F_IOV },
	{ "fsync", WG_OP_SYNC, 0, NO, NO, NO, F_PLAIN },
	{ "fdatasync", WG_OP_SYNC, 0, NO, NO, NO, F_PLAIN },
	{ "sync", WG_OP_SYNC, NO, NO, NO, NO, F_PLAIN },
	{ "syncfs", WG_OP_SYNC, 0, NO, NO, NO, F_PLAIN },
	{ "sync_file_range", WG_OP_SYNC, 0, 2, NO, NO, F_PLAIN },
	{ "msync", WG_OP_SYNC, NO, 1, NO, NO, F_MSYNC },
	{ "poll", WG_OP_POLL, NO, NO, NO, NO, F_POLL },
	{ "ppoll", WG_OP_POLL, NO, NO, NO, NO, F_PPOLL },
	{ "select", WG_OP_POLL, NO, NO, NO, NO, F_SELECT },
	{ "pselect6", WG_OP_POLL, NO, NO, NO, NO, F_PSELECT },
	{ "epoll_wait", WG_OP_EPOLL, 0, NO, NO, NO, F_EPOLL },
	{ "epoll_pwait", WG_OP_EPOLL, 0, NO, NO, NO, F_EPOLL },
	{ "epoll_pwait2", WG_OP_EPOLL, 0, NO, NO, NO, F_EPOLL2 },
	{ "accept", WG_OP_ACCEPT, 0, NO, NO, NO, F_PLAIN },
	{ "accept4", WG_OP_ACCEPT, 0, NO, NO, NO, F_PLAIN },
	{ "connect", WG_OP_CONNECT, 0, NO, NO, NO, F_CONNECT },
	{ "wait4", WG_OP_WAIT, NO, NO, NO, NO, F_WAIT4 },
	{ "waitid", WG_OP_WAIT, NO, NO, NO, NO, F_WAITID },
	{ "vfork", WG_OP_WAIT, NO, NO, NO, NO, F_VFORK },
	{ "clone", WG_OP_OTHER, NO, NO, NO, NO, F_VFORK },
	{ "clone3", WG_OP_OTHER, NO, NO, NO, NO, F_VFORK },
	{ "flock", WG_OP_FLOCK, 0, NO, NO, NO, F_PLAIN },
	{ "fcntl", WG_OP_OTHER, 0, NO, NO, NO, F_FCNTL },
	{ "nanosleep", WG_OP_SLEEP, NO, NO, NO, NO, F_NANOSLEEP },
	{ "clock_nanosleep", WG_OP_SLEEP, NO, NO, NO, NO, F_CLOCK_NANOSLEEP },
	{ "rt_sigtimedwait", WG_OP_SIGWAIT, NO, NO, NO, NO, F_SIGTIMEDWAIT },
	{ "rt_sigsuspend", WG_OP_SIGWAIT, NO, NO, NO, NO, F_PLAIN },
	{ "pause", WG_OP_SIGWAIT, NO, NO, NO, NO, F_PLAIN },
	{ "open", WG_OP_OPEN, NO, NO, 0, NO, F_PLAIN },
	{ "creat", WG_OP_OPEN, NO, NO, 0, NO, F_PLAIN },
	{ "openat", WG_OP_OPEN, NO, NO, 1, 0, F_PLAIN },
	{ "openat2", WG_OP_OPEN, NO, NO, 1, 0, F_PLAIN },
	{ "open_by_handle_at", WG_OP_OPEN, 0, NO, NO, NO, F_PLAIN },
	{ "execve", WG_OP_OPEN, NO, NO, 0, NO, F_PLAIN },
	{ "execveat", WG_OP_OPEN, NO, NO, 1, 0, F_PLAIN },
	{ "uselib", WG_OP_OPEN, NO, NO, 0, NO, F_PLAIN },
	{ "swapon", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "stat", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "lstat", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fstat", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "newfstatat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "statx", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "statfs", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fstatfs", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "access", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "faccessat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "faccessat2", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "readlink", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "readlinkat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "rename", WG_OP_FSMETA, NO, NO, 0, NO, F_TWO_PATHS },
	{ "renameat", WG_OP_FSMETA, NO, NO, 1, 0, F_TWO_PATHS },
	{ "renameat2", WG_OP_FSMETA, NO, NO, 1, 0, F_TWO_PATHS },
	{ "link", WG_OP_FSMETA, NO, NO, 1, NO, F_PLAIN },
	{ "linkat", WG_OP_FSMETA, NO, NO, 3, 2, F_PLAIN },
	{ "symlink", WG_OP_FSMETA, NO, NO, 1, NO, F_PLAIN },
	{ "symlinkat", WG_OP_FSMETA, NO, NO, 2, 1, F_PLAIN },
	{ "unlink", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "unlinkat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "mkdir", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "mkdirat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "mknod", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "mknodat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "rmdir", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "chdir", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fchdir", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "chmod", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fchmod", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "fchmodat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "fchmodat2", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "chown", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "lchown", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fchown", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "fchownat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "truncate", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "ftruncate", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "fallocate", WG_OP_FSMETA, 0, 3, NO, NO, F_PLAIN },
	{ "fadvise64", WG_OP_FSMETA, 0, 2, NO, NO, F_PLAIN },
	{ "getdents", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "getdents64", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "lseek", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "close", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "dup2", WG_OP_FSMETA, 1, NO, NO, NO, F_PLAIN },
	{ "dup3", WG_OP_FSMETA, 1, NO, NO, NO, F_PLAIN },
	{ "utime", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "utimes", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "futimesat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "utimensat", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "getxattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "lgetxattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fgetxattr", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "setxattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "lsetxattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "fsetxattr", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "listxattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "llistxattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "flistxattr", WG_OP_FSMETA, 0, NO, NO, NO, F_PLAIN },
	{ "removexattr", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "mount", WG_OP_FSMETA, NO, NO, 1, NO, F_PLAIN },
	{ "umount2", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "chroot", WG_OP_FSMETA, NO, NO, 0, NO, F_PLAIN },
	{ "name_to_handle_at", WG_OP_FSMETA, NO, NO, 1, 0, F_PLAIN },
	{ "inotify_add_watch", WG_OP_FSMETA, NO, NO, 1, NO, F_PLAIN },
	{ "ioctl", WG_OP_IOCTL, 0, NO, NO, NO, F_PLAIN },
	{ "io_uring_enter", WG_OP_IOURING, 0, NO, NO, NO, F_PLAIN },
	{ "io_getevents", WG_OP_IOURING, NO, NO, NO, NO, F_GETEVENTS },
	{ "io_pgetevents", WG_OP_IOURING, NO, NO, NO, NO, F_GETEVENTS },
	{ "semop", WG_OP_SYSV, NO, NO, NO, NO, F_PLAIN },
	{ "semtimedop", WG_OP_SYSV, NO, NO, NO, NO, F_SEMTIMEDOP },
	{ "msgsnd", WG_OP_SYSV, NO, 2, NO, NO, F_PLAIN },
	{ "msgrcv", WG_OP_SYSV, NO, 2, NO, NO, F_PLAIN },
	{ "mq_timedsend", WG_OP_SYSV, 0, 2, NO, NO, F_MQ },
	{ "mq_timedreceive", WG_OP_SYSV, 0, 2, NO, NO, F_MQ },
};
#undef NO

static const struct decoder *decoder_of(int64_t nr)
{
	static int16_t index[512]; /* 0 not looked up, -1 none, else position + 1 */
	const char *name = wg_syscall_name(nr);

	if (!name || nr >= (int64_t)(sizeof(index) / sizeof(index[0])))
		return NULL;
	if (!index[nr]) {
		index[nr] = -1;
		for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
			if (!strcmp(table[i].name, name))
				index[nr] = (int16_t)(i + 1);
	}
	return index[nr] > 0 ? &table[index[nr] - 1] : NULL;
}

static int64_t number_of(const char *name)
{
	for (int64_t i = 0; i < NAMES; i++)
		if (names[i] && !strcmp(names[i], name))
			return i;
	return WG_NO_INT;
}

int64_t wg_syscall_number(const char *name)
{
	return number_of(name);
}

enum wg_op wg_wait_op(int64_t nr)
{
	const struct decoder *d = decoder_of(nr);

	return d ? d->op : WG_OP_OTHER;
}

int64_t wg_wait_fd(int64_t nr, const uint64_t *args)
{
	const struct decoder *d = decoder_of(nr);

	return d && d->fd >= 0 ? (int32_t)args[d->fd] : WG_NO_INT;
}

/* ---- by the kernel function that it sleeps in ---------------------------------------- */

enum wg_op wg_op_of_wchan(const char *w)
{
	static const struct {
		const char *prefix;
		enum wg_op op;
	} known[] = {
		{ "futex_", WG_OP_FUTEX }, { "__futex_", WG_OP_FUTEX },
		{ "anon_pipe_read", WG_OP_READ }, { "pipe_read", WG_OP_READ },
		{ "pipe_wait_readable", WG_OP_READ }, { "anon_pipe_write", WG_OP_WRITE },
		{ "pipe_write", WG_OP_WRITE }, { "pipe_wait_writable", WG_OP_WRITE },
		{ "fifo_open", WG_OP_OPEN }, { "wait_for_partner", WG_OP_OPEN },
		{ "unix_stream_read_generic", WG_OP_READ }, { "unix_stream_data_wait", WG_OP_READ },
		{ "__skb_wait_for_more_packets", WG_OP_READ }, { "sk_wait_data", WG_OP_READ },
		{ "tcp_recvmsg", WG_OP_READ }, { "n_tty_read", WG_OP_READ },
		{ "eventfd_read", WG_OP_READ }, { "signalfd_", WG_OP_READ },
		{ "timerfd_read", WG_OP_READ }, { "inotify_read", WG_OP_READ },
		{ "fuse_dev_do_read", WG_OP_READ }, { "sock_alloc_send_pskb", WG_OP_WRITE },
		{ "sk_stream_wait_memory", WG_OP_WRITE }, { "n_tty_write", WG_OP_WRITE },
		{ "unix_wait_for_peer", WG_OP_CONNECT }, { "inet_csk_accept", WG_OP_ACCEPT },
		{ "unix_accept", WG_OP_ACCEPT }, { "inet_stream_connect", WG_OP_CONNECT },
		{ "inet_wait_for_connect", WG_OP_CONNECT }, { "__inet_stream_connect", WG_OP_CONNECT },
		{ "do_poll", WG_OP_POLL }, { "do_sys_poll", WG_OP_POLL },
		{ "do_select", WG_OP_POLL }, { "core_sys_select", WG_OP_POLL },
		{ "poll_schedule_timeout", WG_OP_POLL }, { "ep_poll", WG_OP_EPOLL },
		{ "do_epoll_wait", WG_OP_EPOLL }, { "do_wait", WG_OP_WAIT },
		{ "kernel_wait4", WG_OP_WAIT }, { "do_waitid", WG_OP_WAIT },
		{ "kernel_waitid", WG_OP_WAIT }, { "wait_for_vfork_done", WG_OP_WAIT },
		{ "hrtimer_nanosleep", WG_OP_SLEEP }, { "do_nanosleep", WG_OP_SLEEP },
		{ "common_nsleep", WG_OP_SLEEP }, { "do_sigtimedwait", WG_OP_SIGWAIT },
		{ "sigsuspend", WG_OP_SIGWAIT }, { "__x64_sys_pause", WG_OP_SIGWAIT },
		{ "flock_lock_inode_wait", WG_OP_FLOCK }, { "locks_lock_inode_wait", WG_OP_FLOCK },
		{ "fcntl_setlk", WG_OP_FCNTL }, { "do_lock_file_wait", WG_OP_FCNTL },
		{ "posix_lock_inode_wait", WG_OP_FCNTL }, { "do_semtimedop", WG_OP_SYSV },
		{ "__do_semtimedop", WG_OP_SYSV }, { "do_msgrcv", WG_OP_SYSV },
		{ "do_msgsnd", WG_OP_SYSV }, { "wq_sleep", WG_OP_SYSV },
		{ "do_mq_timed", WG_OP_SYSV }, { "io_cqring_wait", WG_OP_IOURING },
		{ "read_events", WG_OP_IOURING }, { "balance_dirty_pages", WG_OP_WRITE },
		{ "io_schedule", WG_OP_UNKNOWN },
	};

	for (size_t i = 0; w && i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(w, known[i].prefix, strlen(known[i].prefix)))
			return known[i].op;
	return WG_OP_UNKNOWN;
}

/* ---- times ------------------------------------------------------------------------------ */

struct ts64 {
	int64_t sec, nsec;
};

/*
 * Longer than any wait that a program means (those for "ever" pass no time or the largest number):
 * what the memory held when the thread had already left, or was about to pass something else.
 */
#define LATE_WAKE_S 60.0 /* a deadline may have passed: nobody gave the thread a CPU since, or it is stopped */
#define LONGEST_WAIT_S (100.0 * 365 * 86400)

static bool read_ts(struct wg_mem *m, uint64_t addr, double *out)
{
	struct ts64 t;

	if (!addr || wg_mem_read(m, addr, &t, sizeof(t)) || t.nsec < 0 || t.nsec > 999999999)
		return false;
	*out = (double)t.sec + (double)t.nsec * 1e-9;
	return true;
}

/* A relative timeout behind a pointer; NULL is none. */
static void relative(struct wg_wait *w, struct wg_mem *m, uint64_t addr, double scale_usec)
{
	struct ts64 t;

	if (!addr) {
		w->timeout_known = true;
		return;
	}
	if (!m || wg_mem_read(m, addr, &t, sizeof(t)) || t.sec < 0 || t.nsec < 0 ||
	    t.nsec > 999999999) /* microseconds of select() are normalised by the kernel */
		return;
	w->timeout_s = (double)t.sec + (double)t.nsec * (scale_usec > 0 ? scale_usec : 1e-9);
	if (w->timeout_s > LONGEST_WAIT_S)
		w->timeout_s = INFINITY; /* asked for ever, or garbage: checked below */
	w->timeout_known = true;
}

/* An absolute one: turned into what was left at the time the wait began. */
static void absolute(struct wg_facts *f, struct wg_process *p, struct wg_wait *w,
		     struct wg_mem *m, uint64_t addr, clockid_t clock)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct timespec now;
	double at;

	if (!addr) {
		w->timeout_known = true;
		return;
	}
	/* Monotonic clocks are shifted in a time namespace: not ours, not comparable. */
	if (clock != CLOCK_REALTIME && k->timens && c->timens && k->timens != c->timens)
		return;
	if (!m || !read_ts(m, addr, &at) || clock_gettime(clock, &now))
		return;
	at -= (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
	/*
	 * Nobody still sleeps towards a moment long past: those bytes are of another time (the
	 * thread left while they were read, or another wrote there), nor towards one in centuries.
	 */
	if (at < -LATE_WAKE_S || at > LONGEST_WAIT_S)
		return;
	if (wg_has_sec(w->since_s))
		at += w->since_s;
	w->timeout_s = at > 0 ? at : 0;
	w->timeout_known = true;
}

static void milliseconds(struct wg_wait *w, uint64_t arg)
{
	int32_t ms = (int32_t)arg;

	w->timeout_known = true;
	if (ms >= 0)
		w->timeout_s = ms * 1e-3;
}

/* ---- pieces --------------------------------------------------------------------------------- */

static void decode_futex_words(struct wg_facts *f, struct wg_futex *x, struct wg_mem *m)
{
	const struct wg_map *map;

	if (!m)
		return;
	for (int n = WG_FUTEX_WORDS; n > 0; n--) { /* a word may end its mapping */
		if (!wg_mem_read(m, x->addr, x->words, (size_t)n * 4)) {
			x->nwords = n;
			break;
		}
		if (wg_mem_error(m) || (x->addr & 4095) + (uint64_t)n * 4 <= 4096)
			break;
	}
	x->back_valid = x->addr > sizeof(x->back) &&
			!wg_mem_read(m, x->addr - sizeof(x->back), x->back, sizeof(x->back));
	map = wg_mem_map_at(m, x->addr);
	if (!map)
		return;
	x->has_map = true;
	x->map_path = map->path ? wg_str(f->arena, map->path) : NULL;
	x->map_off = x->addr - map->lo + map->off;
	if (map->shared) { /* a private page is nobody else's, whatever file it came from */
		x->map_dev = map->dev;
		x->map_ino = map->ino;
	}
}

static void decode_futex(struct wg_facts *f, struct wg_process *p, struct wg_wait *w,
			 struct wg_mem *m)
{
	struct wg_futex *x = &w->futex;
	int cmd;

	x->addr = w->args[0];
	x->op = (int32_t)w->args[1];
	x->val = (uint32_t)w->args[2];
	x->is_shared = !(x->op & FUTEX_PRIVATE_FLAG);
	cmd = x->op & FUTEX_CMD_MASK;
	switch (cmd) {
	case FUTEX_WAIT:
		relative(w, m, w->args[3], 0);
		break;
	case FUTEX_WAIT_BITSET:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_LOCK_PI2:
		absolute(f, p, w, m, w->args[3],
			 x->op & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC);
		break;
	case FUTEX_LOCK_PI:
		absolute(f, p, w, m, w->args[3], CLOCK_REALTIME);
		break;
	default: /* a wake or requeue that is in the kernel right now: no wait */
		w->op = WG_OP_OTHER;
		return;
	}
	decode_futex_words(f, x, m);
}

static void decode_waitv(struct wg_facts *f, struct wg_process *p, struct wg_wait *w,
			 struct wg_mem *m)
{
	struct {
		uint64_t val, uaddr;
		uint32_t flags, reserved;
	} v;
	struct wg_futex *x = &w->futex;

	x->op = FUTEX_WAIT_BITSET;
	x->nwaitv = (int)(w->args[1] > 128 ? 128 : w->args[1]);
	absolute(f, p, w, m, w->args[3],
		 (int)w->args[4] == CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC);
	if (!m || !x->nwaitv || wg_mem_read(m, w->args[0], &v, sizeof(v)))
		return;
	x->addr = v.uaddr;
	x->val = (uint32_t)v.val;
	x->is_shared = !(v.flags & 128);
	if (!x->is_shared)
		x->op |= FUTEX_PRIVATE_FLAG;
	decode_futex_words(f, x, m);
}

static void decode_wait2(struct wg_facts *f, struct wg_process *p, struct wg_wait *w,
			 struct wg_mem *m)
{
	struct wg_futex *x = &w->futex;

	x->op = FUTEX_WAIT_BITSET;
	x->addr = w->args[0];
	x->val = (uint32_t)w->args[1];
	x->is_shared = !(w->args[3] & 128);
	if (!x->is_shared)
		x->op |= FUTEX_PRIVATE_FLAG;
	absolute(f, p, w, m, w->args[4],
		 (int)w->args[5] == CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC);
	decode_futex_words(f, x, m);
}

static void decode_iov(struct wg_wait *w, struct wg_mem *m, uint64_t addr, uint64_t count)
{
	struct {
		uint64_t base, len;
	} v[MAX_IOV];
	int64_t sum = 0;

	if (!m || !count || count > MAX_IOV || wg_mem_read(m, addr, v, count * sizeof(v[0])))
		return;
	for (uint64_t i = 0; i < count; i++)
		if (v[i].len > INT64_MAX || __builtin_add_overflow(sum, (int64_t)v[i].len, &sum))
			return;
	w->bytes = sum;
}

static void decode_msg(struct wg_wait *w, struct wg_mem *m)
{
	struct {
		uint64_t name;
		uint32_t namelen, pad;
		uint64_t iov, iovlen;
	} h;

	if (m && !wg_mem_read(m, w->args[1], &h, sizeof(h)))
		decode_iov(w, m, h.iov, h.iovlen);
}

static void add_fd(struct wg_facts *f, struct wg_wait *w, int fd, int events)
{
	struct wg_pollfd *x = wg_push(f->arena, &w->fds);

	x->fd = fd;
	x->events = (int16_t)events;
}

static void decode_poll(struct wg_facts *f, struct wg_wait *w, struct wg_mem *m)
{
	uint64_t n = w->args[1];
	struct pollfd *v;

	if (!m || !n)
		return;
	if (n > MAX_POLLFDS)
		n = MAX_POLLFDS;
	v = malloc(n * sizeof(*v));
	if (v && !wg_mem_read(m, w->args[0], v, n * sizeof(*v))) {
		for (uint64_t i = 0; i < n; i++)
			if (v[i].fd >= 0)
				add_fd(f, w, v[i].fd, v[i].events);
	}
	free(v);
}

static void decode_select(struct wg_facts *f, struct wg_wait *w, struct wg_mem *m)
{
	static const int events[] = { POLLIN, POLLOUT, POLLPRI };
	uint64_t n = w->args[0] > MAX_POLLFDS ? MAX_POLLFDS : w->args[0];
	unsigned char set[3][MAX_POLLFDS / 8];

	memset(set, 0, sizeof(set));
	for (int k = 0; k < 3; k++)
		if (m && w->args[k + 1])
			wg_mem_read(m, w->args[k + 1], set[k], (n + 63) / 64 * 8);
	for (uint64_t i = 0; i < n; i++) {
		int e = 0;

		for (int k = 0; k < 3; k++)
			if (set[k][i / 8] & (1u << (i % 8)))
				e |= events[k];
		if (e)
			add_fd(f, w, (int)i, e);
	}
}

/* A poll of nothing is a sleep; one without an end waits for a signal. */
static void poll_of_nothing(struct wg_wait *w, uint64_t asked)
{
	if (asked)
		return;
	w->op = w->timeout_known && !wg_has_sec(w->timeout_s) ? WG_OP_SIGWAIT : WG_OP_SLEEP;
}

static void decode_connect(struct wg_facts *f, struct wg_wait *w, struct wg_mem *m)
{
	char buf[INET6_ADDRSTRLEN];
	union {
		sa_family_t family;
		struct sockaddr_un un;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		char raw[sizeof(struct sockaddr_un) + 1];
	} a;
	size_t n = w->args[2] > sizeof(struct sockaddr_un) ? sizeof(struct sockaddr_un) :
							     (size_t)w->args[2];

	memset(&a, 0, sizeof(a));
	if (!m || n < sizeof(a.family) || wg_mem_read(m, w->args[1], &a, n))
		return;
	if (a.family == AF_UNIX && n > offsetof(struct sockaddr_un, sun_path)) {
		const char *s = a.un.sun_path;
		size_t len = n - offsetof(struct sockaddr_un, sun_path);

		w->path = *s ? wg_strn(f->arena, s, strnlen(s, len)) :
			       wg_fmt(f->arena, "@%.*s", (int)(len - 1), s + 1);
	} else if (a.family == AF_INET && n >= sizeof(a.in) &&
		   inet_ntop(AF_INET, &a.in.sin_addr, buf, sizeof(buf))) {
		w->path = wg_fmt(f->arena, "%s:%u", buf, ntohs(a.in.sin_port));
	} else if (a.family == AF_INET6 && n >= sizeof(a.in6) &&
		   inet_ntop(AF_INET6, &a.in6.sin6_addr, buf, sizeof(buf))) {
		w->path = wg_fmt(f->arena, "[%s]:%u", buf, ntohs(a.in6.sin6_port));
	}
}

/*
 * A vfork waits for the one child that still runs in the parent's memory. Where that may not be
 * asked it is the only child that has not exec'ed, if there is only one.
 */
static int32_t vfork_child(struct wg_facts *f, struct wg_process *p)
{
	int32_t child = 0;

	for (size_t i = 0; i < p->children.n; i++)
		if (!syscall(SYS_kcmp, p->pid, p->children.v[i], KCMP_VM, 0, 0))
			return p->children.v[i];
	for (size_t i = 0; i < p->children.n; i++) {
		const struct wg_process *c = wg_find_process(f, p->children.v[i]);

		if (c && !c->forked)
			continue;
		if (child)
			return 0;
		child = p->children.v[i];
	}
	return child;
}

static const char *read_path(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
			     uint64_t addr, int64_t dirfd)
{
	struct wg_pproc *k = wg_pproc(f, p);
	const char *dir = NULL;
	char buf[4096];

	if (!m || !addr || wg_mem_read_str(m, addr, buf, sizeof(buf)) < 0)
		return NULL;
	/* The call may be over and its memory used anew: what is no text was no name. */
	if (strcmp(wg_str(f->arena, buf), buf))
		return NULL;
	if (buf[0] == '/')
		return wg_str(f->arena, buf);
	if (dirfd == AT_FDCWD) {
		if (!k->cwd && k->dirfd >= 0) {
			char link[4096];
			ssize_t n = readlinkat(k->dirfd, "cwd", link, sizeof(link));

			if (n > 0)
				k->cwd = wg_strn(f->arena, link, (size_t)n);
		}
		dir = k->cwd;
	} else {
		dir = wg_file_link(f, p, dirfd);
	}
	if (!buf[0]) /* AT_EMPTY_PATH: the descriptor itself */
		return dir;
	if (!dir)
		return wg_str(f->arena, buf);
	return wg_fmt(f->arena, "%s/%s", strcmp(dir, "/") ? dir : "", buf);
}

const char *wg_wait_path(struct wg_facts *f, struct wg_process *p, const struct wg_pt_syscall *s,
			 struct wg_mem *m)
{
	const struct decoder *d = decoder_of(s->nr);

	if (!d || d->path < 0)
		return NULL;
	return read_path(f, p, m, s->args[d->path],
			 d->dirfd < 0 ? AT_FDCWD : (int32_t)s->args[d->dirfd]);
}

static bool stack_has(const struct wg_thread *t, const char *prefix)
{
	for (size_t i = 0; i < t->kernel_stack.n; i++)
		if (!strncmp(t->kernel_stack.v[i], prefix, strlen(prefix)))
			return true;
	return t->wchan && !strncmp(t->wchan, prefix, strlen(prefix));
}

/*
 * In the kernel without a system call: a page fault, unless the thread is on its way to a
 * stop, a freeze or its end. The address is not told; where the stack names the file system
 * and just one of its files is mapped, that is the file.
 */
static void decode_fault(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
			 struct wg_mem *m)
{
	static const char *const faults[] = { "handle_mm_fault", "__handle_mm_fault", "do_fault",
		"__do_fault", "filemap_fault", "do_user_addr_fault", "exc_page_fault", "do_page_fault",
		"handle_userfault", "do_swap_page", "fault_dirty_shared_page", "do_page_mkwrite",
		"__lock_page_or_retry", "folio_wait_bit_common", "do_mem_abort", NULL };
	static const struct {
		const char *function, *type;
	} systems[] = { { "fuse_", "fuse" }, { "nfs", "nfs" }, { "cifs_", "cifs" },
			{ "ceph_", "ceph" }, { "netfs_", NULL }, { "v9fs_", "9p" }, { NULL, NULL } };
	struct wg_wait *w = &t->wait;
	struct wg_mounts *mounts;
	const struct wg_map *maps;
	const char *type = NULL, *path = NULL;
	size_t n;

	for (int i = 0; faults[i] && w->op != WG_OP_FAULT; i++)
		if (stack_has(t, faults[i]))
			w->op = WG_OP_FAULT;
	if (w->op != WG_OP_FAULT || !m)
		return;
	if (stack_has(t, "handle_userfault"))
		return; /* a page that another thread of user space has to provide */
	for (int i = 0; systems[i].function && !type; i++)
		if (stack_has(t, systems[i].function))
			type = systems[i].type;
	mounts = wg_mounts_of(f, p);
	maps = wg_mem_maps(m, &n);
	for (size_t i = 0; mounts && i < n; i++) {
		const struct wg_mount *on = NULL;

		if (!maps[i].path || maps[i].path[0] != '/' || !maps[i].ino)
			continue;
		for (size_t k = 0; k < mounts->v.n && !on; k++)
			if (mounts->v.v[k].dev == maps[i].dev)
				on = &mounts->v.v[k];
		if (!on || (type ? strncmp(on->type, type, strlen(type)) != 0 : !on->remote))
			continue;
		if (path && strcmp(path, maps[i].path)) {
			path = NULL;
			wg_add_missing(f, p, "the file whose page is being read",
				       "several files of that file system are mapped", NULL);
			break;
		}
		path = maps[i].path;
	}
	w->path = wg_str(f->arena, path);
}

static bool restart_only(const struct wg_thread *t)
{
	static const char *const entry[] = { "do_syscall_64", "x64_sys_call", "__x64_sys_restart_syscall",
					     "__do_sys_restart_syscall", "__arm64_sys_restart_syscall",
					     "invoke_syscall", "el0_svc" };

	for (size_t i = 0; t->wchan && i < sizeof(entry) / sizeof(entry[0]); i++)
		if (!strncmp(t->wchan, entry[i], strlen(entry[i])))
			return true;
	return false;
}

/*
 * restart_syscall continues a sleep, poll or futex after a stop. The registers still hold
 * the arguments of the first call; which one it was stands before the instruction that made
 * it ("mov $nr, %eax; syscall"), or is told by where the thread sleeps.
 */
static int64_t restarted(const struct wg_thread *t, struct wg_mem *m, const struct wg_pt_syscall *s)
{
	enum wg_op op = wg_op_of_wchan(t->wchan);
#if defined(__x86_64__)
	static const char *const may[] = { "nanosleep", "clock_nanosleep", "poll", "futex" };
	unsigned char code[40];

	if (m && s->pc > sizeof(code) &&
	    !wg_mem_read(m, s->pc - sizeof(code), code, sizeof(code)) &&
	    code[38] == 0x0f && code[39] == 0x05)
		for (int i = 33; i >= 0; i--) {
			uint32_t nr;

			if (code[i] != 0xb8)
				continue;
			memcpy(&nr, code + i + 1, 4);
			for (size_t k = 0; k < sizeof(may) / sizeof(may[0]); k++)
				if (number_of(may[k]) == (int64_t)nr &&
				    (op == WG_OP_UNKNOWN || !decoder_of(nr) || decoder_of(nr)->op == op))
					return nr;
		}
#else
	(void)m;
#endif
	if (op == WG_OP_FUTEX)
		return number_of("futex");
	if (op == WG_OP_POLL)
		return number_of("poll");
	/*
	 * A restarted sleep leaves no function of its own on the kernel's stack (its own are the
	 * scheduler's, which are not shown). A clock's number is small, a request's address not.
	 */
	if (op == WG_OP_SLEEP || restart_only(t))
		return number_of(s->args[0] + 64 < 128 ? "clock_nanosleep" : "nanosleep");
	return WG_NO_INT;
}

/*
 * Either end of a splice may be the one that waits: the kernel function that it sleeps in belongs
 * to one of them. Where that is not told both stay possible.
 */
static void moves_between(struct wg_facts *f, struct wg_thread *t, int in, int out)
{
	static const struct {
		const char *function;
		enum wg_op op;
	} ends[] = { { "ipipe_prep", WG_OP_READ }, { "splice_from_pipe_next", WG_OP_READ },
		     { "opipe_prep", WG_OP_WRITE }, { "wait_for_space", WG_OP_WRITE } };
	enum wg_op op = wg_op_of_wchan(t->wchan);
	struct wg_wait *w = &t->wait;

	for (size_t i = 0; op == WG_OP_UNKNOWN && i < t->kernel_stack.n; i++) { /* innermost first */
		op = wg_op_of_wchan(t->kernel_stack.v[i]);
		for (size_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++)
			if (!strncmp(t->kernel_stack.v[i], ends[k].function, strlen(ends[k].function)))
				op = ends[k].op;
	}
	if (op == WG_OP_READ || op == WG_OP_WRITE) {
		w->op = op;
		w->fd = op == WG_OP_READ ? in : out;
		return;
	}
	add_fd(f, w, in, POLLIN);
	add_fd(f, w, out, POLLOUT);
}

/* ---- one thread -------------------------------------------------------------------------------- */

static void decode_call(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
			struct wg_mem *m)
{
	struct wg_wait *w = &t->wait;
	const struct decoder *d = decoder_of(w->nr);
	const uint64_t *a = w->args;

	if (!d) {
		w->op = WG_OP_OTHER;
		return;
	}
	w->op = d->op;
	w->timeout_known = true; /* most calls have none; those that do say so below */
	if (d->fd >= 0)
		w->fd = (int32_t)a[d->fd];
	if (d->bytes >= 0 && a[d->bytes] <= INT64_MAX)
		w->bytes = (int64_t)a[d->bytes];
	if (d->path >= 0)
		w->path = read_path(f, p, m, a[d->path],
				    d->dirfd < 0 ? AT_FDCWD : (int32_t)a[d->dirfd]);
	switch (d->form) {
	case F_PLAIN:
		if (d->op == WG_OP_SYSV)
			w->key = (int32_t)a[0];
		break;
	case F_TWO_PATHS:
		break;
	case F_FUTEX:
		w->timeout_known = false;
		decode_futex(f, p, w, m);
		break;
	case F_FUTEX_WAITV:
		w->timeout_known = false;
		decode_waitv(f, p, w, m);
		break;
	case F_FUTEX_WAIT2:
		w->timeout_known = false;
		decode_wait2(f, p, w, m);
		break;
	case F_IOV:
		decode_iov(w, m, a[1], a[2]);
		break;
	case F_MSG:
		decode_msg(w, m);
		break;
	case F_MMSG:
		w->timeout_known = false;
		relative(w, m, a[4], 0);
		break;
	case F_POLL:
		milliseconds(w, a[2]);
		decode_poll(f, w, m);
		poll_of_nothing(w, a[1]);
		break;
	case F_PPOLL:
		w->timeout_known = false;
		relative(w, m, a[2], 0);
		decode_poll(f, w, m);
		poll_of_nothing(w, a[1]);
		break;
	case F_SELECT:
		w->timeout_known = false;
		relative(w, m, a[4], 1e-6);
		decode_select(f, w, m);
		poll_of_nothing(w, a[0] && (a[1] || a[2] || a[3]));
		break;
	case F_PSELECT:
		w->timeout_known = false;
		relative(w, m, a[4], 0);
		decode_select(f, w, m);
		poll_of_nothing(w, a[0] && (a[1] || a[2] || a[3]));
		break;
	case F_EPOLL:
		milliseconds(w, a[3]);
		break;
	case F_EPOLL2:
		w->timeout_known = false;
		relative(w, m, a[3], 0);
		break;
	case F_CONNECT:
		decode_connect(f, w, m);
		break;
	case F_WAIT4:
		if ((int32_t)a[0] > 0) {
			int32_t pid = wg_pid_from_ns(f, p, (int32_t)a[0]);

			w->child = pid > 0 ? pid : WG_NO_INT;
		} else {
			w->child = -1;
		}
		break;
	case F_WAITID:
		if ((int)a[0] == P_PID) {
			int32_t pid = wg_pid_from_ns(f, p, (int32_t)a[1]);

			w->child = pid > 0 ? pid : WG_NO_INT;
		} else if ((int)a[0] == P_PIDFD) {
			w->fd = (int32_t)a[1];
		} else {
			w->child = -1;
		}
		break;
	case F_VFORK:
		if (!stack_has(t, "wait_for_vfork_done") && !stack_has(t, "wait_for_completion_state") &&
		    !(stack_has(t, "kernel_clone") && t->state == 'D'))
			break;
		w->op = WG_OP_WAIT;
		w->child = vfork_child(f, p);
		if (!w->child)
			w->child = -1;
		break;
	case F_FCNTL:
		if ((int)a[1] == F_SETLKW || (int)a[1] == F_OFD_SETLKW)
			w->op = WG_OP_FCNTL;
		break;
	case F_NANOSLEEP:
		w->timeout_known = false;
		relative(w, m, a[0], 0);
		break;
	case F_CLOCK_NANOSLEEP:
		w->timeout_known = false;
		if (a[1] & TIMER_ABSTIME)
			absolute(f, p, w, m, a[2], (clockid_t)(int32_t)a[0]);
		else
			relative(w, m, a[2], 0);
		break;
	case F_SIGTIMEDWAIT:
		w->timeout_known = false;
		relative(w, m, a[2], 0);
		break;
	case F_SEMTIMEDOP:
		w->key = (int32_t)a[0];
		w->timeout_known = false;
		relative(w, m, a[3], 0);
		break;
	case F_MQ:
		w->key = (int32_t)a[0];
		w->timeout_known = false;
		absolute(f, p, w, m, a[4], CLOCK_REALTIME);
		break;
	case F_SPLICE:
		moves_between(f, t, (int)a[0], (int)(strcmp(d->name, "tee") ? a[2] : a[1]));
		break;
	case F_SENDFILE:
		moves_between(f, t, (int)a[1], (int)a[0]);
		break;
	case F_COPY_RANGE:
		moves_between(f, t, (int)a[0], (int)a[2]);
		break;
	case F_MSYNC: {
		const struct wg_map *map = m ? wg_mem_map_at(m, a[0]) : NULL;

		w->path = map && map->path ? wg_str(f->arena, map->path) : NULL;
		break;
	}
	case F_GETEVENTS:
		w->timeout_known = false;
		relative(w, m, a[4], 0);
		break;
	}
}

/*
 * Has the thread run since its call was read? Then what its arguments point to may be of another
 * call: nothing of it is a fact. schedstat takes no lock, so this cannot hang. 1, 0; -1: cannot be
 * told here.
 */
static int has_run_since(const struct wg_pproc *p, const struct wg_ptask *k)
{
	char name[48], text[128];
	uint64_t ns, slices;
	ssize_t n;
	int fd;

	if (p->dirfd < 0 || !k->got_schedstat || !k->slices)
		return -1; /* what is left is plausibility */
	snprintf(name, sizeof(name), "task/%d/schedstat", k->tid);
	fd = openat(p->dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 1; /* it is gone */
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 1;
	text[n] = 0;
	return !wg_pt_schedstat(text, &ns, &slices) || slices != k->slices;
}

void wg_wait_decode(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
		    const struct wg_ptask *k, struct wg_mem *m)
{
	struct wg_wait *w = &t->wait;
	double since = w->since_s;
	bool asleep = t->state && strchr("SDTtI", t->state);

	memset(w, 0, sizeof(*w));
	w->nr = w->fd = w->bytes = w->child = w->key = w->ipc_num = w->ipc_value = WG_NO_INT;
	w->since_s = since;
	w->timeout_s = WG_NO_SEC;
	t->sp = t->pc = 0;
	if (m && wg_mem_error(m))
		m = NULL;

	if (k->got_sys && !k->sys.running) {
		t->sp = k->sys.sp;
		t->pc = k->sys.pc;
	}
	if (t->state == 'Z' || t->state == 'X') {
		w->op = WG_OP_OTHER; /* ended; nobody has collected it */
		return;
	}
	if (t->state == 'R' || (k->got_sys && k->sys.running)) {
		w->op = WG_OP_RUNNING;
		w->since_s = WG_NO_SEC;
		return;
	}
	if (k->got_sys && k->sys.nr >= 0) {
		int64_t nr = k->sys.nr;

		memcpy(w->args, k->sys.args, sizeof(w->args));
		if (wg_pproc(f, p)->is_32bit) { /* other numbers, other layouts */
			wg_add_missing(f, p, "decoded system calls", "a 32-bit program", NULL);
			w->op = wg_op_of_wchan(t->wchan);
			return;
		}
		w->has_args = true;
		if (wg_syscall_name(nr) && !strcmp(wg_syscall_name(nr), "restart_syscall")) {
			int64_t first = restarted(t, m, &k->sys);

			nr = first != WG_NO_INT ? first : nr;
		}
		w->nr = nr;
		w->syscall_name = wg_syscall_name(nr);
		if (!w->syscall_name)
			w->syscall_name = wg_fmt(f->arena, "syscall %lld", (long long)nr);
		decode_call(f, p, t, m);
		if (wg_has_sec(w->timeout_s)) {
			bool ever = isinf(w->timeout_s);
			int ran = has_run_since(wg_pproc(f, p), k);

			if (ran > 0 || (ever && ran)) {
				w->timeout_s = WG_NO_SEC;
				w->timeout_known = false;
			} else if (ever) {
				w->timeout_s = WG_NO_SEC;
			}
		}
		if (w->op == WG_OP_OTHER && w->syscall_name &&
		    !strcmp(w->syscall_name, "restart_syscall"))
			w->op = wg_op_of_wchan(t->wchan);
		return;
	}
	if (k->got_sys && asleep) {
		decode_fault(f, p, t, m);
		if (w->op == WG_OP_FAULT)
			return;
		/* Stopped, frozen or ending between two calls: nothing it waits for itself. */
		w->op = WG_OP_OTHER;
		return;
	}
	w->op = asleep ? wg_op_of_wchan(t->wchan) : WG_OP_UNKNOWN;
}

/* What only the table of descriptors tells. */
void wg_wait_with_files(struct wg_facts *f, struct wg_process *p)
{
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];
		struct wg_wait *w = &t->wait;
		struct wg_file *x = wg_has_int(w->fd) ? wg_find_file(p, w->fd) : NULL;

		if (!x)
			continue;
		if (w->op == WG_OP_EPOLL && x->kind == WG_FILE_EPOLL) {
			w->fds.n = 0;
			for (size_t k = 0; k < x->epoll.n; k++)
				add_fd(f, w, x->epoll.v[k].fd, x->epoll.v[k].events);
		}
		if (w->op == WG_OP_WAIT && x->kind == WG_FILE_PIDFD)
			w->child = x->pidfd_pid > 0 ? x->pidfd_pid : WG_NO_INT;
		if ((w->op == WG_OP_READ || w->op == WG_OP_WRITE || w->op == WG_OP_ACCEPT) &&
		    x->kind == WG_FILE_SOCKET && !wg_has_sec(w->timeout_s)) {
			double s = w->op == WG_OP_WRITE ? x->sock_snd_timeout_s : x->sock_rcv_timeout_s;

			w->timeout_known = wg_has_sec(s);
			w->timeout_s = w->timeout_known && s > 0 ? s : WG_NO_SEC;
		}
		if (w->op == WG_OP_CONNECT && w->path && x->kind == WG_FILE_SOCKET) {
			if (!x->sock_remote)
				x->sock_remote = w->path;
			if (!x->sock_peer_ino)
				x->sock_peer_ino = wg_sockets_listener(f, p, w->path);
		}
	}
}

/*
 * A wait inside one call can be many sleeps: the kernel that throttles a writer wakes it every few
 * milliseconds to look again, and the last of those is all that the thread's own clock tells. The
 * same call with the same arguments in both samples, and not a byte moved between them by any
 * thread of the process, is one call that has not come back; and it lasts since the file was last
 * changed at least, for that is done where a write begins (on a local file, or one of which the
 * kernel keeps the time: else the age is what a server said, and that is left alone).
 */
void wg_waits_long_writes(struct wg_process *p)
{
	if (!wg_has_int(p->wchar_delta) || p->wchar_delta || !wg_has_int(p->write_bytes_delta) ||
	    p->write_bytes_delta)
		return;
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];
		const struct wg_file *x = t->wait.op == WG_OP_WRITE ? wg_find_file(p, t->wait.fd) : NULL;

		if (!x || x->kind != WG_FILE_REG || t->state != 'D' || !t->sampled_twice || !t->same_place ||
		    !wg_has_int(t->switches) || t->switches == 0 || !wg_has_sec(x->last_write_age_s) ||
		    !stack_has(t, "balance_dirty_pages"))
			continue;
		if (!(t->wait.since_s >= x->last_write_age_s))
			t->wait.since_s = x->last_write_age_s;
	}
}
