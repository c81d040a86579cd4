/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_elf.c - the ELF reader, the unwinder and the maps parser over files that are broken
 * on purpose. The seed is this program's own file; memory and stack are random.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "collect/elf_image.h"
#include "collect/unwind.h"

static char path[] = "/tmp/wg-fuzz-XXXXXX";
static int fd = -1;
static uint8_t *seed;
static size_t seed_size;
static uint64_t state = 0x9e3779b97f4a7c15ull;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

#define TEXT 0x400000ull
#define STACK 0x7ffc00000000ull
static uint64_t text_len, text_off;

/* Memory: the file where it is mapped, a stack full of addresses in it elsewhere. */
static int read_memory(void *arg, uint64_t addr, void *buf, size_t n)
{
	uint64_t off = addr - TEXT + text_off;

	(void)arg;
	if (addr >= TEXT && addr < TEXT + text_len) {
		ssize_t k = pread(fd, buf, n, (off_t)off);

		return k > 0 ? (int)k : -14;
	}
	if (addr >= STACK && addr < STACK + 65536) {
		for (size_t i = 0; i + 8 <= n; i += 8) {
			uint64_t v = rnd() & 3 ? TEXT + rnd() % text_len :
						 STACK + (rnd() % 8192) * 8;

			memcpy((char *)buf + i, &v, 8);
		}
		return (int)n;
	}
	return -14;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wg_map maps[2];
	static struct wg_walk walk;
	struct wg_facts *f = wg_facts_new();
	struct wg_unwinder *u;
	struct wg_symbols *s;
	struct wg_image *i;
	struct wg_frame fr;
	struct wg_sym sym;
	struct wg_mem *m;
	struct stat st;
	uint64_t v, n;
	char *text;
	size_t k;
	bool weak;

	if (fd < 0) {
		fd = mkstemp(path);
		unlink(path); /* the descriptor is opened again through /proc */
	}
	if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size || fstat(fd, &st))
		exit(1);

	/* As text: a hostile maps file. */
	text = malloc(size + 1);
	if (text) {
		struct wg_arena *a = wg_arena_new();

		memcpy(text, data, size);
		text[size] = 0;
		wg_maps_parse(a, text, size, &k);
		wg_arena_free(a);
		free(text);
	}

	memset(maps, 0, sizeof(maps));
	text_off = 0;
	text_len = (size + 4095) & ~4095ull;
	if (!text_len)
		text_len = 4096;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	maps[0] = (struct wg_map){ .lo = TEXT, .hi = TEXT + text_len, .r = true, .x = true,
		.dev = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev), .ino = st.st_ino,
		.path = "/memfd-like" };
	maps[1] = (struct wg_map){ .lo = STACK, .hi = STACK + 65536, .r = true, .w = true,
		.path = "[stack]" };
	m = wg_mem_open_fake(maps, 2, getpid(), read_memory, NULL);

	i = wg_image_open_file(m, path);
	if (!i->dead) {
		for (int c = 0; c < 40; c++)
			wg_image_function(i, rnd() % (size + 4096), &sym);
		for (size_t c = 0; c < i->nsyms && c < 8; c++)
			wg_image_function(i, i->syms[c].addr, &sym);
		wg_image_export(i, "main", &v, &n);
		wg_image_export(i, "wg_fuzz_no_such", &v, &n);
		wg_image_section(i, ".debug_info");
		wg_image_section(i, ".PyRuntime");
		wg_image_bias(i, &maps[0], &v);
	}
	wg_image_close(i);

	/* The same file as a mapped one: its tables unwind a stack that lies. */
	s = wg_symbols_open(m);
	u = wg_unwinder_open(s);
	for (int c = 0; u && c < 12; c++) {
		struct wg_regs r = { .ip = TEXT + rnd() % text_len, .sp = STACK + rnd() % 60000,
			.full = rnd() & 1, .bp = STACK + rnd() % 65536 };

		wg_unwind(u, &r, false, false, &walk);
		if (walk.end == WG_WALK_NEEDS)
			wg_unwind_guess(u, &r, 0, 0, &walk, &weak);
		wg_symbols_frame(s, f, r.ip, c & 1, &fr);
	}
	wg_unwinder_close(u);
	wg_symbols_close(s);
	wg_mem_close(m);
	wg_facts_free(f);
	return 0;
}

#ifndef WG_LIBFUZZER
static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	double end = now_s() + (argc > 1 ? atof(argv[1]) : 5), slowest = 0;
	const char *from = argc > 2 ? argv[2] : "/proc/self/exe";
	uint64_t runs = 0;
	FILE *in = fopen(from, "rb");
	uint8_t *data;

	seed_size = 1 << 20;
	seed = malloc(seed_size);
	data = malloc(seed_size);
	if (!in || !seed || !data)
		return 1;
	seed_size = fread(seed, 1, seed_size, in);
	fclose(in);
	LLVMFuzzerTestOneInput(seed, seed_size);
	while (now_s() < end) {
		size_t n = rnd() % 8 ? seed_size : rnd() % seed_size, k = 1 + rnd() % 60;
		double t = now_s();

		memcpy(data, seed, n);
		for (size_t c = 0; c < k && n > 64; c++) {
			/* Headers first, then the tables that they lead to. */
			size_t at = rnd() % 3 ? rnd() % n : rnd() % (n < 1024 ? n : 1024);

			switch (rnd() % 4) {
			case 0:
				data[at] ^= (uint8_t)(1u << rnd() % 8);
				break;
			case 1:
				data[at] = (uint8_t)rnd();
				break;
			case 2:
				at &= ~7ull;
				if (at + 8 <= n)
					memset(data + at, rnd() & 1 ? 0xff : 0, 8);
				break;
			default:
				at &= ~7ull;
				if (at + 8 <= n) {
					uint64_t v = rnd() % (2 * seed_size);

					memcpy(data + at, &v, 8);
				}
			}
		}
		LLVMFuzzerTestOneInput(data, n);
		t = now_s() - t;
		if (t > slowest)
			slowest = t;
		runs++;
	}
	printf("%llu runs, slowest %.1f ms\n", (unsigned long long)runs, slowest * 1e3);
	if (slowest > 5) {
		fprintf(stderr, "a run took %.1f s\n", slowest);
		return 1;
	}
	return 0;
}
#endif
