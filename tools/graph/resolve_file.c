/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_file.c - file locks, storage that does not answer, the GPU's kernel driver.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>

/* ---- file locks -------------------------------------------------------------- */

/* Edges from a node for the lock on this file to its holders. False: none is known. */
static bool lock_holders(struct wg_ctx *c, uint32_t node, const struct wg_file *x, bool flock)
{
	struct wg_b *b = c->b;
	uint32_t k = wg_map_get(&b->flocks, x->dev, x->ino, 0);
	bool any = false;

	for (; k && k != WG_NONE; k = b->flock_next[k - 1]) {
		const struct wg_file_lock *l = &b->f->locks.v[k - 1];
		struct wg_iedge *e;
		int32_t i;

		if (l->blocked || (l->kind == 'f') != flock || l->kind == 'l')
			continue;
		if (l->pid == c->p->pid && l->kind == 'p')
			continue; /* a process never waits for its own POSIX lock */
		any = true;
		i = wg_pid_proc(b, b->pi[c->proc].host, l->pid);
		if (i >= 0 && !b->pi[i].dead) {
			e = wg_edge(b, node, wg_process_actor(b, i), WG_EDGE_HELD_BY, true,
				    wg_say(b, "the kernel's lock table names pid %d", l->pid));
			e->idle_cls = CL_FILE_LOCK;
			e->since = c->t->wait.since_s;
			continue;
		}
		if (b->n.v[node].has_end)
			continue;
		if (l->pid > 0)
			wg_set_end(b, node, CL_FILE_LOCK, FATE_STUCK, WG_LIKELY,
				   l->holder_alive_known && !l->holder_alive
					   ? wg_say(b,
						    "pid %d, which took the lock, has ended, and a "
						    "descriptor of it lives on somewhere",
						    l->pid)
					   : wg_say(b, "pid %d holds the lock", l->pid));
		else
			wg_set_end(b, node, CL_FILE_LOCK, FATE_STUCK, WG_LIKELY,
				   "its holder is not visible from here");
		b->n.v[node].end.pid = l->pid > 0 ? l->pid : WG_NO_INT;
		b->n.v[node].end.who = l->pid > 0 ? wg_say(b, "holder of the file lock") : NULL;
	}
	return any;
}

static uint32_t file_lock_node(struct wg_ctx *c, const struct wg_file *x, bool *fresh)
{
	struct wg_b *b = c->b;
	uint32_t ix = wg_node(b, IT_FILE_LOCK, x->ino ^ x->dev << 40, (uint64_t)c->proc, fresh);
	struct wg_inode *n = &b->n.v[ix];

	if (*fresh) {
		n->proc = c->proc;
		n->obj = x;
		n->label = wg_say(b, "lock on %s", x->path ? x->path : "a file");
		n->id = wg_say(b, "fl:%d:%llu", c->p->pid, (unsigned long long)x->ino);
	}
	b->n.v[c->node].wobject = n->label;
	return ix;
}

/*
 * The table was read at another moment than the thread was looked at. Where it names the waiter
 * as the holder and has no line of its waiting, the lock was given to it in between, and it has
 * not come to run yet: no wait for itself. Who really waits for his own lock has both lines.
 */
static bool just_given(const struct wg_ctx *c, const struct wg_file *x, bool flock)
{
	const struct wg_b *b = c->b;
	uint32_t k = wg_map_get(&b->flocks, x->dev, x->ino, 0);
	bool has = false;

	for (; k && k != WG_NONE; k = b->flock_next[k - 1]) {
		const struct wg_file_lock *l = &b->f->locks.v[k - 1];

		if (l->pid != c->p->pid || (l->kind == 'f') != flock || l->kind == 'l')
			continue;
		if (l->blocked)
			return false;
		has = true;
	}
	return has && b->f->lock_scan_complete;
}

void wg_resolve_file_lock(struct wg_ctx *c)
{
	struct wg_b *b = c->b;
	const struct wg_file *x = wg_fd(b, c->proc, c->t->wait.fd);
	bool flock = c->t->wait.op == WG_OP_FLOCK, fresh;
	struct wg_iedge *e;
	uint32_t node;

	if (!x) {
		wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "it waits for a file lock, and which file could not be read");
		b->n.v[c->node].end.missing = "the file behind the descriptor of this call";
		return;
	}
	if (wg_still(b, c->p, c->t) == STILL_NO) {
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN,
			   "the lock changed hands between the two looks");
		return;
	}
	if (just_given(c, x, flock)) {
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_LIKELY,
			   "the lock table shows that it has just been given the lock");
		return;
	}
	node = file_lock_node(c, x, &fresh);
	e = wg_edge(b, c->node, node, WG_EDGE_WAITS_FOR, true, "descriptor of the call");
	e->since = c->t->wait.since_s;
	if (!fresh)
		return;
	if (lock_holders(c, node, x, flock))
		return;
	if (x->remote_fs || (x->fs_type && !strncmp(x->fs_type, "nfs", 3))) {
		wg_set_end(
			b, node, CL_FILE_LOCK, FATE_STUCK, WG_LIKELY,
			"no process of this host holds it: another host of this file system does");
		return;
	}
	wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS, "its holder was not found");
	b->n.v[node].end.missing = b->f->lock_scan_complete ? "the holder of the file lock"
							    : "the host's table of file locks";
}

