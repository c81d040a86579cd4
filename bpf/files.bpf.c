// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * files.bpf.c - every open file of one process: what /proc does not say of it, above all whether
 * writing back to storage has failed since it was opened, and who else has a pipe open.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFREG 0100000
#define S_IFSOCK 0140000
#define SOCK_STREAM 1
#define IPPROTO_TCP 6
#define MOST_BUFFERS 256 /* of a pipe: 1 MiB, the most that a user may have */
#define ERRNO 0xfff /* of an errseq_t: the rest counts, and says whether anybody has seen it */

/* As in tasks.bpf.c. */
int wg_tgid = 0;

const volatile __u32 wg_page = 4096;

static __always_inline __u64 mtime_of(struct inode *inode)
{
	struct inode___before_6_11 *i = (void *)inode;
	struct inode___before_6_7 *j = (void *)inode;

	if (bpf_core_field_exists(inode->i_mtime_sec))
		return (__u64)BPF_CORE_READ(inode, i_mtime_sec) * 1000000000u +
		       BPF_CORE_READ(inode, i_mtime_nsec);
	if (bpf_core_field_exists(i->__i_mtime))
		return (__u64)BPF_CORE_READ(i, __i_mtime.tv_sec) * 1000000000u +
		       (__u64)BPF_CORE_READ(i, __i_mtime.tv_nsec);
	if (bpf_core_field_exists(j->i_mtime))
		return (__u64)BPF_CORE_READ(j, i_mtime.tv_sec) * 1000000000u +
		       (__u64)BPF_CORE_READ(j, i_mtime.tv_nsec);
	return 0;
}

/*
 * A write fills new buffers or goes on in the last one; a reader moves the beginning of a buffer
 * and leaves its end. So the number of the last buffer and its end are others after each write.
 */
static __always_inline void pipe_of(struct pipe_inode_info *p, struct wg_obs_file *r)
{
	__u32 head, tail, ring, fill = 0;
	struct pipe_buffer *bufs;

	r->pipe_readers = BPF_CORE_READ(p, readers);
	r->pipe_writers = BPF_CORE_READ(p, writers);
	if (!bpf_core_field_exists(p->head) || !bpf_core_field_exists(p->ring_size))
		return;
	head = BPF_CORE_READ(p, head);
	tail = BPF_CORE_READ(p, tail);
	ring = BPF_CORE_READ(p, ring_size);
	bufs = BPF_CORE_READ(p, bufs);
	if (!ring || ring & (ring - 1))
		return;
	for (__u32 i = 0; i < MOST_BUFFERS; i++) {
		struct pipe_buffer *at;

		if (i >= head - tail)
			break;
		at = (void *)bufs + (__u64)((tail + i) & (ring - 1)) * bpf_core_type_size(struct pipe_buffer);
		fill += BPF_CORE_READ(at, len);
	}
	if (head - tail <= MOST_BUFFERS) {
		r->pipe_fill = fill;
		r->pipe_size = BPF_CORE_READ(p, max_usage) * wg_page;
	}
	bufs = (void *)bufs + (__u64)((head - 1) & (ring - 1)) * bpf_core_type_size(struct pipe_buffer);
	r->mark[0] = head;
	/* One that was read to its end is given back: it counts no more. */
	r->mark[1] = head != tail ? BPF_CORE_READ(bufs, offset) + BPF_CORE_READ(bufs, len) : 0;
	r->mark_kind = WG_MARK_PIPE;
}

static __always_inline void socket_of(struct socket *s, struct wg_obs_file *r)
{
	struct sock *sk = BPF_CORE_READ(s, sk);

	if (!sk || BPF_CORE_READ(sk, sk_type) != SOCK_STREAM ||
	    BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return;
	r->mark[0] = BPF_CORE_READ((struct tcp_sock *)sk, write_seq);
	r->mark_kind = WG_MARK_TCP;
}

SEC("iter/task_file")
int wg_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *f = ctx->file;
	struct wg_obs_file r;
	struct inode *inode;
	__u32 now, then;

	if (!t || !f || (wg_tgid && t->tgid != wg_tgid))
		return 0;
	__builtin_memset(&r, 0, sizeof(r));
	r.size = sizeof(r);
	r.pid = t->tgid;
	r.fd = (__s32)ctx->fd;
	inode = f->f_inode;
	r.mode = BPF_CORE_READ(inode, i_mode);
	r.ino = BPF_CORE_READ(inode, i_ino);
	r.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	r.file_size = BPF_CORE_READ(inode, i_size);
	r.flags = f->f_flags;
	r.pos = f->f_pos;
	now = BPF_CORE_READ(f, f_mapping, wb_err);
	then = f->f_wb_err;
	if (now != then)
		r.write_error = now & ERRNO;
	r.cached_pages = BPF_CORE_READ(f, f_mapping, nrpages);
	r.generation = BPF_CORE_READ(inode, i_generation);
	r.mtime = mtime_of(inode);
	switch (r.mode & S_IFMT) {
	case S_IFIFO:
		pipe_of(f->private_data, &r);
		break;
	case S_IFSOCK:
		socket_of(f->private_data, &r);
		break;
	case S_IFREG:
		r.mark[0] = (__u64)r.file_size;
		r.mark[1] = r.mtime;
		r.mark_kind = WG_MARK_FILE;
		break;
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
