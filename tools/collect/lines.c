/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - see lines.h. */
#include "lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_INLINE 16
#define MAX_TEXT 1024
#define MAX_ANSWER (16u << 20)

struct want {
	uint64_t pc; /* 0 free */
	uint64_t vaddr;
	struct wg_image *image; /* it lies in */
	struct wg_image *dwarf; /* the image whose DWARF describes it; NULL none */
	bool asked;
	uint32_t first, n; /* in lines */
};

/*
 * What was found before, by file: the ranks of a job run the same code, and one of them
 * pays. Lives as long as the reader does.
 */
struct known {
	uint64_t dev, ino, vaddr; /* ino 0: free */
	uint32_t first, n;
};
static struct {
	struct wg_arena *arena;
	struct known *v;
	size_t n, cap;
	WG_VEC(struct wg_line) lines;
	double spent_s; /* of TOTAL_S */
} store;
#define TOTAL_S 0.75
#define MAX_KNOWN 65536

struct wg_lines {
	struct wg_facts *f;	 /* the strings of lines live in its arena */
	struct wg_arena *arena;
	struct want *want; /* open-addressed by pc */
	size_t n, cap;
	WG_VEC(struct wg_line) lines;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t slot(const struct wg_lines *l, uint64_t pc)
{
	size_t i = (pc * 0x9e3779b97f4a7c15ull >> 20) & (l->cap - 1);

	while (l->want[i].pc && l->want[i].pc != pc)
		i = (i + 1) & (l->cap - 1);
	return i;
}

void wg_lines_start(struct wg_symbols *s, struct wg_facts *f)
{
	struct wg_lines **l = wg_symbols_lines(s);

	if (*l && (*l)->f != f) { /* strings of other facts may be gone */
		wg_lines_free(*l);
		*l = NULL;
	}
	if (*l)
		return;
	*l = calloc(1, sizeof(**l));
	if (!*l)
		exit(70);
	(*l)->arena = wg_arena_new();
	(*l)->f = f;
}

void wg_lines_free(struct wg_lines *l)
{
	if (!l)
		return;
	wg_arena_free(l->arena);
	free(l->want);
	free(l);
}

static struct known *known_slot(const struct wg_image *i, uint64_t vaddr)
{
	uint64_t h = (vaddr ^ i->ino << 20 ^ i->dev) * 0x9e3779b97f4a7c15ull;
	size_t k;

	if (store.n * 2 >= store.cap) {
		struct known *old = store.v;
		size_t cap = store.cap;

		store.cap = cap ? cap * 2 : 1024;
		store.v = calloc(store.cap, sizeof(*store.v));
		if (!store.v)
			exit(70);
		for (size_t x = 0; x < cap; x++) {
			if (!old[x].ino)
				continue;
			k = ((old[x].vaddr ^ old[x].ino << 20 ^ old[x].dev) *
			     0x9e3779b97f4a7c15ull >> 20) & (store.cap - 1);
			while (store.v[k].ino)
				k = (k + 1) & (store.cap - 1);
			store.v[k] = old[x];
		}
		free(old);
	}
	k = (h >> 20) & (store.cap - 1);
	while (store.v[k].ino && (store.v[k].ino != i->ino || store.v[k].dev != i->dev ||
				  store.v[k].vaddr != vaddr))
		k = (k + 1) & (store.cap - 1);
	return &store.v[k];
}

/* Files are told apart by device and inode: only those that were checked against them. */
static bool can_keep(const struct wg_image *i)
{
	return i->ino && !i->copy && store.n < MAX_KNOWN;
}

static void recall(struct wg_lines *l, struct want *w, const struct wg_image *i)
{
	const struct known *k = can_keep(i) ? known_slot(i, w->vaddr) : NULL;

	if (!k || !k->ino)
		return;
	w->asked = true;
	w->first = (uint32_t)l->lines.n;
	w->n = k->n;
	for (uint32_t x = 0; x < k->n; x++) {
		const struct wg_line *v = &store.lines.v[k->first + x];
		struct wg_line *to = wg_push(l->arena, &l->lines);

		to->function = wg_str(l->f->arena, v->function);
		to->file = wg_str(l->f->arena, v->file);
		to->line = v->line;
	}
}

static void remember(struct wg_lines *l, const struct want *w, const struct wg_image *i)
{
	struct known *k;

	if (!can_keep(i))
		return;
	if (!store.arena)
		store.arena = wg_arena_new();
	k = known_slot(i, w->vaddr);
	if (k->ino)
		return;
	*k = (struct known){ i->dev, i->ino, w->vaddr, (uint32_t)store.lines.n, w->n };
	store.n++;
	for (uint32_t x = 0; x < w->n; x++) {
		const struct wg_line *v = &l->lines.v[w->first + x];
		struct wg_line *to = wg_push(store.arena, &store.lines);

		to->function = wg_str(store.arena, v->function);
		to->file = wg_str(store.arena, v->file);
		to->line = v->line;
	}
}

/*
 * The C library's lines tell nothing that the names of its functions do not, and it is in every
 * stack: inflating its debug file took half the time of a whole answer.
 */
static bool is_c_library(const struct wg_image *i)
{
	static const char *const names[] = { "libc.so", "libc-", "libpthread", "ld-linux", "ld-2." };
	const char *base = i->path ? strrchr(i->path, '/') : NULL;

	for (size_t k = 0; base && k < sizeof(names) / sizeof(names[0]); k++)
		if (!strncmp(base + 1, names[k], strlen(names[k])))
			return true;
	return false;
}

/* The image, or its separate debug file, that has DWARF; NULL none. */
static struct wg_image *with_dwarf(struct wg_image *i)
{
	struct wg_image *d;