/* ---- storage ------------------------------------------------------------------- */

static const char *const storage_calls[] = {
	"io_schedule",
	"request_wait_answer",
	"fuse_",
	"__fuse",
	"nfs",
	"rpc_",
	"__rpc",
	"folio_wait",
	"__folio",
	"wait_on_page",
	"wait_on_buffer",
	"__wait_on_buffer",
	"out_of_line_wait",
	"jbd2",
	"ext4",
	"xfs",
	"btrfs",
	"f2fs",
	"balance_dirty_pages",
	"io_schedule_timeout",
	"wb_",
	"writeback",
	"sync_inodes",
	"blk_",
	"submit_bio",
	"bio_",
	"bdev_",
	"blkdev",
	"dm_",
	"md_",
	"cifs",
	"smb2",
	"ceph",
	"cl_",
	"ll_",
	"ptlrpc",
	"ldlm",
	"p9_",
	"v9fs",
	"overlay",
	"ovl_",
	"wait_current_trans",
	"rwsem_down",
	"down_read",
	"down_write",
	"do_truncate",
	"vfs_fsync",
	"filemap",
	"__filemap",
	"d_alloc_parallel",
	"lookup_slow",
	"inode_wait",
	"gfs2",
	"ocfs2",
	"beegfs",
	"gpfs",
	"mmfs",
	"nvme",
	"scsi",
	"loop_",
	"wait_for_completion_io",
	"percpu_rwsem",
	"__sb_start_write",
	"get_request",
	"rq_qos",
	"wbt_",
	"iocg",
	"throtl",
};

static bool in_storage(const struct wg_thread *t)
{
	for (size_t i = 0; i < sizeof(storage_calls) / sizeof(storage_calls[0]); i++)
		if (wg_kernel_has(t, storage_calls[i]))
			return true;
	return false;
}

/* Does the call change the file, or ask it? */
static bool changes(const struct wg_thread *t)
{
	static const char *const asks[] = {"stat",
					   "lstat",
					   "fstat",
					   "newfstatat",
					   "statx",
					   "access",
					   "faccessat",
					   "faccessat2",
					   "readlink",
					   "readlinkat",
					   "getdents",
					   "getdents64",
					   "statfs",
					   "fstatfs",
					   "getxattr",
					   "lgetxattr",
					   "fgetxattr",
					   "listxattr",
					   "chdir",
					   "execve",
					   "name_to_handle_at",
					   "inotify_add_watch"};
	const struct wg_wait *w = &t->wait;

	switch (w->op) {
	case WG_OP_READ:
	case WG_OP_FAULT:
		return false;
	case WG_OP_WRITE:
	case WG_OP_SYNC:
	case WG_OP_SPLICE:
		return true;
	case WG_OP_OPEN:
		if (w->has_args && w->syscall_name) {
			uint64_t flags;

			if (!strcmp(w->syscall_name, "creat"))
				return true;
			flags = !strcmp(w->syscall_name, "open") ? w->args[1] : w->args[2];
			return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
		}
		return false;
	default:
		for (size_t i = 0; w->syscall_name && i < sizeof(asks) / sizeof(asks[0]); i++)
			if (!strcmp(w->syscall_name, asks[i]))
				return false;
		return true;
	}
}

static const struct wg_file *served_by(const struct wg_ctx *c, const char *path)
{
	const struct wg_file *best = NULL;
	size_t len = 0;

	for (size_t i = 0; path && i < c->p->files.n; i++) {
		const struct wg_file *x = &c->p->files.v[i];
		size_t n = x->fs_mount ? strlen(x->fs_mount) : 0;

		if (n > len && !strncmp(x->fs_mount, path, n)) {
			best = x;
			len = n;
		}
	}
	return best;
}

/*
 * Awake now and then, and not a byte moved by any thread of the process: that is how a throttled
 * writer looks, and no work that goes on.
 */
