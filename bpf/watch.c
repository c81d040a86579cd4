/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - loads and asks the programs that are always on. */
#include "watch.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trace.skel.h"
#include "watch.skel.h"

#define MOST_LINKS 8
#define NENDS (WG_OBS_USERS * WG_OBS_ENDS * 2)

struct wg_watch {
	struct watch_bpf *skel;
	struct trace_bpf *trace; /* NULL: not asked for */
	struct bpf_link *links[MOST_LINKS];
	int nlinks;
	struct bpf_link *waking, *switching; /* only while somebody is tracked */
	const struct wg_obs_proc *ends;
	size_t ends_size;
	uint8_t *ran; /* WG_OBS_RAN flags: see watch.bpf.c */
	pthread_mutex_t lock;
};

_Static_assert(sizeof(struct wg_obs_proc) % 8 == 0, "array values are padded to 8");

/* ---- what this kernel has ---------------------------------------------------------------- */

static int64_t percpu_offset(const struct btf *btf, const char *name)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_VAR);
	int sec = btf__find_by_name_kind(btf, ".data..percpu", BTF_KIND_DATASEC);
	const struct btf_type *t = sec > 0 ? btf__type_by_id(btf, (__u32)sec) : NULL;
	const struct btf_var_secinfo *v = t ? btf_var_secinfos(t) : NULL;

	for (int i = 0; v && id > 0 && i < btf_vlen(t); i++)
		if (v[i].type == (__u32)id)
			return v[i].offset;
	return -1;
}

/* From the run queue of a CPU to its preemption count; 0: not known. See watch.bpf.c. */
static int64_t preempt_distance(const struct btf *btf)
{
	int64_t rq = percpu_offset(btf, "runqueues"), at = percpu_offset(btf, "__preempt_count");

	if (at < 0) { /* 6.2 to 6.14: in a structure with other hot things */
		int id = btf__find_by_name_kind(btf, "pcpu_hot", BTF_KIND_STRUCT);
		const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;

		at = percpu_offset(btf, "pcpu_hot");
		if (at < 0 || !t)
			return 0;
		for (int depth = 0; depth < 3; depth++) { /* an anonymous union holds a structure */
			const struct btf_member *m = btf_members(t);
			const struct btf_type *inner = NULL;

			for (int i = 0; i < btf_vlen(t); i++) {
				const char *name = btf__name_by_offset(btf, m[i].name_off);

				if (name && !strcmp(name, "preempt_count"))
					return rq < 0 ? 0 : at + btf_member_bit_offset(t, (__u32)i) / 8 - rq;
				if (!inner && name && !*name && !btf_member_bit_offset(t, (__u32)i))
					inner = btf__type_by_id(btf, m[i].type);
			}
			if (!inner || !(btf_is_struct(inner) || btf_is_union(inner)))
				return 0;
			t = inner;
		}
		return 0;
	}
	return rq < 0 ? 0 : at - rq;
}

static bool has_tracepoint(const struct btf *btf, const char *name)
{
	char type[64];

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	return btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF) > 0;
}

/* Since 6.8 mark_victim hands out the task, before only its number. */
static bool oom_gives_task(const struct btf *btf)
{
	int id = btf__find_by_name_kind(btf, "btf_trace_mark_victim", BTF_KIND_TYPEDEF);
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;

	for (int i = 0; t && i < 4 && !btf_is_func_proto(t); i++)
		t = btf__type_by_id(btf, t->type);
	if (!t || !btf_is_func_proto(t) || btf_vlen(t) < 2)
		return false;
	t = btf__type_by_id(btf, btf_params(t)[1].type);
	return t && btf_is_ptr(t);
}

/* ---- load ---------------------------------------------------------------------------------- */

static int attach(struct wg_watch *w)
{
	struct bpf_program *p;

	bpf_object__for_each_program(p, w->skel->obj) {
		if (!bpf_program__autoload(p) || bpf_program__expected_attach_type(p) == BPF_TRACE_ITER ||
		    p == w->skel->progs.wg_waking || p == w->skel->progs.wg_switch)
			continue;
		if (w->nlinks == MOST_LINKS)
			return -E2BIG;
		w->links[w->nlinks] = bpf_program__attach_trace(p);
		if (!w->links[w->nlinks])
			return -errno;
		w->nlinks++;
	}
	return 0;
}

/*
 * The two that run at every switch and wake-up of the machine are there only while somebody is
 * tracked: an idle observer costs nobody anything. Under the lock.
 */
static int scheduler_on(struct wg_watch *w)
{
	if (!w->waking)
		w->waking = bpf_program__attach_trace(w->skel->progs.wg_waking);
	if (w->waking && !w->switching)
		w->switching = bpf_program__attach_trace(w->skel->progs.wg_switch);
	return w->waking && w->switching ? 0 : -errno;
}

static void scheduler_off(struct wg_watch *w)
{
	bpf_link__destroy(w->waking);
	bpf_link__destroy(w->switching);
	w->waking = w->switching = NULL;
}

