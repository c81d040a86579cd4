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
#define ERRNO 0xfff /* of an errseq_t: the rest counts, and says whether anybody has seen it */

/* As in tasks.bpf.c. */
int wg_tgid = 0;

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
	if ((r.mode & S_IFMT) == S_IFIFO) {
		struct pipe_inode_info *p = f->private_data;

		r.pipe_readers = BPF_CORE_READ(p, readers);
		r.pipe_writers = BPF_CORE_READ(p, writers);
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