	if (i->dead || i->copy || i->fd < 0)
		return NULL;
	if (wg_image_section(i, ".debug_info") && wg_image_section(i, ".debug_line"))
		return i;
	if (is_c_library(i))
		return NULL;
	d = wg_image_debug(i);
	return d && wg_image_section(d, ".debug_info") ? d : NULL;
}

void wg_lines_want(struct wg_symbols *s, uint64_t pc)
{
	struct wg_lines *l = *wg_symbols_lines(s);
	struct wg_module *mod;
	struct want *w;

	if (l->n * 2 >= l->cap) {
		struct want *old = l->want;
		size_t cap = l->cap;

		l->cap = cap ? cap * 2 : 512;
		l->want = calloc(l->cap, sizeof(*l->want));
		if (!l->want)
			exit(70);
		for (size_t i = 0; i < cap; i++)
			if (old[i].pc)
				l->want[slot(l, old[i].pc)] = old[i];
		free(old);
	}
	if (!pc)
		return;
	w = &l->want[slot(l, pc)];
	if (w->pc)
		return;
	w->pc = pc;
	l->n++;
	mod = wg_symbols_module(s, pc);
	if (mod && mod->usable) {
		w->vaddr = pc - mod->bias;
		w->image = mod->image;
		recall(l, w, mod->image);
		if (!w->asked)
			w->dwarf = with_dwarf(mod->image);
	}
}

/* ---- in the child --------------------------------------------------------------------------- */

struct answer { /* on the pipe, followed by the texts */
	uint64_t pc; /* 0: everything was looked for */
	uint32_t line;
	uint16_t function_len, file_len;
};

static void send_line(int fd, uint64_t pc, int line, const char *function, const char *file)
{
	char buf[sizeof(struct answer) + 2 * MAX_TEXT];
	struct answer a = { .pc = pc, .line = line > 0 ? (uint32_t)line : 0 };
	size_t n = sizeof(a);

	a.function_len = function ? (uint16_t)strnlen(function, MAX_TEXT) : 0;
	a.file_len = file ? (uint16_t)strnlen(file, MAX_TEXT) : 0;
	memcpy(buf, &a, sizeof(a));
	if (a.function_len)
		memcpy(buf + n, function, a.function_len);
	n += a.function_len;
	if (a.file_len)
		memcpy(buf + n, file, a.file_len);
	n += a.file_len;
	if (write(fd, buf, n) != (ssize_t)n)
		_exit(0);
}

static const char *name_of(Dwarf_Die *die)
{
	Dwarf_Attribute at;
	const char *s = NULL;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &at) ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &at))
		s = dwarf_formstring(&at);
	if (!s && dwarf_attr_integrate(die, DW_AT_name, &at))
		s = dwarf_formstring(&at);
	return s;
}

