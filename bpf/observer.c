/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observer.c - probe, load, ask: the on-demand half of the kernel observer.
 *
 * There are two ways to load a program. libbpf reads all of the kernel's type information (some
 * megabytes) to place a program's accesses: 15-20 ms, most of an answer. Since 5.17 the kernel does
 * that itself, from a loader program that bpftool makes of the same object (a light skeleton):
 * 1-2 ms. That is tried first; where it does not work, libbpf does, and says why not when it cannot
 * either. What is loaded is the same program.
 */
#include "observer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "files.skel.h"
#include "tasks.skel.h"

#include "files.light.h"
#ifdef WG_NO_LIGHT /* bpftool could not make one of this object */
#undef WG_NO_LIGHT
#else
#define WG_LIGHT_FILES 1
#endif
#include "tasks.light.h"
#ifndef WG_NO_LIGHT
#define WG_LIGHT_TASKS 1
#else
struct tasks_light;
#endif
#ifndef WG_LIGHT_FILES
struct files_light;
#endif

struct wg_observer {
	/* Of each two at most one is there. */
	struct tasks_light *tasks_light;
	struct tasks_bpf *tasks;
	struct files_light *files_light; /* neither: nobody has asked for files yet */
	struct files_bpf *files;
	int tasks_fd, files_fd;	     /* the programs */
	int *tasks_tgid, *files_tgid; /* their wg_tgid */
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

/* ---- refusals -------------------------------------------------------------------------------- */

uint64_t wg_observer_capabilities(void)
{
	char line[256];
	unsigned long long mask = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &mask) == 1)
			break;
	if (f)
		fclose(f);
	return mask;
}

static bool capable(void)
{
	uint64_t caps = wg_observer_capabilities();

	return caps >> WG_CAP_SYS_ADMIN & 1 || (caps >> WG_CAP_BPF & 1 && caps >> WG_CAP_PERFMON & 1);
}

const char *wg_observer_refusal(int rc)
{
	if (rc != -EPERM && rc != -EACCES)
		return "the kernel refused the BPF programs";
	return capable() ? "bpf() is refused although the capabilities are there (a container's seccomp profile, "
			   "a security module or the kernel's lockdown)" :
			   "loading a BPF program needs CAP_BPF and CAP_PERFMON, or root";
}

const char *wg_observer_remedy(int rc)
{
	if (rc == -ENOSYS)
		return "a kernel with CONFIG_DEBUG_INFO_BTF";
	if (rc == -EPERM || rc == -EACCES)
		return capable() ? "start waitgraphd on the host, or allow bpf() in the container's profile" :
				   "run as root, or start waitgraphd";
	return "a newer kernel, or start waitgraphd";
}

/* ---- load ----------------------------------------------------------------------------------- */

static bool load_tasks_light(struct wg_observer *o)
{
#ifdef WG_LIGHT_TASKS
	o->tasks_light = tasks_light__open();
	if (o->tasks_light && !tasks_light__load(o->tasks_light)) {
		o->tasks_fd = o->tasks_light->progs.wg_tasks.prog_fd;
		o->tasks_tgid = &o->tasks_light->bss->wg_tgid;
		return true;
	}
	tasks_light__destroy(o->tasks_light);
	o->tasks_light = NULL;
#else
	(void)o;
#endif
	return false;
}

static int load_tasks(struct wg_observer *o, int wakes_fd)
{
	int rc;

	/* The light one brings a map of its own: not for the daemon, whose tracepoints fill another. */
	if (wakes_fd < 0 && load_tasks_light(o))
		return 0;
	o->tasks = tasks_bpf__open();
	if (!o->tasks)
		return -errno;
	o->tasks->rodata->wg_watching = wakes_fd >= 0;
	rc = wakes_fd >= 0 ? bpf_map__reuse_fd(o->tasks->maps.wg_wakes, wakes_fd) :
			     bpf_map__set_autocreate(o->tasks->maps.wg_wakes, false);
	if (!rc)
		rc = tasks_bpf__load(o->tasks);
	if (rc)
		return rc;
	o->tasks_fd = bpf_program__fd(o->tasks->progs.wg_tasks);
	o->tasks_tgid = &o->tasks->bss->wg_tgid;
	return 0;
}

