/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loop.c - the follower of loops: compiled loops of known kinds, random programs that the
 * processor runs too, and bytes that are no program.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "collect/loop.h"
#include "collect/mem.h"

#if defined(__x86_64__)

enum { AX, CX, DX, BX, SP, BP, SI, DI };

/* ---- loops of known kinds ------------------------------------------------------------------- */

static volatile int flag, other;
static volatile uint64_t sink;
static int array[512];
static char name[16] = "waits";

static __attribute__((noinline)) int is_set(volatile int *p)
{
	return *p != 0;
}

static __attribute__((noinline)) void polls(volatile int *p)
{
	while (!*p)
		;
}

static __attribute__((noinline)) void polls_by_calls(volatile int *p)
{
	while (!is_set(p) || !is_set(&other))
		__builtin_ia32_pause();
}

static __attribute__((noinline)) void polls_with_strcmp(volatile int *p)
{
	while (!strcmp(name, *p ? "goes on" : "waits"))
		;
}

static __attribute__((noinline)) void takes_a_lock(volatile int *p)
{
	while (__atomic_exchange_n(p, 0, __ATOMIC_ACQUIRE) == 0)
		;
}

static __attribute__((noinline)) void polls_backing_off(volatile int *p)
{
	for (int n = 1; !*p; n = n < 64 ? n * 2 : 64)
		for (volatile int i = 0; i < n; i++)
			__builtin_ia32_pause();
}

static __attribute__((noinline)) void polls_and_counts(volatile int *p)
{
	uint64_t n = 0;

	while (!*p)
		n++;
	sink = n;
}

static __attribute__((noinline)) void computes(volatile int *p)
{
	uint64_t h = 88172645463325252ull;

	(void)p;
	for (;;) {
		h ^= h << 13;
		h ^= h >> 7;
		h ^= h << 17;
		sink = h;
	}
}

static __attribute__((noinline)) void sums_again(volatile int *p)
{
	volatile int *a = array;

	(void)p;
	for (;;) {
		int s = 0;

		for (int i = 0; i < 64; i++)
			s += a[i];
		sink = (uint64_t)s;
	}
}

static __attribute__((noinline)) void nothing(volatile int *p)
{
	(void)p;
	for (;;)
		__asm__ volatile("");
}

static __attribute__((noinline)) void walks(volatile int *p)
{
	volatile int *a = array;
	int s = 0;

	(void)p;
	for (unsigned int i = 0;; i++) {
		s += a[i % 512];
		sink = (uint64_t)s;
	}
}

static int read_own(void *arg, uint64_t addr, void *buf, size_t n)
{
	struct iovec to = {buf, n}, from = {(void *)(uintptr_t)addr, n};
	ssize_t k = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

	(void)arg;
	return k < 0 ? -errno : (int)k;
}

static struct wg_mem *own_memory(void)
{
	static struct wg_map map = {.lo = 4096, .hi = 1ull << 47, .r = true, .w = true, .x = true};

	return wg_mem_open_fake(&map, 1, 1, read_own, NULL);
}

static uint64_t *stack; /* far from the program's data */

static void run(void (*fn)(volatile int *), struct wg_loop *out)
{
	struct wg_loop_regs r = {.ip = (uint64_t)(uintptr_t)fn};
	struct wg_mem *m = own_memory();

	r.r[SP] = (uint64_t)(uintptr_t)&stack[4000] - 8; /* as after a call */
	r.r[DI] = (uint64_t)(uintptr_t)&flag;
	r.fsbase = (uint64_t)(uintptr_t)__builtin_thread_pointer();
	wg_loop_run(m, &r, 60000, out);
	wg_mem_close(m);
}

static bool reads(const struct wg_loop *l, volatile void *p)
{
	for (int i = 0; i < l->nwords; i++)
		if (l->words[i].addr == (uint64_t)(uintptr_t)p)
			return true;
	return false;
}

static void polling_comes_round(void **state)
{
	void (*const fns[])(volatile int *) = {polls, polls_by_calls, takes_a_lock,
					       polls_backing_off};
	struct wg_loop l;

	(void)state;
	for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
		run(fns[i], &l);
		if (l.kind != WG_ROUND_SAME)
			fail_msg("loop %zu: kind %d, %s", i, l.kind, l.why ? l.why : "");
		assert_true(reads(&l, &flag));
		assert_true(l.insns > 0 && l.insns < 2000);
		assert_true(l.reads >= 1 && l.reads <= 3);
		assert_false(l.clock);
	}