static bool find_unit(Dwarf *dw, Dwarf_Addr addr, Dwarf_Die *cu)
{
	Dwarf_Off off = 0, next;
	size_t head;

	if (dwarf_addrdie(dw, addr, cu))
		return true;
	/* No .debug_aranges (clang writes none): look at every unit. */
	while (!dwarf_nextcu(dw, off, &next, &head, NULL, NULL, NULL)) {
		if (dwarf_offdie(dw, off + head, cu) && dwarf_haspc(cu, addr) == 1)
			return true;
		off = next;
	}
	return false;
}

static void describe(int fd, Dwarf *dw, uint64_t pc, uint64_t addr)
{
	Dwarf_Die cu, *scopes = NULL;
	Dwarf_Files *files = NULL;
	Dwarf_Line *line;
	size_t nfiles = 0;
	const char *file = NULL;
	int no = 0, n, sent = 0;

	if (!find_unit(dw, addr, &cu))
		return;
	line = dwarf_getsrc_die(&cu, addr);
	if (line) {
		file = dwarf_linesrc(line, NULL, NULL);
		dwarf_lineno(line, &no);
	}
	dwarf_getsrcfiles(&cu, &files, &nfiles);
	n = dwarf_getscopes(&cu, addr, &scopes);
	for (int i = 0; i < n && sent < MAX_INLINE; i++) {
		Dwarf_Attribute at;
		Dwarf_Word v;

		if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram)
			break;
		if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine)
			continue;
		send_line(fd, pc, no, name_of(&scopes[i]), file);
		sent++;
		no = 0;
		file = NULL;
		if (dwarf_attr(&scopes[i], DW_AT_call_line, &at) && !dwarf_formudata(&at, &v))
			no = (int)v;
		if (dwarf_attr(&scopes[i], DW_AT_call_file, &at) && !dwarf_formudata(&at, &v) &&
		    files && v < nfiles)
			file = dwarf_filesrc(files, v, NULL, NULL);
	}
	if (file || sent)
		send_line(fd, pc, no, NULL, file);
	free(scopes);
}

static void child(struct wg_lines *l, struct wg_image **images, size_t n, int fd)
{
	struct rlimit none = { 0, 0 }, memory = { 6ull << 30, 6ull << 30 }, cpu = { 2, 2 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &none);
#ifndef __SANITIZE_ADDRESS__
	setrlimit(RLIMIT_AS, &memory);
#else
	(void)memory;
#endif
	setrlimit(RLIMIT_CPU, &cpu);
	for (int s = 1; s < 32; s++)
		signal(s, s == SIGPIPE ? SIG_IGN : SIG_DFL);
	elf_version(EV_CURRENT);
	for (size_t i = 0; i < n; i++) {
		Dwarf *dw = dwarf_begin(images[i]->fd, DWARF_C_READ);

		if (!dw)
			continue;
		for (size_t k = 0; k < l->cap; k++)
			if (l->want[k].pc && !l->want[k].asked && l->want[k].dwarf == images[i])
				describe(fd, dw, l->want[k].pc, l->want[k].vaddr);
	}
	send_line(fd, 0, 0, NULL, NULL);
}

/* ---- in the reader ----------------------------------------------------------------------------- */

/* Did the child get through all of it? */
static bool take_answers(struct wg_lines *l, const char *buf, size_t n)
{
	bool all = false;
	size_t at = 0;

	while (n - at >= sizeof(struct answer)) {
		struct answer a;
		struct wg_line *x;
		struct want *w;

		memcpy(&a, buf + at, sizeof(a));
		if (a.function_len > MAX_TEXT || a.file_len > MAX_TEXT ||
		    n - at - sizeof(a) < (size_t)a.function_len + a.file_len)
			break;
		at += sizeof(a);
		all = !a.pc;
		w = a.pc ? &l->want[slot(l, a.pc)] : NULL;
		if (w && w->pc) {
			/* The lines of one pc come together: they are neighbours here. */
			if (!w->n)
				w->first = (uint32_t)l->lines.n;
			x = wg_push(l->arena, &l->lines);
			x->function = NULL;
			if (a.function_len)
				x->function = wg_demangle(
					l->f, wg_strn(l->arena, buf + at, a.function_len));
			x->file = NULL;
			if (a.file_len)
				x->file = wg_strn(l->f->arena, buf + at + a.function_len,
						  a.file_len);
			x->line = a.line ? (int64_t)a.line : WG_NO_INT;
			w->n++;
		}
		at += (size_t)a.function_len + a.file_len;
	}
	return all;
}

