/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_recorder.c - the reader of recorder files on damaged ones. The input is a list of
 * patches to a good file (a whole one is 300 KiB, of which most is empty): which section
 * (0 the header), where in it, how many bytes, the bytes; 255 cuts the file.
 */
#include <stdint.h>
#include <sys/stat.h>

#include "collect/sources.h"
#include "tests/unit/rec_builder.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n);

static char path[64], dir[48];

#ifdef WG_LIBFUZZER
/* The reader alone is the target: what it asks of other sources is not there. */
int wg_mem_read(struct wg_mem *m, uint64_t addr, void *buf, size_t n)
{
	(void)m;
	(void)addr;
	memset(buf, 0, n);
	return -5;
}

void wg_symbols_frame(struct wg_symbols *s, struct wg_facts *f, uint64_t pc, bool is_return,
		      struct wg_frame *out)
{
	(void)s;
	(void)f;
	(void)pc;
	(void)is_return;
	(void)out;
}

const char *wg_demangle(struct wg_facts *f, const char *mangled)
{
	(void)f;
	return mangled;
}

void wg_stacks_symbolize(struct wg_facts *f, struct wg_process *p, struct wg_symbols *s)
{
	(void)f;
	(void)p;
	(void)s;
}

int wg_with_deadline(double seconds, void (*fn)(void *), void *arg)
{
	(void)seconds;
	fn(arg);
	return 0;
}
#endif

static void cleanup(void)
{
	unlink(path);
	rmdir(dir);
}

static void apply(struct rec *r, const uint8_t *in, size_t n, size_t *size)
{
	struct wgrec_header h;

	memcpy(&h, r->data, sizeof(h)); /* where sections were before the patches moved them */
	while (n >= 4) {
		size_t which = in[0], at = (size_t)in[1] << 8 | in[2], k = in[3] % 16 + 1;

		in += 4;
		n -= 4;
		if (which == 255) {
			*size = r->size * at / 65536;
			continue;
		}
		if (k > n)
			k = n;
		if (which % (h.nsections + 1))
			at += h.sections[which % (h.nsections + 1) - 1].offset;
		if (at + k <= r->size)
			memcpy(r->data + at, in, k);
		in += k;
		n -= k;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n)
{
	static struct rec good;
	struct wg_facts *f;
	struct wg_process *p;
	struct wg_rec *rec;
	const char *why;
	struct rec r;
	size_t size;

	if (!good.data) {
		snprintf(dir, sizeof(dir), "/dev/shm/wgfuzz-%d", (int)getpid());
		mkdir(dir, 0700);
		snprintf(path, sizeof(path), "%s/1.rec", dir);
		atexit(cleanup);
		rec_example(&good, 4000000, 77);
	}
	r = good;
	size = good.size;
	r.data = malloc(good.size);
	memcpy(r.data, good.data, good.size);
	apply(&r, in, n, &size);
	r.size = size;
	if (rec_write(&r, path))
		abort();
	free(r.data);
	f = wg_facts_new();
	/*
	 * The list of other ranks' files, asked for once per facts: an empty one of just now
	 * (its first member is when), or each input would cost a walk through /proc.
	 */
	f->recorder_cache = wg_alloc(f->arena, 256);
	clock_gettime(CLOCK_MONOTONIC, f->recorder_cache);
	if (!wg_rec_add_process(f, path, true, &p, &why))
		for (size_t i = 0; i < p->streams.n; i++) {
			if (p->streams.v[i].completed > p->streams.v[i].enqueued)
				abort();
			for (size_t k = 0; k < p->streams.v[i].pending.n; k++) {
				const struct wg_gpu_item *x = &p->streams.v[i].pending.v[k];

				if ((x->comm != WG_NO_INT &&
				     (x->comm < 0 || (size_t)x->comm >= p->comms.n)) ||
				    (x->event_stream_ix != WG_NO_INT &&
				     (x->event_stream_ix < 0 ||
				      (size_t)x->event_stream_ix >= p->streams.n)))
					abort();
			}
		}
	if (!wg_rec_open_path(f, path, &rec, &why)) {
		p = wg_add_process(f);
		wg_rec_collect(f, p, rec, NULL, NULL);
		wg_rec_again(f, p, rec, 0.1);
		wg_rec_close(rec);
	}
	wg_facts_free(f);
	return 0;
}
