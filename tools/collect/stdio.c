/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdio.c - bytes that a program has written and that never left its own memory.
 *
 * Three kinds of buffers hold them: glibc's FILE (all of them hang on one exported list),
 * libstdc++'s filebuf (std::cout and the streams found behind a FILE that it opened), and
 * CPython's TextIOWrapper over BufferedWriter (sys.stdout, sys.stderr, and those that
 * frames and module globals refer to). For one descriptor the sum counts. Known and empty
 * is 0; a descriptor that no known buffer belongs to stays unknown.
 */
#include "pyread.h"
#include "symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 16384	       /* FILEs on the list */
#define MAX_PENDING (1ll << 30) /* more in one buffer is not believed */
#define MAX_GLOBALS 4096       /* values of one module that are looked at */
#define MAX_SCAN (64u << 20)   /* bytes searched for a filebuf */

/* glibc's struct _IO_FILE, part of its ABI; alike on 64-bit machines */
#define FILE_FLAGS 0
#define FILE_WRITE_BASE 32
#define FILE_WRITE_PTR 40
#define FILE_BUF_BASE 56
#define FILE_CHAIN 104
#define FILE_FILENO 112
#define FILE_SIZE 216

/* libstdc++'s basic_filebuf<char>, part of its ABI */
#define FILEBUF_OUT_BEG 32
#define FILEBUF_OUT_CUR 40
#if defined(__x86_64__)
#define FILEBUF_CFILE 104
#else
#define FILEBUF_CFILE 112
#endif
#define IOS_RDBUF 232

/* CPython's _io objects, alike in 3.8 to 3.13 */
#define TEXT_BUFFER 32
#define TEXT_PENDING 144
#define BUFFERED_RAW 16
#define BUFFERED_WRITE_POS 88
#define BUFFERED_WRITE_END 96
#define FILEIO_FD 16

struct tally {
	int32_t fd;
	int64_t bytes, most;
	const char *owner; /* of the largest part */
};
struct ctx {
	struct wg_facts *f;
	struct wg_process *p;
	struct wg_mem *m;
	struct wg_symbols *s;
	struct wg_arena *tmp;
	WG_VEC(struct tally) tallies;
	WG_VEC(uint64_t) files; /* addresses of FILEs */
	WG_VEC(uint64_t) unused; /* FILEs that never had a buffer: maybe libstdc++'s */
	WG_VEC(int32_t) unused_fd;
	WG_VEC(uint64_t) seen; /* Python buffers and dicts already counted */
};

static void add(struct ctx *c, int32_t fd, int64_t bytes, const char *owner)
{
	struct tally *t = NULL;

	if (fd < 0 || bytes < 0 || bytes > MAX_PENDING)
		return;
	for (size_t i = 0; i < c->tallies.n && !t; i++)
		if (c->tallies.v[i].fd == fd)
			t = &c->tallies.v[i];
	if (!t) {
		t = wg_push(c->tmp, &c->tallies);
		t->fd = fd;
		t->most = -1;
	}
	t->bytes += bytes;
	if (bytes > t->most) {
		t->most = bytes;
		t->owner = owner;
	}
}

static bool seen_before(struct ctx *c, uint64_t address)
{
	for (size_t i = 0; i < c->seen.n; i++)
		if (c->seen.v[i] == address)
			return true;
	*wg_push(c->tmp, &c->seen) = address;
	return false;
}

/* ---- glibc ------------------------------------------------------------------------- */

static bool read_files(struct ctx *c)
{
	uint64_t at = wg_symbols_find(c->s, "libc.so", "_IO_list_all"), file, w[3];
	char b[FILE_SIZE];
	size_t n = 0;

	if (!at)
		at = wg_symbols_find(c->s, "libc-", "_IO_list_all");
	if (!at || wg_mem_read(c->m, at, &file, 8))
		return false;
	for (; file && n < MAX_FILES; n++) {
		uint64_t buf_base, next;
		int32_t fd;

		if ((file & 7) || wg_mem_read(c->m, file, b, sizeof(b)))
			return n > 0;
		memcpy(w, b + FILE_WRITE_BASE, 16);
		memcpy(&buf_base, b + FILE_BUF_BASE, 8);
		memcpy(&next, b + FILE_CHAIN, 8);
		memcpy(&fd, b + FILE_FILENO, 4);
		for (size_t i = 0; i < c->files.n; i++)
			if (c->files.v[i] == file)
				return true; /* a circle: torn, or made so */
		*wg_push(c->tmp, &c->files) = file;
		if (!buf_base && fd > 2) {
			/* Opened and never used through stdio: libstdc++ opens its files so. */
			*wg_push(c->tmp, &c->unused) = file;
			*wg_push(c->tmp, &c->unused_fd) = fd;
		} else if (fd >= 0) {
			add(c, fd, w[1] > w[0] ? (int64_t)(w[1] - w[0]) : 0, "stdio FILE");
		}
		file = next;
	}
	return true;
}