#ifndef __SANITIZE_ADDRESS__ /* which looks up each variable's shadow, and moves it off the stack */
	/* A variable of the loop's own is no word of others, wherever in the round one begins. */
	run(polls_backing_off, &l);
	for (int i = 0; i < l.nwords; i++)
		assert_false(l.words[i].stack && l.words[i].size == 4);
#endif
	/* These come round too, and poll nothing: what they read tells. */
	run(sums_again, &l);
	assert_int_equal(l.kind, WG_ROUND_SAME);
#ifndef __SANITIZE_ADDRESS__
	assert_int_equal(l.reads, 64);
#endif
	run(nothing, &l);
	assert_int_equal(l.kind, WG_ROUND_SAME);
	assert_int_equal(l.reads, 0);
	assert_int_equal(flag, 0); /* what is run here is a copy */
}

static void known_functions_are_passed(void **state)
{
	struct wg_loop l;

	(void)state;
	run(polls_with_strcmp, &l);
	/* By name only where the loader's view of libc agrees with the maps: not over fake ones. */
	assert_true(l.kind == WG_ROUND_SAME || l.kind == WG_ROUND_UNKNOWN);
}

static void computing_does_not(void **state)
{
	struct wg_loop l;

	(void)state;
	run(computes, &l);
	assert_int_equal(l.kind, WG_ROUND_CHANGES);
	assert_false(l.fixed_reads);
	run(walks, &l);
	assert_int_equal(l.kind, WG_ROUND_CHANGES);
	assert_false(l.fixed_reads);
	run(polls_and_counts, &l);
	assert_int_equal(l.kind, WG_ROUND_CHANGES);
	assert_true(l.fixed_reads);
	assert_true(reads(&l, &flag));
}

static void samples_lie_on_the_round(void **state)
{
	struct wg_loop_regs r = {.ip = (uint64_t)(uintptr_t)polls};
	struct wg_loop l;

	(void)state;
	run(polls, &l);
	assert_int_equal(l.kind, WG_ROUND_SAME);
	r.r[SP] = 1;
	assert_false(wg_loop_has(&l, &r));
}

/* ---- against the processor ---------------------------------------------------------------------
 */

/* rdi: 11 words (ax cx dx bx si di r8 r9 r10 r11 flags), rsi: code. Both ways. */
extern void run_native(uint64_t *regs, void *code);
__asm__(".text\n.type run_native,@function\nrun_native:\n"
	"push %rbx\npush %rbp\npush %r12\npush %rdi\nmov %rdi,%rbp\nmov %rsi,%r12\n"
	"push 80(%rbp)\npopf\n"
	"mov 0(%rbp),%rax\nmov 8(%rbp),%rcx\nmov 16(%rbp),%rdx\nmov 24(%rbp),%rbx\n"
	"mov 32(%rbp),%rsi\nmov 40(%rbp),%rdi\nmov 48(%rbp),%r8\nmov 56(%rbp),%r9\n"
	"mov 64(%rbp),%r10\nmov 72(%rbp),%r11\n"
	"call *%r12\n"
	"pushf\npop 80(%rbp)\ncld\n"
	"mov %rax,0(%rbp)\nmov %rcx,8(%rbp)\nmov %rdx,16(%rbp)\nmov %rbx,24(%rbp)\n"
	"mov %rsi,32(%rbp)\nmov %rdi,40(%rbp)\nmov %r8,48(%rbp)\nmov %r9,56(%rbp)\n"
	"mov %r10,64(%rbp)\nmov %r11,72(%rbp)\n"
	"pop %rdi\npop %r12\npop %rbp\npop %rbx\nret\n.size run_native,.-run_native\n");

static const int order[10] = {AX, CX, DX, BX, SI, DI, 8, 9, 10, 11};
static uint64_t seed = 12345;

