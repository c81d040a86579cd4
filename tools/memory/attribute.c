/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute.c - whom an allocation belongs to: the innermost frame that is neither the
 * driver's, nor the CUDA runtime's, nor ours. A runtime that is linked statically into a
 * library (cuBLAS, NCCL, PyTorch's wheels) counts as that library, which is what one wants.
 */
#include "analysis.h"

#include <stdio.h>
#include <string.h>

/* What only carries a call on: to say "libffi allocated it" helps nobody. */
static bool is_plumbing(const char *library)
{
	static const char *const names[] = {
		"libcuda.so",	   "libcudart.so", "libwaitgraph.so", "libnvidia-",
		"libcupti.so",	   "libstdc++.so", "libgcc_s.so",     "libc.so",
		"libpthread.so",   "ld-linux",	   "[vdso]",	      "libffi.so",
		"_ctypes.",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(library, names[i], strlen(names[i])))
			return true;
	return false;
}

int wgm_caller(const struct wgm_frame *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (f[i].library && !is_plumbing(f[i].library))
			return (int)i;
	return -1;
}

const char *wgm_frame_text(struct wg_arena *a, const struct wgm_frame *f)
{
	char where[300] = "";
	const char *file;

	if (f->file) {
		file = strrchr(f->file, '/');
		file = file ? file + 1 : f->file;
		if (f->line)
			snprintf(where, sizeof(where), " (%s:%u)", file, f->line);
		else
			snprintf(where, sizeof(where), " (%s)", file);
	}
	if (f->symbol)
		return wg_fmt(a, "%s%s", f->symbol, where);
	if (f->library)
		return wg_fmt(a, "%s+0x%llx", f->library, (unsigned long long)f->offset);
	return wg_fmt(a, "0x%llx", (unsigned long long)f->pc);
}

/* Every address is looked up once a trace: stacks share most of their frames. */
struct known {
	struct known *next;
	uint64_t key;
	struct wgm_frame frame;
};
#define KNOWN 4096
struct known_table {
	struct known *slot[KNOWN];
};

static const struct wgm_frame *frame_of(struct wgm_trace *t, uint64_t pc, bool is_return)
{
	uint64_t key = pc << 1 | is_return;
	struct known **at, *k;

	if (!t->frames)
		t->frames = wg_alloc(t->arena, sizeof(*t->frames));
	at = &t->frames->slot[(key * 0x9e3779b97f4a7c15ull) >> 52];
	for (k = *at; k; k = k->next)
		if (k->key == key)
			return &k->frame;
	k = wg_alloc(t->arena, sizeof(*k));
	k->key = key;
	k->next = *at;
	*at = k;
	wgm_symbolise(t, pc, is_return, &k->frame);
	return &k->frame;
}

const struct wgm_frame *wgm_frames(struct wgm_trace *t, const struct wgm_stack *s, size_t *n)
{
	struct wgm_frame *f = wg_alloc(t->arena, (s->n + 1) * sizeof(*f));

	/* The innermost is where the wrapper returns to: all of them are return addresses. */
	for (uint32_t i = 0; i < s->n; i++)
		f[i] = *frame_of(t, s->frames[i], true);
	*n = s->n;
	return f;
}

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "loss (train.py:12) < step (train.py:40)": two frames, helpers are called from everywhere. */
static const char *with_python(struct wgm_trace *t, const struct wgm_site *s,
			       const struct wgm_python *p)
{
	const char *text = wg_fmt(t->arena, "%s (%s:%u)", p->v[0].function, base(p->v[0].file),
				  p->v[0].line);

	if (p->n > 1)
		text = wg_fmt(t->arena, "%s < %s (%s:%u)", text, p->v[1].function,
			      base(p->v[1].file), p->v[1].line);
	/* The interpreter's own frames say nothing; a library's come first. */
	if (s->library && strstr(s->library, "python"))
		return wg_fmt(t->arena, "first %s", text);
	return wg_fmt(t->arena, "%s, first from %s", s->text, text);
}

void wgm_attribute(struct wgm_analysis *a, struct wgm_site *s)
{
	struct wgm_trace *t = a->t;
	int i;

	if (s->text)
		return;
	if (s->raw->stack < t->nstacks && t->stacks[s->raw->stack].n)
		s->frames = wgm_frames(t, &t->stacks[s->raw->stack], &s->nframes);
	i = wgm_caller(s->frames, s->nframes);
	if (i < 0 && s->nframes)
		i = 0;
	if (i >= 0) {
		s->library = s->frames[i].library;
		s->text = wgm_frame_text(t->arena, &s->frames[i]);
	} else {
		s->text = wg_fmt(t->arena, "(no stack) %s", wgm_function(t, s->raw->fn));
	}
	if (s->id < t->npython && t->python[s->id].n)
		s->text = with_python(t, s, &t->python[s->id]);
}