/* ---- libstdc++ ----------------------------------------------------------------------- */

static bool is_file(const struct ctx *c, uint64_t file, int32_t *fd)
{
	for (size_t i = 0; i < c->files.n; i++)
		if (c->files.v[i] == file)
			return !wg_mem_read(c->m, file + FILE_FILENO, fd, 4);
	return false;
}

static void count_filebuf(struct ctx *c, uint64_t filebuf, const char *owner)
{
	uint64_t beg, cur, file;
	int32_t fd;

	if (seen_before(c, filebuf) || wg_mem_read(c->m, filebuf + FILEBUF_CFILE, &file, 8) ||
	    !is_file(c, file, &fd) || wg_mem_read(c->m, filebuf + FILEBUF_OUT_BEG, &beg, 8) ||
	    wg_mem_read(c->m, filebuf + FILEBUF_OUT_CUR, &cur, 8))
		return;
	add(c, fd, beg && cur > beg ? (int64_t)(cur - beg) : 0, owner);
}

static const char *exe_name(struct ctx *c)
{
	const struct wg_map *maps;
	const char *b;
	size_t n;

	maps = wg_mem_maps(c->m, &n);
	for (size_t i = 0; i < n; i++)
		if (maps[i].ino && maps[i].path) {
			b = strrchr(maps[i].path, '/');
			return b ? b + 1 : maps[i].path;
		}
	return NULL;
}

/* A symbol of libstdc++: the program can have its own copy of it, which then is the one. */
static void cxx_symbol(struct ctx *c, const char *name, uint64_t at[2])
{
	const char *exe = exe_name(c);

	at[0] = wg_symbols_find(c->s, "libstdc++", name);
	at[1] = at[0] && exe ? wg_symbols_find(c->s, exe, name) : 0;
}

/* Virtual tables of a class: an object points 16 bytes into one. */
static bool is_class(const uint64_t table[2], uint64_t pointer)
{
	return (table[0] && pointer == table[0] + 16) || (table[1] && pointer == table[1] + 16);
}

/* std::cout after sync_with_stdio(false): before, it writes through stdout's FILE. */
static void read_standard_streams(struct ctx *c)
{
	static const char *const name[] = { "_ZSt4cout", "_ZSt4clog" };
	static const char *const owner[] = { "std::cout", "std::clog" };
	uint64_t sync[2], at[2], vtable, buf, vbuf;
	int64_t vbase;

	cxx_symbol(c, "_ZTVN9__gnu_cxx18stdio_sync_filebufIcSt11char_traitsIcEEE", sync);
	if (!sync[0])
		return;
	for (int i = 0; i < 2; i++) {
		cxx_symbol(c, name[i], at);
		if (at[1])
			at[0] = at[1];
		if (!at[0] || wg_mem_read(c->m, at[0], &vtable, 8) ||
		    wg_mem_read(c->m, vtable - 24, &vbase, 8) || vbase < 0 || vbase > 64 ||
		    wg_mem_read(c->m, at[0] + (uint64_t)vbase + IOS_RDBUF, &buf, 8) || !buf ||
		    wg_mem_read(c->m, buf, &vbuf, 8) || is_class(sync, vbuf))
			continue;
		count_filebuf(c, buf, owner[i]);
	}
}

/*
 * A filebuf refers to the FILE that it opened: look for such a word in the program's data,
 * heap and live stacks, with the filebuf's virtual table where it belongs.
 */