static uint32_t rnd(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

/* One register-to-register instruction into p. Its length; *flags: those that are defined after it.
 */
static int random_insn(uint8_t *p, uint64_t *flags)
{
	enum { CF = 1, PF = 4, ZF = 0x40, SF = 0x80, OF = 0x800, ALL = CF | PF | ZF | SF | OF };
	static const uint8_t bytes8[] = {0x00, 0x02, 0x08, 0x10, 0x18, 0x20, 0x28,
					 0x30, 0x38, 0x84, 0x86, 0x88, 0x8a};
	uint8_t reg = (uint8_t)order[rnd(10)], rm = (uint8_t)order[rnd(10)];
	uint8_t w = (uint8_t)rnd(2), rex, modrm;
	int n = 0;
	bool op16 = !rnd(6);

	rex = (uint8_t)(0x40 | w << 3 | (reg >> 3) << 2 | rm >> 3);
	modrm = (uint8_t)(0xc0 | (reg & 7) << 3 | (rm & 7));
	if (op16)
		p[n++] = 0x66;
	switch (rnd(12)) {
	case 0: /* add or adc sbb and sub xor cmp */
		p[n++] = rex;
		p[n++] = (uint8_t)(rnd(8) << 3 | 1 | rnd(2) << 1);
		p[n++] = modrm;
		*flags = ALL;
		return n;
	case 1:
		p[n++] = rex;
		p[n++] = 0x83;
		p[n++] = (uint8_t)(0xc0 | rnd(8) << 3 | (rm & 7));
		p[n++] = (uint8_t)rnd(256);
		*flags = ALL;
		return n;
	case 2: /* bytes, of the old and of the new kind */
		if (rnd(2))
			p[n++] = rex;
		p[n] = bytes8[rnd(sizeof(bytes8))];
		if (p[n] < 0x88 && p[n] != 0x86)
			*flags = ALL;
		n++;
		p[n++] = modrm;
		return n;
	case 3: /* shifts by a number */
		p[n++] = rex;
		p[n++] = 0xc1;
		{
			static const uint8_t kinds[] = {0, 1, 4, 5, 7};
			uint8_t kind = kinds[rnd(5)], by = (uint8_t)rnd(op16 && !w ? 15
									: w	   ? 63
										   : 31);

			p[n++] = (uint8_t)(0xc0 | kind << 3 | (rm & 7));
			p[n++] = (uint8_t)(by + 1);
			if (kind < 2)
				*flags = (*flags & ~(uint64_t)OF) | CF;
			else
				*flags = by ? ALL & ~(uint64_t)OF : ALL;
		}
		return n;
	case 4: /* movzx, movsx */
		p[n++] = rex;
		p[n++] = 0x0f;
		p[n++] = (uint8_t)(0xb6 + rnd(2) + 8 * rnd(2));
		if ((rm & 7) == 4)
			return 0;
		p[n++] = modrm;
		return n;
	case 5: /* cmov, setcc */
		if ((*flags & ALL) != ALL)
			return 0;
		p[n++] = rex;
		p[n++] = 0x0f;
		p[n++] = (uint8_t)((rnd(2) ? 0x40 : 0x90) + rnd(16));
		p[n++] = modrm;
		return n;
	case 6: /* imul */
		p[n++] = rex;
		p[n++] = 0x0f;
		p[n++] = 0xaf;
		p[n++] = modrm;
		*flags = CF | OF;
		return n;
	case 7: /* not, neg, inc, dec */
		p[n++] = rex;
		p[n] = rnd(2) ? 0xf7 : 0xff;
		modrm = (uint8_t)(0xc0 | (p[n] == 0xf7 ? 2 + rnd(2) : rnd(2)) << 3 | (rm & 7));
		if (p[n] == 0xf7 && (modrm >> 3 & 7) == 3)
			*flags = ALL;
		else if (p[n] == 0xff)
			*flags |= ALL & ~(uint64_t)CF;
		n++;
		p[n++] = modrm;
		return n;
	case 8: /* bit test and its kin */
		p[n++] = rex;
		p[n++] = 0x0f;
		p[n++] = 0xba;
		p[n++] = (uint8_t)(0xc0 | (4 + rnd(4)) << 3 | (rm & 7));
		p[n++] = (uint8_t)rnd(64);
		*flags = CF;
		return n;
	case 9: /* lea */
		p[n++] = rex | 0x40;
		p[n++] = 0x8d;
		p[n++] = (uint8_t)(0x40 | (reg & 7) << 3 | 4);
		p[n++] = (uint8_t)((rm & 7) << 3 | (rm & 7));
		p[n++] = (uint8_t)rnd(256);
		p[n - 4 - 1] = (uint8_t)((rex & ~1u) | (rm >> 3) << 1 | rm >> 3);
		return (rm & 7) == 5 || (rm & 7) == 4 ? 0 : n;
	case 10: /* xadd, cmpxchg */
		p[n++] = rex;
		p[n++] = 0x0f;
		p[n++] = rnd(2) ? 0xc1 : 0xb1;
		p[n++] = modrm;
		*flags = ALL;
		return n;
	default: /* sign extensions */
		p[n++] = (uint8_t)(0x40 | w << 3);
		p[n++] = (uint8_t)(0x98 + rnd(2));
		return n;
	}
}

static void as_the_processor_does(void **state)
{
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct wg_mem *m = own_memory();

	(void)state;
	assert_true(code != MAP_FAILED);
	for (int round = 0; round < 3000; round++) {
		uint64_t native[11], flags = 0x8c5; /* all are known at the start */
		struct wg_loop_regs r = {0};
		int at = 0;

		for (int i = 0; i < 12; i++) {
			uint64_t after = flags;
			int n = random_insn(code + at, &after);

			if (n)
				flags = after;
			at += n;
		}
		code[at++] = 0xc3;
		for (int i = 0; i < 10; i++)
			native[i] = rnd(4) ? (uint64_t)rnd(1u << 30) << rnd(40) : rnd(3) - 1;
		native[10] = 0x202 | (rnd(2) ? 0x8c5 : 0);
		for (int i = 0; i < 10; i++)
			r.r[order[i]] = native[i];
		r.flags = native[10];
		r.ip = (uint64_t)(uintptr_t)code;
		r.r[SP] = (uint64_t)(uintptr_t)&stack[2000];
		stack[2000] = 0x1234;
		wg_mem_forget(m);
		if (!wg_loop_follow(m, &r, 0x1234, 100))
			fail_msg("round %d: not followed at offset %d", round,
				 (int)(r.ip - (uint64_t)(uintptr_t)code));
		run_native(native, code);
		for (int i = 0; i < 10; i++)
			if (r.r[order[i]] != native[i]) {
				for (int k = 0; k < at; k++)
					print_message("%02x ", code[k]);
				fail_msg("round %d: register %d is %#llx, not %#llx", round,
					 order[i], (unsigned long long)r.r[order[i]],
					 (unsigned long long)native[i]);
			}
		if ((r.flags ^ native[10]) & flags) {
			for (int k = 0; k < at; k++)
				print_message("%02x ", code[k]);
			fail_msg("round %d: flags %#llx, not %#llx (of %#llx)", round,
				 (unsigned long long)r.flags, (unsigned long long)native[10],
				 (unsigned long long)flags);
		}
	}
	wg_mem_close(m);
	munmap(code, 4096);
}

/* ---- no program at all
 * ---------------------------------------------------------------------------- */

static uint8_t noise[8192];

static int read_noise(void *arg, uint64_t addr, void *buf, size_t n)
{
	(void)arg;
	if (addr < 0x10000 || addr + n > 0x12000)
		return -14;
	memcpy(buf, noise + (addr - 0x10000), n);
	return (int)n;
}

static void noise_ends(void **state)
{
	struct wg_map map = {.lo = 0x10000, .hi = 0x12000, .r = true, .w = true, .x = true};

	(void)state;
	for (int round = 0; round < 4000; round++) {
		struct wg_loop_regs r = {.ip = 0x10000 + rnd(0x2000), .flags = rnd(4096)};
		struct wg_mem *m;
		struct wg_loop l;

		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)rnd(256);
		for (int i = 0; i < 16; i++)
			r.r[i] = rnd(2) ? 0x10000 + rnd(0x2000)
					: ((uint64_t)rnd(~0u) << 32 | rnd(~0u));
		m = wg_mem_open_fake(&map, 1, 1, read_noise, NULL);
		wg_loop_run(m, &r, 2000, &l);
		assert_true(l.nwords >= 0 && l.nwords <= WG_LOOP_WORDS);
		assert_true(l.nstates >= 0 && l.nstates <= WG_LOOP_STATES);
		wg_mem_close(m);
	}
}

int main(void)
{
	stack = mmap((void *)(1ull << 40), 64 << 10, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(polling_comes_round),
		cmocka_unit_test(known_functions_are_passed),
		cmocka_unit_test(computing_does_not),
		cmocka_unit_test(samples_lie_on_the_round),
		cmocka_unit_test(as_the_processor_does),
		cmocka_unit_test(noise_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	return 0; /* loops are followed on x86-64 only */
}

#endif
