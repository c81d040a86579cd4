/* SPDX-License-Identifier: Apache-2.0 */
/* observer.c - probe, load, ask: the on-demand half of the kernel observer. */
#include "observer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tasks.skel.h"

struct wg_observer {
	struct tasks_bpf *tasks;
	pthread_mutex_t lock; /* the programs' scratch record holds one thread's facts at a time */
	int unrestricted; /* the kernel cannot limit the iterator to one process (before 6.1) */
};

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
	return 0;
}

void wg_observer_quiet(void)
{
	libbpf_set_print(quiet);
}

int wg_observer_open(struct wg_observer **out, const char **why)
{
	return wg_observer_open_watched(out, -1, why);
}

int wg_observer_open_watched(struct wg_observer **out, int wakes_fd, const char **why)
{
	struct rlimit lim = { RLIM_INFINITY, RLIM_INFINITY }, old;
	struct wg_observer *o;
	int rc;

	*out = NULL;
	*why = NULL;
	if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		*why = "no /sys/kernel/btf/vmlinux: this kernel carries no BTF";
		return -ENOSYS;
	}
	wg_observer_quiet();
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	pthread_mutex_init(&o->lock, NULL);
	/* Kernels before 5.11 account BPF memory as locked memory. */
	if (!getrlimit(RLIMIT_MEMLOCK, &old))
		setrlimit(RLIMIT_MEMLOCK, &lim);
	o->tasks = tasks_bpf__open();
	rc = o->tasks ? 0 : -errno;
	if (!rc) {
		o->tasks->rodata->wg_watching = wakes_fd >= 0;
		rc = wakes_fd >= 0 ? bpf_map__reuse_fd(o->tasks->maps.wg_wakes, wakes_fd) :
				     bpf_map__set_autocreate(o->tasks->maps.wg_wakes, false);
	}
	if (!rc)
		rc = tasks_bpf__load(o->tasks);
	if (rc) {
		*why = rc == -EPERM || rc == -EACCES ?
			       "loading a BPF program needs CAP_BPF and CAP_PERFMON, or root" :
			       "the kernel refused the BPF program";
		wg_observer_close(o);
		return rc < 0 ? rc : -EPERM;
	}
	*out = o;
	return 0;
}

void wg_observer_close(struct wg_observer *o)
{
	if (!o)
		return;
	tasks_bpf__destroy(o->tasks);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

int wg_observer_tasks(struct wg_observer *o, int32_t pid,
		      int (*each)(const struct wg_obs_task *t, void *arg), void *arg)
{
	union bpf_iter_link_info info;
	LIBBPF_OPTS(bpf_iter_attach_opts, opts);
	struct bpf_link *link = NULL;
	size_t have = 0, cap = 64 * sizeof(struct wg_obs_task);
	char *buf = NULL;
	int fd = -1, rc = 0, found = 0;
	ssize_t n;

	memset(&info, 0, sizeof(info));
	info.task.pid = (__u32)pid; /* all threads of this process */
	opts.link_info = &info;
	opts.link_info_len = sizeof(info);
	if (!o->unrestricted)
		link = bpf_program__attach_iter(o->tasks->progs.wg_tasks, &opts);
	if (!link) {
		if (!o->unrestricted && errno == ESRCH)
			return -ESRCH;
		/* Before 6.1: walk all tasks, the program filters. Wrong pid inside a PID namespace. */
		link = bpf_program__attach_iter(o->tasks->progs.wg_tasks, NULL);
		if (!link)
			return -errno;
		o->unrestricted = 1;
	}
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0) {
		rc = -errno;
		goto out;
	}
	buf = malloc(cap);
	if (!buf) {
		rc = -ENOMEM;
		goto out;
	}
	for (;;) {
		pthread_mutex_lock(&o->lock);
		o->tasks->bss->wg_tgid = o->unrestricted ? pid : 0;
		n = read(fd, buf + have, cap - have);
		pthread_mutex_unlock(&o->lock);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0) {
			rc = -errno;
			goto out;
		}
		have += (size_t)n;
		while (have >= sizeof(struct wg_obs_task)) {
			found = 1;
			rc = each((const struct wg_obs_task *)(void *)buf, arg);
			if (rc)
				goto out;
			have -= sizeof(struct wg_obs_task);
			memmove(buf, buf + sizeof(struct wg_obs_task), have);
		}
		if (n == 0)
			break;
	}
	rc = found ? 0 : -ESRCH;
out:
	free(buf);
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return rc;
}
