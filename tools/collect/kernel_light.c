/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_light.c - see kernel_light.h. */
#ifdef WG_HAVE_LIGHT
#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel_light.h"
#include "tasks.light.h"

#ifndef WG_NO_LIGHT

struct wg_light {
	struct tasks_light *skel;
};

int wg_light_open(struct wg_light **out)
{
	struct wg_light *l;
	int rc;

	*out = NULL;
	/* The kernel's type information: a kernel without it says so by the way that explains. */
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return -ENOSYS;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->skel = tasks_light__open();
	rc = l->skel ? tasks_light__load(l->skel) : -ENOMEM;
	if (rc < 0) {
		wg_light_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

void wg_light_close(struct wg_light *l)
{
	if (!l)
		return;
	tasks_light__destroy(l->skel);
	free(l);
}

int wg_light_tasks(struct wg_light *l, int32_t pid,
		   int (*each)(const struct wg_obs_task *t, void *arg), void *arg)
{
	enum { RECORD = sizeof(struct wg_obs_task) };
	union bpf_iter_link_info info;
	LIBBPF_OPTS(bpf_link_create_opts, opts);
	int link, fd = -1, rc = 0, found = 0;
	size_t have = 0, cap = 64 * RECORD, at;
	char *buf = NULL;
	ssize_t n;

	memset(&info, 0, sizeof(info));
	info.task.pid = (__u32)pid; /* all threads of this process */
	opts.iter_info = &info;
	opts.iter_info_len = sizeof(info);
	link = bpf_link_create(l->skel->progs.wg_tasks.prog_fd, 0, BPF_TRACE_ITER, &opts);
	if (link < 0)
		return link == -ESRCH ? -ESRCH : -EOPNOTSUPP;
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
	while (!rc) {
		n = read(fd, buf + have, cap - have);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0) {
			rc = n ? -errno : 0;
			break;
		}
		have += (size_t)n;
		for (at = 0; !rc && have - at >= RECORD; at += RECORD) {
			struct wg_obs_task t;

			memcpy(&t, buf + at, sizeof(t));
			found = 1;
			rc = each(&t, arg);
		}
		have -= at;
		memmove(buf, buf + at, have);
	}
	if (!rc && !found)
		rc = -ESRCH;
out:
	free(buf);
	if (fd >= 0)
		close(fd);
	close(link);
	return rc;
}

#else /* bpftool could not make one of this object */

int wg_light_open(struct wg_light **out)
{
	*out = NULL;
	return -ENOSYS;
}

void wg_light_close(struct wg_light *l)
{
	(void)l;
}

int wg_light_tasks(struct wg_light *l, int32_t pid,
		   int (*each)(const struct wg_obs_task *t, void *arg), void *arg)
{
	(void)l;
	(void)pid;
	(void)each;
	(void)arg;
	return -EOPNOTSUPP;
}

#endif
#else
typedef int wg_no_light; /* built without the observer */
#endif
