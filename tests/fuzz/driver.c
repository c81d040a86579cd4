/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - runs a fuzz target where there is no libFuzzer: every seed as it is, then so
 * many mutations of seeds, always the same ones. usage: fuzz_x RUNS SEED-DIR
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n);

#define MOST_SEEDS 256
#define LARGEST (1u << 20)

static struct { uint8_t *data; size_t n; } seeds[MOST_SEEDS];
static size_t nseeds;
static uint64_t state = 88172645463325252ull;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load(const char *dir)
{
	struct dirent **list;
	int n = scandir(dir, &list, NULL, by_name); /* sorted: the same run everywhere */

	for (int i = 0; i < n; i++) {
		char path[1024];
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
		f = list[i]->d_name[0] == '.' ? NULL : fopen(path, "rb");
		if (f && nseeds < MOST_SEEDS) {
			seeds[nseeds].data = malloc(LARGEST);
			seeds[nseeds].n = fread(seeds[nseeds].data, 1, LARGEST, f);
			nseeds++;
		}
		if (f)
			fclose(f);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

static size_t mutate(uint8_t *out)
{
	static const char *const words[] = { "null", "true", "-1", "1e308", "99999999999999999999",
					     "[", "]", "{", "}", "\"", ",", ":", "\"pid\":", "\\u0000",
					     "0x", "\xff\xff\xff\xff", "\x7f\xff" };
	size_t s = rnd() % nseeds, n = seeds[s].n, hits = 1 + rnd() % 8;

	memcpy(out, seeds[s].data, n);
	while (hits--) {
		size_t at = n ? rnd() % n : 0, k;

		switch (rnd() % 6) {
		case 0: /* another byte */
			if (n)
				out[at] = (uint8_t)rnd();
			break;
		case 1: /* a bit */
			if (n)
				out[at] ^= (uint8_t)(1u << rnd() % 8);
			break;
		case 2: /* leave some out */
			k = rnd() % 32;
			if (at + k <= n) {
				memmove(out + at, out + at + k, n - at - k);
				n -= k;
			}
			break;
		case 3: { /* a word in between */
			const char *w = words[rnd() % (sizeof(words) / sizeof(words[0]))];

			k = strlen(w);
			if (n + k <= LARGEST) {
				memmove(out + at + k, out + at, n - at);
				memcpy(out + at, w, k);
				n += k;
			}
			break;
		}
		case 4: { /* a piece of another seed */
			size_t o = rnd() % nseeds, from = seeds[o].n ? rnd() % seeds[o].n : 0;

			k = rnd() % 128;
			if (from + k <= seeds[o].n && at + k <= n)
				memcpy(out + at, seeds[o].data + from, k);
			break;
		}
		default: /* cut */
			if (!(rnd() % 4))
				n = at;
			break;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	long runs = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	uint8_t *in;

	if (argc != 3 || runs < 1) {
		fprintf(stderr, "usage: %s RUNS SEED-DIR\n", argv[0]);
		return 64;
	}
	load(argv[2]);
	if (!nseeds) {
		fprintf(stderr, "no seeds in %s\n", argv[2]);
		return 66;
	}
	in = malloc(LARGEST + 64);
	for (size_t i = 0; i < nseeds; i++)
		LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].n);
	for (long i = 0; i < runs; i++) {
		/* An exact allocation, so that a sanitizer sees reading behind its end. */
		size_t n = mutate(in);
		uint8_t *exact = malloc(n ? n : 1);

		memcpy(exact, in, n);
		LLVMFuzzerTestOneInput(exact, n);
		free(exact);
	}
	printf("%zu seeds, %ld mutations\n", nseeds, runs);
	free(in);
	for (size_t i = 0; i < nseeds; i++)
		free(seeds[i].data);
	return 0;
}
