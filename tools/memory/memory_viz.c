/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_viz.c - PyTorch's memory snapshot as a pickle: the dictionary that
 * torch.cuda.memory._snapshot() returns and pytorch.org/memory_viz draws. Here it holds every
 * library's allocations, not only PyTorch's: each is a segment with one block.
 *
 * Protocol 2, and only the opcodes that the viewer's own small reader knows; lists are
 * filled in portions, because it spreads each portion over a JavaScript call's arguments.
 */
#include "export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PORTION 1000

struct pickle {
	FILE *out;
	uint32_t memos;
};

static void op(struct pickle *p, int c)
{
	fputc(c, p->out);
}

static void little(struct pickle *p, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		fputc((int)(v >> (8 * i) & 0xff), p->out);
}

static void integer(struct pickle *p, uint64_t v)
{
	if (v < 256) {
		op(p, 'K');
		little(p, v, 1);
	} else if (v <= INT32_MAX) {
		op(p, 'J');
		little(p, v, 4);
	} else {
		int n = 1;

		while (n < 8 && v >> (8 * n - 1))
			n++;
		op(p, 0x8a); /* LONG1: two's complement, so the top bit stays clear */
		op(p, v >> 63 ? 9 : n);
		little(p, v, v >> 63 ? 8 : n);
		if (v >> 63)
			op(p, 0);
	}
}

static void string(struct pickle *p, const char *s)
{
	size_t n = strlen(s);

	op(p, 'X');
	little(p, n, 4);
	fwrite(s, 1, n, p->out);
}

static void key_integer(struct pickle *p, const char *key, uint64_t v)
{
	string(p, key);
	integer(p, v);
}

static void key_string(struct pickle *p, const char *key, const char *v)
{
	string(p, key);
	string(p, v);
}

static void begin_dict(struct pickle *p)
{
	op(p, '}');
	op(p, '(');
}

static void end_dict(struct pickle *p)
{
	op(p, 'u');
}

struct list {
	unsigned int n;
};

static void begin_list(struct pickle *p, struct list *l)
{
	op(p, ']');
	op(p, '(');
	l->n = 0;
}

static void next_item(struct pickle *p, struct list *l)
{
	if (++l->n == PORTION) {
		op(p, 'e');
		op(p, '(');
		l->n = 0;
	}
}

static void end_list(struct pickle *p, struct list *l)
{
	(void)l;
	op(p, 'e');
}

struct viz {
	struct pickle p;
	struct wgm_analysis *a;
	int device; /* whose trace is being written */
	struct list events;
	uint32_t *memo; /* + 1, by site: its frames have been written and can be referred to */
};

static void frame(struct pickle *p, const char *file, uint32_t line, const char *name)
{
	begin_dict(p);
	key_string(p, "filename", file);
	key_integer(p, "line", line);
	key_string(p, "name", name);
	end_dict(p);
}

static void native(struct viz *v, const struct wgm_frame *f)
{
	frame(&v->p, f->file ? f->file : f->library ? f->library : "??", f->line,
	      f->symbol ? f->symbol : wgm_frame_text(v->a->t->arena, f));
}

static void frames(struct viz *v, const struct wgm_site *s)
{
	struct list l;

	string(&v->p, "frames");
	if (s && v->memo[s->id]) {
		op(&v->p, 'j');
		little(&v->p, v->memo[s->id] - 1, 4);
		return;
	}
	begin_list(&v->p, &l);
	if (s) {
		wgm_attribute(v->a, (struct wgm_site *)s);
		for (size_t i = 0; i < s->nframes; i++) {
			native(v, &s->frames[i]);
			next_item(&v->p, &l);
		}
	}
	end_list(&v->p, &l);
	if (s) {
		op(&v->p, 'r');
		little(&v->p, v->p.memos, 4);
		v->memo[s->id] = ++v->p.memos;
	}
}

static void event(struct viz *v, const char *action, uint64_t addr, uint64_t size,
		  const struct wgm_site *s, uint64_t at)
{
	begin_dict(&v->p);
	key_string(&v->p, "action", action);
	key_integer(&v->p, "addr", addr);
	key_integer(&v->p, "size", size);
	key_integer(&v->p, "stream", 0);
	key_integer(&v->p, "time_us", (uint64_t)(wgm_real(v->a->t, at) * 1e6));
	frames(v, s);
	end_dict(&v->p);
	next_item(&v->p, &v->events);
}

static bool drawn(uint32_t kind)
{
	return kind == WG_MEM_DEVICE || kind == WG_MEM_VMM || kind == WG_MEM_ASYNC ||
	       kind == WG_MEM_MANAGED;
}

static void on_block(void *arg, const struct wgm_block *b)
{
	struct viz *v = arg;

	/* What was alive before the detail begins is in the segments, or shows when it is freed. */
	if (b->device != v->device || !drawn(b->kind) || b->from_before)
		return;
	if (b->is_free) {
		event(v, "free_requested", b->addr, b->size, b->site, b->at);
		event(v, "free_completed", b->addr, b->size, b->site, b->at);
		event(v, "segment_free", b->addr, b->size, b->site, b->at);
	} else {
		event(v, "segment_alloc", b->addr, b->size, b->site, b->at);
		event(v, "alloc", b->addr, b->size, b->site, b->at);
	}
}