static void find_filebufs(struct ctx *c, const uint64_t vtable[2])
{
	const struct wg_map *maps;
	size_t n, left = MAX_SCAN;
	uint64_t *buf = malloc(1 << 20);

	maps = wg_mem_maps(c->m, &n);
	for (size_t i = 0; i < n && buf; i++) {
		const struct wg_map *x = &maps[i];
		bool heap = x->path && !strcmp(x->path, "[heap]");
		bool data = x->w && x->ino && x->hi - x->lo < 1u << 20;
		bool stack = false;
		uint64_t from = x->lo;

		for (size_t t = 0; t < c->p->threads.n && !stack && x->w; t++)
			if (c->p->threads.v[t].sp >= x->lo && c->p->threads.v[t].sp < x->hi) {
				stack = true;
				from = c->p->threads.v[t].sp & ~7ull;
			}
		if (!x->r || !x->w || x->shared || (!heap && !data && !stack))
			continue;
		for (uint64_t at = from; at < x->hi && left;) {
			size_t want = x->hi - at < 1 << 20 ? (size_t)(x->hi - at) : 1 << 20;
			int got;

			if (want > left)
				want = left;
			got = wg_mem_read_some(c->m, at, buf, want);
			if (got < 8)
				break;
			for (size_t k = 0; k < (size_t)got / 8; k++) {
				uint64_t object = at + k * 8 - FILEBUF_CFILE, v;

				for (size_t u = 0; u < c->unused.n; u++)
					if (buf[k] == c->unused.v[u] &&
					    !wg_mem_read(c->m, object, &v, 8) && is_class(vtable, v))
						count_filebuf(c, object, "std::ofstream");
			}
			at += (size_t)got & ~7u;
			left -= (size_t)got;
		}
	}
	free(buf);
}

/* ---- Python -------------------------------------------------------------------------- */

static bool python_fd(struct wg_py *py, uint64_t raw, int32_t *fd)
{
	return wg_py_is_a(py, raw, "_io.FileIO") && wg_py_i32(py, raw + FILEIO_FD, fd) && *fd >= 0;
}

/* A BufferedWriter (or BufferedRandom): its descriptor and what it holds. */
static bool python_buffered(struct ctx *c, struct wg_py *py, uint64_t object, int32_t *fd)
{
	uint64_t raw;
	int64_t pos, end, pending = 0;

	if (!wg_py_is_a(py, object, "_io.BufferedWriter") &&
	    !wg_py_is_a(py, object, "_io.BufferedRandom"))
		return false;
	if (!wg_py_ptr(py, object + BUFFERED_RAW, &raw) || !python_fd(py, raw, fd) ||
	    wg_mem_read(c->m, object + BUFFERED_WRITE_POS, &pos, 8) ||
	    wg_mem_read(c->m, object + BUFFERED_WRITE_END, &end, 8))
		return false;
	if (seen_before(c, object))
		return true;
	if (end > pos && pos >= 0) /* an end of -1: nothing to write */
		pending = end - pos;
	add(c, *fd, pending, "Python BufferedWriter");
	return true;
}

static bool python_file(struct ctx *c, struct wg_py *py, uint64_t object)
{
	uint64_t buffer;
	int64_t pending;
	int32_t fd;

	if (!object)
		return false;
	if (wg_py_is_a(py, object, "_io.TextIOWrapper")) {
		if (!wg_py_ptr(py, object + TEXT_BUFFER, &buffer) ||
		    wg_mem_read(c->m, object + TEXT_PENDING, &pending, 8))
			return false;
		if (python_buffered(c, py, buffer, &fd)) {
			if (!seen_before(c, object))
				add(c, fd, pending, "Python TextIOWrapper");
			return true;
		}
		/* python -u: the text layer stands on the file itself */
		if (python_fd(py, buffer, &fd)) {
			if (!seen_before(c, object))
				add(c, fd, pending, "Python TextIOWrapper");
			return true;
		}
		return false;
	}
	return python_buffered(c, py, object, &fd);
}

struct each {
	struct ctx *c;
	struct wg_py *py;
};

static void each_global(void *arg, uint64_t object)
{
	struct each *e = arg;

	python_file(e->c, e->py, object);
}

static void python_globals(struct ctx *c, struct wg_py *py, uint64_t dict)
{
	struct each e = { c, py };

	if (dict && !seen_before(c, dict))
		wg_py_dict_each(py, dict, MAX_GLOBALS, each_global, &e);
}