void wg_watch_rest(struct wg_watch *w)
{
	pthread_mutex_lock(&w->lock);
	if (!w->skel->bss->wg_counts.threads)
		scheduler_off(w);
	pthread_mutex_unlock(&w->lock);
}

int wg_watch_open(struct wg_watch **out, const char **why)
{
	struct wg_watch *w = calloc(1, sizeof(*w));
	struct btf *btf;
	void *at;
	int rc = 0;

	*out = NULL;
	*why = NULL;
	if (!w)
		return -ENOMEM;
	pthread_mutex_init(&w->lock, NULL);
	btf = btf__load_vmlinux_btf();
	if (!btf) {
		*why = "no /sys/kernel/btf/vmlinux: this kernel carries no BTF";
		rc = -ENOSYS;
		goto out;
	}
	w->skel = watch_bpf__open();
	if (!w->skel) {
		rc = -errno;
		goto out;
	}
	w->skel->rodata->wg_preempt_distance = preempt_distance(btf);
	bpf_program__set_autoload(w->skel->progs.wg_oom,
				  has_tracepoint(btf, "mark_victim") && oom_gives_task(btf));
	bpf_program__set_autoload(w->skel->progs.wg_oom_by_pid,
				  has_tracepoint(btf, "mark_victim") && !oom_gives_task(btf));
	btf__free(btf);
	btf = NULL;
	rc = watch_bpf__load(w->skel);
	if (rc) {
		*why = rc == -EPERM || rc == -EACCES ?
			       wg_observer_refusal(rc) :
			       "the kernel refused the programs that watch (task storage needs 5.11)";
		goto out;
	}
	w->ends_size = (NENDS * sizeof(struct wg_obs_proc) + 4095) & ~(size_t)4095;
	at = mmap(NULL, w->ends_size, PROT_READ, MAP_SHARED, bpf_map__fd(w->skel->maps.wg_ends), 0);
	if (at == MAP_FAILED) {
		rc = -errno;
		*why = "the ring of ended processes cannot be mapped";
		goto out;
	}
	w->ends = at;
	at = mmap(NULL, WG_OBS_RAN, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(w->skel->maps.wg_ran), 0);
	if (at == MAP_FAILED) {
		rc = -errno;
		*why = "the flags of processes that ran cannot be mapped";
		goto out;
	}
	w->ran = at;
	rc = attach(w);
	if (!rc)
		rc = scheduler_on(w); /* to know at once whether it can */
	scheduler_off(w);
	if (rc)
		*why = "the kernel refused to attach to the scheduler's tracepoints";
out:
	btf__free(btf);
	if (rc) {
		wg_watch_close(w);
		return rc < 0 ? rc : -EPERM;
	}
	*out = w;
	return 0;
}

void wg_watch_close(struct wg_watch *w)
{
	if (!w)
		return;
	scheduler_off(w);
	for (int i = 0; i < w->nlinks; i++)
		bpf_link__destroy(w->links[i]);
	if (w->ends)
		munmap((void *)(uintptr_t)w->ends, w->ends_size);
	if (w->ran)
		munmap(w->ran, WG_OBS_RAN);
	trace_bpf__destroy(w->trace);
	watch_bpf__destroy(w->skel);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int wg_watch_wakes_fd(const struct wg_watch *w)
{
	return bpf_map__fd(w->skel->maps.wg_wakes);
}

/* ---- ask ------------------------------------------------------------------------------------ */

/*
 * Run an iterator program to its end, over the threads of pid (0: all) or the elements of a map;
 * what it emits goes to buf. Bytes or -errno.
 */
static ssize_t run_over(struct bpf_program *prog, int32_t pid, int map, void *buf, size_t room)
{
	union bpf_iter_link_info info;
	LIBBPF_OPTS(bpf_iter_attach_opts, opts);
	struct bpf_link *link;
	size_t have = 0;
	char rest[4096];
	ssize_t n, rc;
	int fd;

	memset(&info, 0, sizeof(info));
	if (map >= 0)
		info.map.map_fd = (__u32)map;
	else
		info.task.pid = (__u32)pid;
	opts.link_info = &info;
	opts.link_info_len = sizeof(info);
	link = bpf_program__attach_iter(prog, pid || map >= 0 ? &opts : NULL);
	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	rc = fd < 0 ? -errno : 0;
	while (fd >= 0) {
		n = read(fd, have < room ? (char *)buf + have : rest,
			 have < room ? room - have : sizeof(rest));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0) {
			rc = n < 0 ? -errno : 0;
			break;
		}
		if (have < room)
			have += (size_t)n;
	}
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return rc ? rc : (ssize_t)have;
}

static ssize_t run(struct bpf_program *prog, int32_t pid, void *buf, size_t room)
{
	return run_over(prog, pid, -1, buf, room);
}