static bool moves_nothing(const struct wg_ctx *c)
{
	const struct wg_process *p = c->p;

	if (c->t->wait.op == WG_OP_WRITE)
		return wg_has_int(p->wchar_delta) && p->wchar_delta == 0 &&
		       wg_has_int(p->write_bytes_delta) && p->write_bytes_delta == 0;
	return c->t->wait.op == WG_OP_READ && wg_has_int(p->rchar_delta) && p->rchar_delta == 0 &&
	       wg_has_int(p->read_bytes_delta) && p->read_bytes_delta == 0;
}

bool wg_resolve_storage(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_thread *t = c->t;
	struct wg_b *b = c->b;
	const struct wg_file *x = wg_fd(b, c->proc, w->fd);
	const char *path = w->path ? w->path : x ? x->path : NULL;
	bool regular =
		x ? x->kind == WG_FILE_REG || x->kind == WG_FILE_DIR || x->kind == WG_FILE_BLOCK
		  : w->op == WG_OP_FSMETA || w->op == WG_OP_SYNC || w->op == WG_OP_FAULT;
	bool deep = in_storage(t), write = changes(t), fresh;
	enum wg_class cls = write ? CL_WRITE_BLOCKED : CL_READ_BLOCKED;
	const char *how, *fs, *mount;
	struct wg_iedge *e;
	uint32_t node;
	int32_t daemon = 0, i;

	if (wg_kernel_has(t, "mem_cgroup_") && wg_resolve_limits(c))
		return true;
	/* A pipe or socket has its own resolver, whatever the state letter says. */
	if (x && !regular)
		return false;
	if (!(deep && (t->state == 'D' || regular || w->op == WG_OP_OPEN)) &&
	    !(regular && (t->state == 'D' || t->state == 'S')) &&
	    !(t->state == 'D' &&
	      (w->op == WG_OP_OPEN || w->op == WG_OP_UNKNOWN || w->op == WG_OP_FAULT)))
		return false;
	if (t->state == 'D' && w->op == WG_OP_UNKNOWN && !deep)
		return false;
	c->b->n.v[c->node].wobject = path;
	if (wg_still(b, c->p, t) == STILL_NO && !moves_nothing(c)) {
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN,
			   write ? "its writes go on" : "its reads go on");
		return true;
	}
	node = wg_node(b, IT_FILE, x && x->ino ? x->ino : (uint64_t)(uintptr_t)path,
		       (uint64_t)c->proc << 2 | 2 | write, &fresh);
	if (fresh) {
		b->n.v[node].proc = c->proc;
		b->n.v[node].label = path ? path : "a file";
		b->n.v[node].id = wg_say(b, "f:%d:%u", c->p->pid, node);
		b->n.v[node].obj = x;
	}
	e = wg_edge(b, c->node, node, WG_EDGE_WAITS_FOR, true,
		    deep ? "kernel stack" : "state and descriptor of the call");
	e->since = w->since_s;
	if (!fresh)
		return true;
	if (!x)
		x = served_by(c, path);
	daemon = w->fs_daemon_pid ? w->fs_daemon_pid : x ? x->fs_daemon_pid : 0;
	fs = w->fs_type ? w->fs_type : x ? x->fs_type : NULL;
	if (wg_kernel_has(t, "balance_dirty_pages"))
		how = "the kernel throttles its writes: too many dirty pages wait for this device";
	else if (fs)
		how = wg_say(b, "the %s file system%s%s does not finish the %s", fs,
			     x && x->fs_source ? " from " : "",
			     x && x->fs_source ? x->fs_source : "", write ? "write" : "read");
	else
		how = write ? "storage does not finish the write"
			    : "storage does not finish the read";
	if (wg_has_sec(w->since_s) && w->since_s < WG_PATIENCE) {
		wg_set_end(b, node, cls, FATE_PENDING, WG_LIKELY, how);
		b->n.v[node].end.missing =
			wg_say(b, "whether this is more than a pause: it is known to last for %s",
			       wg_secs(b, w->since_s));
		return true;
	}
	wg_set_end(b, node, cls, FATE_STUCK, deep || t->state == 'D' ? WG_CERTAIN : WG_LIKELY, how);
	if (w->fs_daemon_gone && !daemon) {
		wg_set_end(b, node, CL_PEER_DEAD, FATE_STUCK, WG_LIKELY,
			   "the process that served its file system has ended; those that still "
			   "hold the "
			   "connection never read a request");
		b->n.v[node].end.gone = true;
		b->n.v[node].end.who = "daemon of the file system, which has ended";
		return true;
	}
	if (!daemon)
		return true;
	i = wg_pid_proc(b, b->pi[c->proc].host, daemon);
	if (i >= 0) {
		const struct wg_process *d = b->pi[i].p;
		bool stopped = d->threads.n || d->state == 'T' || d->state == 't', sure = false;
		uint32_t server;

		for (size_t k = 0; k < d->threads.n; k++)
			stopped &= d->threads.v[k].state == 'T' || d->threads.v[k].state == 't';
		if (b->pi[i].dead || stopped || d->cgroup.frozen) {
			e = wg_edge(b, node, wg_process_actor(b, i), WG_EDGE_HELD_BY, true,
				    "daemon of the file system");
			e->since = w->since_s;
			return true;
		}
		server = wg_fuse_server(c, i, &sure);
		if (server != WG_NONE) {
			b->n.v[node].has_end = false; /* what that thread does says more */
			e = wg_edge(b, node, server, WG_EDGE_HELD_BY, sure,
				    "thread of the file system's daemon that serves it");
			e->since = w->since_s;
			e->idle_cls = cls;
			return true;
		}
	}
	b->n.v[node].end.pid = daemon;
	mount = w->fs_mount ? w->fs_mount : x ? x->fs_mount : NULL;
	b->n.v[node].end.who = wg_say(b, "daemon that serves the file system%s%s",
				      mount ? " at " : "", mount ? mount : "");
	if (i < 0 || !b->pi[i].p->threads.n) { /* it may compute, or wait for somebody itself */
		b->n.v[node].end.certainty = WG_LIKELY;
		b->n.v[node].end.text = wg_say(b,
					       "the daemon of its file system, pid %d, has not "
					       "answered; what it does could not be read",
					       daemon);
		return true;
	}
	b->n.v[node].end.text = wg_say(
		b, "the daemon of its file system, pid %d, lives and does not answer", daemon);
	return true;
}