/* true: Python's standard streams are accounted for, or there is no Python. */
static bool read_python(struct ctx *c)
{
	static const char *const names[] = { "stdout", "stderr", "__stdout__", "__stderr__" };
	struct wg_py_frames frames = { 0 };
	struct wg_py py;
	const char *why;
	bool known = false;
	int err = wg_py_open(&py, c->f, c->p, c->m, c->s, &why);

	if (err)
		return err == -ENOENT;
	if (py.o.minor > 13) { /* layout of the _io objects not verified there */
		wg_py_close(&py);
		return false;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		known |= python_file(c, &py, wg_py_sys(&py, names[i]));
	for (size_t i = 0; i < py.threads.n && i < 512; i++) {
		if (wg_py_frames(&py, &py.threads.v[i], &frames))
			continue;
		for (size_t k = 0; k < frames.n && k < 64; k++) {
			const struct wg_py_frame *fr = &frames.v[k];
			uint64_t globals;

			for (int v = 0; v < fr->code->nlocals && v < 256; v++) {
				uint64_t o = wg_py_slot(&py, fr, v);

				if (o)
					python_file(c, &py, o);
			}
			if (wg_py_field(&py, fr->addr, py.o.frame_globals, &globals))
				python_globals(c, &py, globals);
		}
	}
	wg_py_close(&py);
	return known;
}

/* ---- all together --------------------------------------------------------------------- */

static void gather(struct ctx *c, bool *files, bool *python)
{
	uint64_t filebuf[2];

	c->tmp = wg_arena_new();
	wg_mem_forget(c->m);
	*files = read_files(c);
	cxx_symbol(c, "_ZTVSt13basic_filebufIcSt11char_traitsIcEE", filebuf);
	if (filebuf[0])
		read_standard_streams(c);
	if (filebuf[0] && c->unused.n)
		find_filebufs(c, filebuf);
	else
		for (size_t i = 0; i < c->unused.n; i++)
			add(c, c->unused_fd.v[i], 0, "stdio FILE");
	*python = read_python(c);
}

bool wg_stdio_doubtful(const struct wg_process *p)
{
	for (size_t i = 0; i < p->files.n; i++) {
		const struct wg_file *x = &p->files.v[i];

		if (wg_has_int(x->user_buffered_bytes) && x->user_buffered_bytes > 0 &&
		    (x->user_buffered_bytes < 256 ||
		     (wg_has_sec(x->last_write_age_s) && x->last_write_age_s < 3)))
			return true;
	}
	return false;
}

void wg_stdio_again(struct wg_facts *f, struct wg_process *p, struct wg_mem *m, struct wg_symbols *s)
{
	struct ctx c = { .f = f, .p = p, .m = m, .s = s };
	bool files, python;

	if (wg_mem_error(m))
		return;
	gather(&c, &files, &python);
	for (size_t i = 0; i < c.tallies.n; i++) {
		const struct tally *t = &c.tallies.v[i];
		struct wg_file *x = wg_find_file(p, t->fd);

		if (!x || !wg_has_int(x->user_buffered_bytes) || (!t->bytes && !python))
			continue;
		x->user_buffered_delta = t->bytes - x->user_buffered_bytes;
		x->user_buffered_bytes = t->bytes;
	}
	wg_arena_free(c.tmp);
}

int wg_stdio_collect(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
		     struct wg_symbols *s)
{
	struct ctx c = { .f = f, .p = p, .m = m, .s = s };
	bool files, python;

	if (wg_mem_error(m)) {
		wg_add_missing(f, p, "unwritten bytes in user-space buffers",
			       "the process' memory cannot be read: see process memory", NULL);
		return 0;
	}
	gather(&c, &files, &python);
	if (!files)
		wg_add_missing(f, p, "stdio buffers", "no glibc with _IO_list_all is loaded", NULL);
	for (size_t i = 0; i < c.tallies.n; i++) {
		const struct tally *t = &c.tallies.v[i];
		struct wg_file *x = wg_find_file(p, t->fd);

		if (!x)
			continue;
		/* Python's own buffers unseen: an empty FILE proves nothing. */
		if (!t->bytes && !python)
			continue;
		x->user_buffered_bytes = t->bytes;
		x->user_buffer_owner = t->owner;
	}
	if (!python)
		wg_add_missing(f, p, "bytes buffered by Python's file objects",
			       "sys.stdout and sys.stderr are not what this reader knows", NULL);
	wg_arena_free(c.tmp);
	return 0;
}