static void oom(struct viz *v, const struct wgm_failure *f)
{
	struct list l;
	size_t n;
	const struct wgm_frame *fr = wgm_frames(v->a->t, &f->stack, &n);

	begin_dict(&v->p);
	key_string(&v->p, "action", "oom");
	key_integer(&v->p, "addr", 0);
	key_integer(&v->p, "size", f->asked);
	key_integer(&v->p, "device_free", f->free == WGM_NONE ? 0 : f->free);
	key_integer(&v->p, "stream", 0);
	key_integer(&v->p, "time_us", (uint64_t)(wgm_real(v->a->t, f->at) * 1e6));
	string(&v->p, "frames");
	begin_list(&v->p, &l);
	for (uint32_t i = 0; i < f->npy; i++) {
		frame(&v->p, f->py[i].file, f->py[i].line, f->py[i].function);
		next_item(&v->p, &l);
	}
	for (size_t i = 0; i < n; i++) {
		native(v, &fr[i]);
		next_item(&v->p, &l);
	}
	end_list(&v->p, &l);
	end_dict(&v->p);
	next_item(&v->p, &v->events);
}

static void on_event(void *arg, const struct wgm_event *e, double at_s)
{
	struct viz *v = arg;

	(void)at_s;
	if (e->tag != WGTR_E_FAILURE || (int)(e->v[1] & 63) - 1 != v->device)
		return;
	for (size_t i = 0; i < v->a->t->failures.n; i++)
		if (v->a->t->failures.v[i].number == e->v[0] && e->v[0])
			oom(v, &v->a->t->failures.v[i]);
}

static void segment(struct viz *v, const struct wgtr_live *l, const struct wgm_site *s, int device)
{
	struct list blocks;

	begin_dict(&v->p);
	key_integer(&v->p, "device", (uint64_t)device);
	key_integer(&v->p, "address", l->addr);
	key_integer(&v->p, "total_size", l->size);
	key_integer(&v->p, "allocated_size", l->size);
	key_integer(&v->p, "active_size", l->size);
	key_integer(&v->p, "requested_size", l->size);
	key_integer(&v->p, "stream", 0);
	key_string(&v->p, "segment_type", "large");
	frames(v, s);
	string(&v->p, "blocks");
	begin_list(&v->p, &blocks);
	begin_dict(&v->p);
	key_integer(&v->p, "address", l->addr);
	key_integer(&v->p, "size", l->size);
	key_integer(&v->p, "requested_size", l->size);
	key_string(&v->p, "state", "active_allocated");
	frames(v, s);
	end_dict(&v->p);
	next_item(&v->p, &blocks);
	end_list(&v->p, &blocks);
	end_dict(&v->p);
}

/* The viewer shows one process: of several traces the first. */
int wgm_write_memory_viz(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end)
{
	struct wgm_analysis *a = all[0];
	struct wgm_trace *t = a->t;
	struct viz v = { .p = { .out = out }, .a = a };
	struct wgm_watch w = { &v, on_block, on_event };
	struct list segments, traces;
	int last = 0, err = 0;

	(void)path;
	(void)end;
	if (n > 1)
		fprintf(stderr, "waitgraph export: memory-viz holds one process: %s\n", t->path);
	v.memo = calloc(a->nsites + 1, sizeof(*v.memo));
	if (!v.memo)
		abort();
	op(&v.p, 0x80);
	op(&v.p, 2);
	begin_dict(&v.p);
	string(&v.p, "segments");
	begin_list(&v.p, &segments);
	for (size_t i = 0; i < t->live.n; i++) {
		const struct wgtr_live *l = &t->live.v[i];
		const struct wgm_site *s = l->site < a->nsites ? &a->sites[l->site] : NULL;

		if (!s || !s->raw->kind || !drawn(s->raw->kind - 1u) || s->raw->device < 0)
			continue;
		segment(&v, l, s, s->raw->device);
		next_item(&v.p, &segments);
	}
	end_list(&v.p, &segments);
	string(&v.p, "device_traces");
	begin_list(&v.p, &traces);
	for (int d = 0; d < WGTR_DEVICES; d++)
		if (a->devices[d].used)
			last = d;
	for (v.device = 0; v.device <= last && !err; v.device++) {
		begin_list(&v.p, &v.events);
		if (a->devices[v.device].used && !wgm_replay(t, &w))
			err = -EBADMSG;
		end_list(&v.p, &v.events);
		next_item(&v.p, &traces);
	}
	end_list(&v.p, &traces);
	string(&v.p, "allocator_settings");
	op(&v.p, '}');
	end_dict(&v.p);
	op(&v.p, '.');
	free(v.memo);
	return err;
}
