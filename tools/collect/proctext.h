/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proctext.h - the kernel's texts, parsed. Pure functions over strings: no I/O, so that
 * hostile and odd contents can be tested. All take a NUL-ended text; what a field lacks
 * keeps the value that stands for absent. They return false when the text is not of the
 * kind at all.
 */
#ifndef WG_PROCTEXT_H
#define WG_PROCTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WG_PF_EXITING 0x00000004u
#define WG_PF_FORKNOEXEC 0x00000040u
#define WG_PF_KTHREAD 0x00200000u

struct wg_pt_stat { /* /proc/PID/stat, /proc/PID/task/TID/stat */
	char comm[64];
	char state;
	int32_t pid, ppid, pgid, sid, tty, tpgid;
	uint32_t flags;
	uint64_t majflt, utime, stime, cutime, cstime;
	int64_t nthreads;
	uint64_t start;
	uint64_t start_code, start_stack, arg_start;
	int32_t cpu;
	int32_t exit_code;
	bool has_exit_code;
};
bool wg_pt_stat(const char *s, struct wg_pt_stat *out);

struct wg_pt_status {
	int64_t uid, threads, lck_kb, pin_kb, switches; /* INT64_MIN absent */
	int32_t tracer, nspid, tgid;
	int ns_depth; /* namespaces that NSpid names; 0 absent */
	char sigblk[20];
	uint64_t caught, blocked; /* signals: bit 0 is signal 1 */
	bool got_caught;	  /* both are known */
};
bool wg_pt_status(const char *s, struct wg_pt_status *out);

struct wg_pt_syscall {
	bool running; /* on a CPU: nothing else is known */
	int64_t nr;   /* -1: in the kernel without a system call */
	uint64_t args[6], sp, pc;
};
bool wg_pt_syscall(const char *s, struct wg_pt_syscall *out);

struct wg_pt_sched {
	double exec_start_ms; /* NAN absent */
	int64_t switches;     /* INT64_MIN absent */
};
bool wg_pt_sched(const char *s, struct wg_pt_sched *out);
bool wg_pt_schedstat(const char *s, uint64_t *run_ns, uint64_t *slices);

struct wg_pt_io {
	int64_t rchar, wchar, read_bytes, write_bytes;
};
bool wg_pt_io(const char *s, struct wg_pt_io *out);

/* One line of a kernel stack, "[<0>] pipe_read+0x1b/0x2c [mod]": the function's name. */
bool wg_pt_stack_line(const char **s, char *out, size_t n);

struct wg_pt_tfd {
	int fd;
	uint32_t events;
};
struct wg_pt_fdinfo {
	int64_t pos, flags;
	int32_t mnt_id;
	uint64_t ino;
	int64_t event_count, event_id;
	int32_t pid; /* pidfd: -1 gone, 0 not visible; INT32_MIN absent */
	int32_t tty_index;
	int64_t timer_s, timer_ns;
	bool has_timer;
	int64_t fuse_connection;
	char lock_kind; /* a lock through this description: f p o l; 0 */
	bool lock_write;
	size_t ntfd; /* epoll: registered descriptors, `tfd` holds the first `cap` */
};
bool wg_pt_fdinfo(const char *s, struct wg_pt_fdinfo *out, struct wg_pt_tfd *tfd, size_t cap);

struct wg_pt_mount {
	int32_t id;
	uint64_t dev; /* major << 20 | minor */
	char point[1024];
	char type[64];
	char source[512];
	char root[1024];   /* of the file system: what of it is mounted */
	char options[512]; /* of the superblock */
};
/* One line; advances *s past it. False at the end; a broken line is skipped. */
bool wg_pt_mount(const char **s, struct wg_pt_mount *out);
/* Can a file on it stop answering for reasons outside this kernel? */
bool wg_pt_remote_fs(const char *type);

struct wg_pt_lock {
	int32_t id, pid;
	char kind; /* f p o l */
	bool blocked, write;
	uint64_t dev, ino;
	int64_t start, end; /* end INT64_MIN: to the end of the file */
};
bool wg_pt_lock(const char **s, struct wg_pt_lock *out); /* next line of /proc/locks */

/* Soft limit of a line of /proc/PID/limits: INT64_MIN absent, INT64_MAX unlimited. */
int64_t wg_pt_limit(const char *s, const char *name);

struct wg_pt_sock { /* a line of /proc/net/{tcp,tcp6,udp,udp6,unix} */
	int family, type, state; /* kernel's state number */
	uint8_t laddr[16], raddr[16];
	uint16_t lport, rport;
	int64_t rxq, txq;
	uint64_t ino;
	char path[128]; /* unix */
	bool listening;
};
bool wg_pt_inet(const char **s, int family, int type, struct wg_pt_sock *out);
bool wg_pt_unix(const char **s, struct wg_pt_sock *out);

/* "name value" lines, or a single number ("max" is INT64_MAX): INT64_MIN absent. */
int64_t wg_pt_value(const char *s, const char *name);
int64_t wg_pt_number(const char *s);

/* The path of a controller ("" for version 2) in /proc/PID/cgroup. */
bool wg_pt_cgroup(const char *s, const char *controller, char *out, size_t n);

/* Next NAME=value of an environment of len bytes. */
bool wg_pt_env(const char *s, size_t len, size_t *at, const char **name, size_t *name_len,
	       const char **value, size_t *value_len);

#endif