static uint64_t weight(struct wg_image *i)
{
	const Elf64_Shdr *s = wg_image_section(i, ".debug_info");

	return s ? s->sh_size : UINT64_MAX;
}

void wg_lines_run(struct wg_symbols *s, double budget_s)
{
	struct wg_lines *l = *wg_symbols_lines(s);
	struct wg_image *images[256];
	double begin = now_s(), end;
	size_t n = 0, got = 0, cap = 1 << 16;
	int pipe_fd[2], status;
	bool all;
	char *buf;
	pid_t pid;

	for (size_t k = 0; k < l->cap; k++) {
		size_t i = 0;

		if (!l->want[k].pc || l->want[k].asked || !l->want[k].dwarf)
			continue;
		while (i < n && images[i] != l->want[k].dwarf)
			i++;
		if (i == n && n < sizeof(images) / sizeof(images[0]))
			images[n++] = l->want[k].dwarf;
	}
	if (budget_s > TOTAL_S - store.spent_s)
		budget_s = TOTAL_S - store.spent_s;
	if (!n || budget_s <= 0)
		return;
	end = begin + budget_s;
	/* Small ones first: what the budget cuts off is the giant's. */
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k > 0 && weight(images[k]) < weight(images[k - 1]); k--) {
			struct wg_image *t = images[k];

			images[k] = images[k - 1];
			images[k - 1] = t;
		}
	buf = malloc(cap);
	if (!buf)
		return;
	if (pipe2(pipe_fd, O_CLOEXEC)) {
		free(buf);
		return;
	}
	pid = fork();
	if (!pid) {
		close(pipe_fd[0]);
		child(l, images, n, pipe_fd[1]);
		_exit(0);
	}
	close(pipe_fd[1]);
	while (pid > 0) {
		struct pollfd pf = { .fd = pipe_fd[0], .events = POLLIN };
		double left = end - now_s();
		ssize_t k;

		if (left <= 0 || poll(&pf, 1, (int)(left * 1000) + 1) <= 0)
			break;
		if (got == cap) {
			char *b = cap < MAX_ANSWER ? realloc(buf, cap * 2) : NULL;

			if (!b)
				break;
			buf = b;
			cap *= 2;
		}
		k = read(pipe_fd[0], buf + got, cap - got);
		if (k <= 0)
			break;
		got += (size_t)k;
	}
	close(pipe_fd[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		/* One that is stuck in a file system does not die now: it is not waited for. */
		for (int i = 0; i < 100 && !waitpid(pid, &status, WNOHANG); i++)
			usleep(i < 20 ? 100 : 1000);
	}
	all = take_answers(l, buf, got) && n < sizeof(images) / sizeof(images[0]);
	free(buf);
	store.spent_s += now_s() - begin;
	for (size_t k = 0; k < l->cap; k++) {
		struct want *w = &l->want[k];

		/* Nothing found may only mean that the time was up: that is not kept. */
		if (w->pc && !w->asked && (w->n || (all && w->dwarf)))
			remember(l, w, w->image);
		w->asked = true;
	}
}

size_t wg_lines_of(struct wg_symbols *s, uint64_t pc, const struct wg_line **lines)
{
	struct wg_lines *l = *wg_symbols_lines(s);
	const struct want *w;

	if (!l || !l->cap || !pc)
		return 0;
	w = &l->want[slot(l, pc)];
	if (!w->pc || !w->n)
		return 0;
	*lines = l->lines.v + w->first;
	return w->n;
}