int wg_watch_track(struct wg_watch *w, int32_t pid)
{
	struct wg_obs_proc p;
	ssize_t rc;

	pthread_mutex_lock(&w->lock);
	scheduler_on(w);
	rc = run(w->skel->progs.wg_track, pid, NULL, 0);
	/*
	 * A thread that was born while the iterator walked, of a parent not reached yet, has no
	 * storage: the second walk adds what the first has missed.
	 */
	if (rc >= 0)
		rc = run(w->skel->progs.wg_track, pid, NULL, 0);
	pthread_mutex_unlock(&w->lock);
	if (rc < 0)
		return (int)rc;
	return wg_watch_proc(w, pid, &p) ? -ENOSPC : 0;
}

int wg_watch_proc(struct wg_watch *w, int32_t pid, struct wg_obs_proc *out)
{
	return bpf_map_lookup_elem(bpf_map__fd(w->skel->maps.wg_procs), &pid, out) ? -ENOENT : 0;
}

int wg_watch_find(struct wg_watch *w, int32_t *pids, int most)
{
	ssize_t n;

	pthread_mutex_lock(&w->lock);
	n = run(w->skel->progs.wg_find, 0, pids, (size_t)most * sizeof(*pids));
	pthread_mutex_unlock(&w->lock);
	return n < 0 ? (int)n : (int)((size_t)n / sizeof(*pids));
}

int wg_watch_ends(struct wg_watch *w, int (*each)(const struct wg_obs_proc *p, void *arg), void *arg)
{
	for (size_t i = 0; i < NENDS; i++) {
		const struct wg_obs_proc *at = &w->ends[i];
		uint64_t seq = __atomic_load_n(&at->seq, __ATOMIC_ACQUIRE);
		struct wg_obs_proc copy;
		int rc;

		if (!seq)
			continue;
		memcpy(&copy, at, sizeof(copy));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&at->seq, __ATOMIC_RELAXED) != seq)
			continue; /* it is being overwritten: gone */
		rc = each(&copy, arg);
		if (rc)
			return rc;
	}
	return 0;
}

int wg_watch_due(struct wg_watch *w, int32_t *pids, int most)
{
	ssize_t n = run_over(w->skel->progs.wg_due, 0, bpf_map__fd(w->skel->maps.wg_procs), pids,
			     (size_t)most * sizeof(*pids));

	return n < 0 ? (int)n : (int)((size_t)n / sizeof(*pids));
}

int wg_watch_wrote(struct wg_watch *w, int32_t pid)
{
	/* Before the look: whoever runs from here on is looked at again. */
	__atomic_store_n(&w->ran[(uint32_t)pid % WG_OBS_RAN], 0, __ATOMIC_SEQ_CST);
	return (int)run(w->skel->progs.wg_wrote, pid, NULL, 0);
}

void wg_watch_counts(const struct wg_watch *w, struct wg_obs_counts *out)
{
	*out = w->skel->bss->wg_counts;
}

int wg_watch_trace(struct wg_watch *w, const char **why)
{
	int rc;

	*why = NULL;
	w->trace = trace_bpf__open();
	rc = w->trace ? bpf_map__reuse_fd(w->trace->maps.wg_wakes, wg_watch_wakes_fd(w)) : -errno;
	if (!rc)
		rc = trace_bpf__load(w->trace);
	if (!rc)
		rc = trace_bpf__attach(w->trace);
	if (!rc)
		return 0;
	*why = "the kernel refused the programs that trace system calls";
	trace_bpf__destroy(w->trace);
	w->trace = NULL;
	return rc < 0 ? rc : -EPERM;
}

int wg_watch_written(struct wg_watch *w, uint64_t dev, uint64_t ino, struct wg_obs_written *out)
{
	struct wg_obs_inode key = { dev, ino };

	if (!w->trace || bpf_map_lookup_elem(bpf_map__fd(w->trace->maps.wg_written), &key, out))
		return -ENOENT;
	return 0;
}

/* A process that was added while it ended: its exit had passed already. */
void wg_watch_sweep(struct wg_watch *w)
{
	int fd = bpf_map__fd(w->skel->maps.wg_procs), owners = bpf_map__fd(w->skel->maps.wg_owners);
	static int32_t gone[64];
	int32_t key, *from = NULL;
	struct wg_obs_proc p;
	int n = 0;

	for (int i = 0; i < WG_OBS_MAX_PROCS && n < 64 && !bpf_map_get_next_key(fd, from, &key); i++) {
		from = &key;
		if (kill(key, 0) && errno == ESRCH)
			gone[n++] = key;
	}
	for (int i = 0; i < n; i++) {
		int64_t count[2];

		if (bpf_map_lookup_elem(fd, &gone[i], &p) || bpf_map_delete_elem(fd, &gone[i]))
			continue;
		__atomic_fetch_sub(&w->skel->bss->wg_counts.procs, 1, __ATOMIC_RELAXED);
		if (!bpf_map_lookup_elem(owners, &p.uid, count) && count[0] > 0) {
			count[0]--;
			bpf_map_update_elem(owners, &p.uid, count, BPF_EXIST);
		}
	}
}
