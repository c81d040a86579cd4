/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_trace.c - hostile traces through reader, replay and both printers.
 *
 * With clang it is a libFuzzer target; otherwise a driver of its own mutates a trace that
 * the recorder's own code has written: bytes, words, stretches copied elsewhere, cuts. It
 * ends by a crash, a sanitizer's report or a time limit, never by an answer: any answer is
 * good as long as it comes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/memory_guest.h"
#include "../../tools/memory/print.h"

#define MIB (1024ull * 1024)
#define BASE 0x7f1200000000ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static FILE *none;
	char path[64], why[320];
	struct wgm_trace *t;
	struct wgm_analysis *a;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0)
		return 0;
	if (!none)
		none = fopen("/dev/null", "w");
	if (write(fd, data, n) != (ssize_t)n) {
		close(fd);
		return 0;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!wgm_trace_open(path, &t, why, sizeof(why))) {
		a = wgm_analyse(t);
		if (a) {
			json_t *doc = wgm_json(&a, 1);

			wgm_print(none, a, 100);
			json_decref(doc);
		}
		wgm_trace_close(t);
	}
	close(fd); /* the ELF images stay open: it is not them that is tested */
	return 0;
}

#ifndef WG_LIBFUZZER
static __attribute__((noinline)) void site(uint64_t p, uint64_t n)
{
	guest_alloc(0, WG_MEM_DEVICE, p, n);
	__asm__ volatile("" ::: "memory");
}

/* A trace with a bit of everything, folded or not. */
static void seed(const char *dir, bool folded)
{
	GUEST_SITE(s, 4, 0);

	guest_start(dir, 512 << 10);
	for (uint64_t i = 0; i < (folded ? 400000u : 2000u); i++) {
		site(BASE + i * 7919 % 512 * MIB, (i % 17 + 1) * 4096 + i % 3);
		if (i % 3)
			guest_free(0, WG_MEM_DEVICE, BASE + i * 104729 % 512 * MIB);
	}
	wg_mem_allocated(&s, WG_MEM_VMM, 77, 64 * MIB);
	s.handle = 77;
	wg_mem_allocated(&s, WG_MEM_VMM_MAP, BASE, 64 * MIB);
	wg_mem_allocated(&s, WG_MEM_VA, BASE, 1024 * MIB);
	wg_mem_freed(&s, WG_MEM_VMM, 77);
	wg_mem_allocated(&s, WG_MEM_POOL, 0x900, 32 * MIB);
	wg_mem_allocated(&s, WG_MEM_ASYNC, BASE * 2, 10 * MIB);
	wg_trace_wait(&s, wg_ticks() - 1000000, wg_ticks());
	wg_trace_collective("abcdef", 0, 1, 6, 1 << 20, 7);
	wg_trace_module(&s, MIB);
	guest_fail(0, WG_MEM_DEVICE, 100ull << 30);
	wg_mem_device_used(0);
	wg_mem_tick();
	wg_mem_device_gone(1);
	wg_mem_exit();
}

static uint64_t state;

static uint64_t roll(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t mutate(uint8_t *p, size_t n)
{
	/* Most of a trace is reserved and empty: aim at the chunks' beginnings and the header. */
	for (unsigned int k = 1 + roll() % 6; k--;) {
		size_t at = roll() % 3 ? roll() % n : roll() % 2 ? roll() % 1024 :
			    WGTR_HEADER_SIZE + roll() % ((n - WGTR_HEADER_SIZE) / 16384 + 1) * 16384 +
				    roll() % 512;
		size_t length = 1 + roll() % 64, from = roll() % n;
		static const uint64_t words[] = { 0, 1, UINT64_MAX, 1ull << 31, 1ull << 32, 255, 65535,
						  1ull << 63 };

		if (at >= n)
			at = n - 1;
		if (length > n - at)
			length = n - at;
		if (length > n - from)
			length = n - from;
		switch (roll() % 6) {
		case 0:
			p[at] ^= (uint8_t)(1u << roll() % 8);
			break;
		case 1:
			p[at] = (uint8_t)roll();
			break;
		case 2:
			memcpy(p + at, &words[roll() % 8], length < 8 ? length : 8);
			break;
		case 3:
			memmove(p + at, p + from, length);
			break;
		case 4:
			memset(p + at, roll() % 2 ? 0xff : 0, length);
			break;
		default:
			if (roll() % 8 == 0)
				n = at + 1 > 2048 ? at + 1 : n;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;
	struct timespec begun, now;
	static uint8_t whole[2][4 << 20], bytes[4 << 20];
	size_t n[2];
	unsigned long runs = 0;

	state = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) * 2654435761u | 1;
	printf("seed %llu\n", (unsigned long long)state);
	for (int i = 0; i < 2; i++) {
		char dir[] = "/tmp/wg-fuzz-XXXXXX", command[300];
		FILE *f;
		int status;

		if (!mkdtemp(dir))
			return 1;
		if (!fork()) {
			seed(dir, i);
			_exit(0);
		}
		wait(&status);
		snprintf(command, sizeof(command), "cat %s/*.trace; rm -r %s", dir, dir);
		f = popen(command, "r");
		n[i] = f ? fread(whole[i], 1, sizeof(whole[i]), f) : 0;
		if (!f || pclose(f) || n[i] < WGTR_HEADER_SIZE || n[i] == sizeof(whole[i])) {
			fprintf(stderr, "no seed: %zu bytes\n", n[i]);
			return 1;
		}
		LLVMFuzzerTestOneInput(whole[i], n[i]);
	}
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		int which = runs % 8 == 0;
		uint64_t before = state;
		size_t left;

		memcpy(bytes, whole[which], n[which]);
		alarm(20); /* no input may keep the reader for so long */
		left = mutate(bytes, n[which]);
		if (argc > 3)
			printf("%lu: state %llu\n", runs, (unsigned long long)before);
		LLVMFuzzerTestOneInput(bytes, left);
		runs++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) * 1e-9 <
		 seconds);
	printf("%lu inputs\n", runs);
	return 0;
}
#endif