/* ---- the GPU's kernel driver ------------------------------------------------------ */

static bool in_driver(const struct wg_thread *t)
{
	static const char *const calls[] = {"nvidia_",	"nv_",	       "_nv0",	   "uvm_",
					    "nvidia-",	"os_acquire_", "rm_ioctl", "nvkms",
					    "nvswitch", "_nv"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (wg_kernel_has(t, calls[i]))
			return true;
	for (size_t i = 0; i < t->kernel_stack.n; i++)
		if (t->kernel_stack.v[i] && strstr(t->kernel_stack.v[i], "[nvidia"))
			return true;
	return false;
}

bool wg_resolve_driver(struct wg_ctx *c)
{
	const struct wg_thread *t = c->t;
	struct wg_b *b = c->b;
	const struct wg_file *x = wg_fd(b, c->proc, t->wait.fd);
	bool device = x && x->path && !strncmp(x->path, "/dev/nvidia", 11);
	bool inside = (t->state == 'D' || t->wait.op == WG_OP_IOCTL) && in_driver(t);
	bool sync = t->calls.n && t->calls.v[t->calls.n - 1].kind == WG_CALL_SYNC;
	const struct wg_call *call = t->calls.n ? &t->calls.v[0] : NULL;
	const char *xid = NULL;
	struct wg_inode *n;

	if (t->state != 'D' && t->wait.op != WG_OP_IOCTL)
		return false;
	/* A blocking synchronisation sleeps in the driver by design: only D is not by design. */
	if (t->state == 'D') {
		if (!inside && !(device && t->wait.op == WG_OP_IOCTL))
			return false;
	} else {
		if (sync || t->wait.op != WG_OP_IOCTL || !(inside || device) ||
		    !(wg_has_sec(t->wait.since_s) && t->wait.since_s >= 5) ||
		    b->n.v[c->node].bystander)
			return false;
	}
	if (wg_still(b, c->p, t) == STILL_NO)
		return false;
	for (size_t i = 0; i < b->f->kmsg.n; i++)
		if (b->f->kmsg.v[i] && strstr(b->f->kmsg.v[i], "Xid"))
			xid = b->f->kmsg.v[i];
	n = &b->n.v[c->node];
	if (call) {
		n->wkind = "cuda";
		n->wcall = call->function;
	}
	n->wdoes = "is inside the GPU's kernel driver";
	n->wobject = device ? x->path : NULL;
	wg_set_end(b, c->node, CL_DRIVER_BLOCKED,
		   wg_has_sec(t->wait.since_s) && t->wait.since_s < WG_PATIENCE ? FATE_PENDING
										: FATE_STUCK,
		   t->state == 'D' && inside ? WG_CERTAIN : WG_LIKELY,
		   wg_say(b,
			  "its call%s%s is inside the GPU's kernel driver and does not return%s%s",
			  call && call->function ? " " : "",
			  call && call->function ? call->function : "",
			  xid ? "; the kernel log says: " : "", xid ? xid : ""));
	return true;
}