static bool load_files_light(struct wg_observer *o)
{
#ifdef WG_LIGHT_FILES
	o->files_light = files_light__open();
	if (o->files_light) {
		o->files_light->rodata->wg_page = (uint32_t)sysconf(_SC_PAGESIZE);
		if (!files_light__load(o->files_light)) {
			o->files_fd = o->files_light->progs.wg_files.prog_fd;
			o->files_tgid = &o->files_light->bss->wg_tgid;
			return true;
		}
	}
	files_light__destroy(o->files_light);
	o->files_light = NULL;
#else
	(void)o;
#endif
	return false;
}

static int load_files(struct wg_observer *o)
{
	int rc;

	if (o->files || o->files_light || load_files_light(o))
		return 0;
	o->files = files_bpf__open();
	if (!o->files)
		return -errno;
	o->files->rodata->wg_page = (uint32_t)sysconf(_SC_PAGESIZE);
	rc = files_bpf__load(o->files);
	if (rc) {
		files_bpf__destroy(o->files);
		o->files = NULL;
		return rc < 0 ? rc : -EPERM;
	}
	o->files_fd = bpf_program__fd(o->files->progs.wg_files);
	o->files_tgid = &o->files->bss->wg_tgid;
	return 0;
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
	rc = load_tasks(o, wakes_fd);
	if (rc) {
		*why = wg_observer_refusal(rc);
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
#ifdef WG_LIGHT_FILES
	files_light__destroy(o->files_light);
#endif
#ifdef WG_LIGHT_TASKS
	tasks_light__destroy(o->tasks_light);
#endif
	files_bpf__destroy(o->files);
	tasks_bpf__destroy(o->tasks);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

/* ---- ask ------------------------------------------------------------------------------------ */

/* One run of an iterator over the process; each() gets records of `size` bytes. */
static int walk(struct wg_observer *o, int prog, int *tgid, int32_t pid, size_t size,
		int (*each)(const void *record, void *arg), void *arg)
{
	union bpf_iter_link_info info;
	LIBBPF_OPTS(bpf_link_create_opts, opts);
	size_t have = 0, cap = 64 * size;
	int link = -1, fd = -1, rc = 0, found = 0;
	char *buf = NULL;
	ssize_t n;

	memset(&info, 0, sizeof(info));
	info.task.pid = (__u32)pid; /* all threads of this process */
	opts.iter_info = &info;
	opts.iter_info_len = sizeof(info);
	if (!o->unrestricted)
		link = bpf_link_create(prog, 0, BPF_TRACE_ITER, &opts);
	if (link < 0) {
		if (!o->unrestricted && link == -ESRCH)
			return -ESRCH;
		/* Before 6.1: walk all tasks, the program filters. Wrong pid inside a PID namespace. */
		link = bpf_link_create(prog, 0, BPF_TRACE_ITER, NULL);
		if (link < 0)
			return link;
		o->unrestricted = 1;
	}
	fd = bpf_iter_create(link);
	if (fd < 0) {
		rc = fd;
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
	close(link);
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

	return walk(o, o->tasks_fd, o->tasks_tgid, pid, sizeof(struct wg_obs_task), a_task, &c);
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
	int rc;

	pthread_mutex_lock(&o->lock);
	rc = load_files(o);
	pthread_mutex_unlock(&o->lock);
	if (rc)
		return rc;
	rc = walk(o, o->files_fd, o->files_tgid, pid, sizeof(struct wg_obs_file), a_file, &c);
	return rc == -ESRCH ? 0 : rc; /* none is open */
}
