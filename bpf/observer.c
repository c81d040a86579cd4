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

#include "files.skel.h"
#include "tasks.skel.h"

struct wg_observer {
	struct tasks_bpf *tasks;
	struct files_bpf *files; /* NULL: nobody has asked for files yet */
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
	files_bpf__destroy(o->files);
	tasks_bpf__destroy(o->tasks);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

/* One run of an iterator over the process; each() gets records of `size` bytes. */
static int walk(struct wg_observer *o, struct bpf_program *prog, int *tgid, int32_t pid, size_t size,
		int (*each)(const void *record, void *arg), void *arg)
{
	union bpf_iter_link_info info;
	LIBBPF_OPTS(bpf_iter_attach_opts, opts);
	struct bpf_link *link = NULL;
	size_t have = 0, cap = 64 * size;
	char *buf = NULL;
	int fd = -1, rc = 0, found = 0;
	ssize_t n;

	memset(&info, 0, sizeof(info));
	info.task.pid = (__u32)pid; /* all threads of this process */
	opts.link_info = &info;
	opts.link_info_len = sizeof(info);
	if (!o->unrestricted)
		link = bpf_program__attach_iter(prog, &opts);
	if (!link) {
		if (!o->unrestricted && errno == ESRCH)
			return -ESRCH;
		/* Before 6.1: walk all tasks, the program filters. Wrong pid inside a PID namespace. */
		link = bpf_program__attach_iter(prog, NULL);
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
		size_t at = 0;

		pthread_mutex_lock(&o->lock);
		*tgid = o->unrestricted ? pid : 0;
		n = read(fd, buf + have, cap - have);
		pthread_mutex_unlock(&o->lock);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0) {
			rc = -errno;
			goto out;
		}
		have += (size_t)n;
		for (; have - at >= size; at += size) {
			found = 1;
			rc = each(buf + at, arg);
			if (rc)
				goto out;
		}
		have -= at;
		memmove(buf, buf + at, have);
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

struct tasks_cb {
	int (*each)(const struct wg_obs_task *t, void *arg);
	void *arg;
};

static int a_task(const void *record, void *arg)
{
	struct tasks_cb *c = arg;

	return c->each(record, c->arg);
}

int wg_observer_tasks(struct wg_observer *o, int32_t pid,
		      int (*each)(const struct wg_obs_task *t, void *arg), void *arg)
{
	struct tasks_cb c = { each, arg };

	return walk(o, o->tasks->progs.wg_tasks, &o->tasks->bss->wg_tgid, pid,
		    sizeof(struct wg_obs_task), a_task, &c);
}

struct files_cb {
	int (*each)(const struct wg_obs_file *f, void *arg);
	void *arg;
};

static int a_file(const void *record, void *arg)
{
	struct files_cb *c = arg;

	return c->each(record, c->arg);
}

int wg_observer_files(struct wg_observer *o, int32_t pid,
		      int (*each)(const struct wg_obs_file *f, void *arg), void *arg)
{
	struct files_cb c = { each, arg };
	int rc = 0;

	pthread_mutex_lock(&o->lock);
	if (!o->files) {
		o->files = files_bpf__open();
		rc = o->files ? files_bpf__load(o->files) : -errno;
		if (rc) {
			files_bpf__destroy(o->files);
			o->files = NULL;
		}
	}
	pthread_mutex_unlock(&o->lock);
	if (rc)
		return rc < 0 ? rc : -EPERM;
	rc = walk(o, o->files->progs.wg_files, &o->files->bss->wg_tgid, pid,
		  sizeof(struct wg_obs_file), a_file, &c);
	return rc == -ESRCH ? 0 : rc; /* none is open */
}
