/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - does a thread that burns CPU get anywhere?
 *
 * Sampled program counters show where a thread is, not whether a round of its loop changes
 * anything. So its instructions are run here, from sampled registers, over a copy of its memory:
 *  - the same registers and the same memory again: a round leaves everything as it was. It will
 *    go round for ever, until somebody else writes a word that it reads. That is polling, and
 *    which words they are is known;
 *  - always something else: it computes, counts or walks (`fixed_reads` says that it may still
 *    be polling and counting its rounds);
 *  - an instruction that is not known here, a system call, memory that cannot be read: unknown.
 *
 * What is run is whatever the process has there: every address and length is checked, the number
 * of instructions is bounded, and nothing is executed natively. Time stands still while it runs:
 * a loop that asks for the time and does nothing else comes round, and says so (`clock`).
 */
#include "loop.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <time.h>

#include "procfs.h"

#if defined(__x86_64__)

enum { AX, CX, DX, BX, SP, BP, SI, DI };
enum { CF = 1, PF = 4, ZF = 0x40, SF = 0x80, OF = 0x800, ARITH = CF | PF | ZF | SF | OF };
#define PAGE 4096u
#define MAX_PAGES 128
#define MAX_TOUCHED 512
#define UNKNOWN_TLS                                                                                \
	(1ull << 62) /* where its thread-local memory lies is not known: a place of its own */
#define MAX_TLS 8

struct page {
	uint64_t addr;
	uint8_t data[PAGE];
};

struct machine {
	struct wg_mem *mem;
	struct page *pages[MAX_PAGES];
	int npages, last;
	uint64_t r[16], ip, flags, fsbase;
	uint64_t memhash; /* of all differences to the process' memory */
	uint64_t xmm[16][2];
	bool xmm_known[16];
	const char *why;
	bool clock, yields, stubbed;
	int64_t call;
	uint64_t call_args[6];
	uint64_t tsc;
	struct timespec times[3];
	bool time_known[3];
	uint64_t stubs[WG_LOOP_STUBS];
	struct {
		uint64_t addr, v;
		unsigned int n;
	} tls[MAX_TLS];
	bool jumped; /* out of line: another function may have been entered */
	/* while a round is recorded: which bytes it has written, and what it read before that */
	bool recording;
	struct {
		uint64_t at;
		uint8_t mask, varied; /* bytes written; bytes that were given another value */
	} wrote[MAX_TOUCHED];
	int nwrote;
	struct wg_loop_word words[WG_LOOP_WORDS];
	int nwords;
	uint64_t readhash; /* of the addresses of those reads */
	uint64_t read_at[64];
	uint32_t nreads;
	bool overflow;
	uint64_t stack_lo, stack_hi; /* the thread's own, as far as its stack pointer tells */
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static struct page *page_of(struct machine *k, uint64_t addr)
{
	struct page *p;

	addr &= ~(uint64_t)(PAGE - 1);
	if (k->npages && k->pages[k->last]->addr == addr)
		return k->pages[k->last];
	for (int i = 0; i < k->npages; i++)
		if (k->pages[i]->addr == addr) {
			k->last = i;
			return k->pages[i];
		}
	if (k->npages == MAX_PAGES) {
		k->why = "it touches much memory";
		return NULL;
	}
	p = malloc(sizeof(*p));
	if (!p || wg_mem_read(k->mem, addr, p->data, PAGE)) {
		free(p);
		k->why = "its memory could not be read";
		return NULL;
	}
	p->addr = addr;
	k->last = k->npages;
	k->pages[k->npages++] = p;
	return p;
}

static bool raw_read(struct machine *k, uint64_t addr, void *out, unsigned int n)
{
	for (unsigned int done = 0; done < n;) {
		struct page *p = page_of(k, addr + done);
		unsigned int off = (unsigned int)((addr + done) & (PAGE - 1)), c = PAGE - off;

		if (!p)
			return false;
		if (c > n - done)
			c = n - done;
		memcpy((uint8_t *)out + done, p->data + off, c);
		done += c;
	}
	return true;
}

static bool was_written(const struct machine *k, uint64_t addr, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t at = (addr + i) & ~7ull;
		bool hit = false;

		for (int j = 0; j < k->nwrote && !hit; j++)
			hit = k->wrote[j].at == at && (k->wrote[j].mask >> ((addr + i) & 7) & 1);
		if (!hit)
			return false;
	}
	return true;
}

static void note_write(struct machine *k, uint64_t addr, unsigned int n, unsigned int varied)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t at = (addr + i) & ~7ull;
		int j;

		for (j = 0; j < k->nwrote && k->wrote[j].at != at; j++)
			;
		if (j == MAX_TOUCHED) {
			k->overflow = true;
			return;
		}
		if (j == k->nwrote) {
			k->wrote[k->nwrote].at = at;
			k->wrote[k->nwrote].varied = 0;
			k->wrote[k->nwrote++].mask = 0;
		}
		k->wrote[j].mask |= (uint8_t)(1u << ((addr + i) & 7));
		if (varied >> i & 1)
			k->wrote[j].varied |= (uint8_t)(1u << ((addr + i) & 7));
	}
}

/* What others can write: memory that may be written at all, and not by this round before. */
static void note_read(struct machine *k, uint64_t addr, uint64_t value, unsigned int n)
{
	const struct wg_map *map;
	bool stack;

	if (was_written(k, addr, n))
		return;
	for (int i = 0; i < k->nwords; i++)
		if (k->words[i].addr == addr && k->words[i].size == n)
			return;
	map = wg_mem_map_at(k->mem, addr);
	if (!map || (!map->w && !map->shared))
		return;
	stack = addr >= k->stack_lo && addr < k->stack_hi;
	if (!stack) { /* the stack's own words come round anyhow */
		enum { MANY = sizeof(k->read_at) / sizeof(k->read_at[0]) };

		for (uint32_t i = 0; i < k->nreads && i < MANY; i++)
			if (k->read_at[i] == addr)
				return;
		if (k->nreads < MANY)
			k->read_at[k->nreads] = addr;
		k->readhash += mix(addr * 16 + n);
		k->nreads++;
	}
	if (k->nwords == WG_LOOP_WORDS)
		return;
	k->words[k->nwords++] = (struct wg_loop_word){
		.addr = addr, .value = value, .size = (uint8_t)n, .stack = stack};
}

/* Thread-local memory of an unknown place: only what was written there is known (errno, mostly). */
static bool unknown_tls(struct machine *k, uint64_t addr, unsigned int n, uint64_t *v, bool write)
{
	for (int i = 0; i < MAX_TLS; i++) {
		if (k->tls[i].n && (k->tls[i].addr != addr || k->tls[i].n != n))
			continue;
		if (!k->tls[i].n && !write)
			break;
		if (write && k->tls[i].n)
			k->memhash ^= mix(addr ^ mix(k->tls[i].v));
		if (write) {
			k->tls[i].addr = addr;
			k->tls[i].n = n;
			k->tls[i].v = *v;
			k->memhash ^= mix(addr ^ mix(*v));
		}
		*v = k->tls[i].v;
		return true;
	}
	k->why = "its thread-local memory is not known";
	return false;
}

static bool load(struct machine *k, uint64_t addr, unsigned int n, uint64_t *out)
{
	*out = 0;
	if (addr - (UNKNOWN_TLS - (1ull << 32)) < 2ull << 32)
		return unknown_tls(k, addr, n, out, false);
	if (!raw_read(k, addr, out, n))
		return false;
	if (k->recording)
		note_read(k, addr, *out, n);
	return true;
}

static bool store(struct machine *k, uint64_t addr, unsigned int n, uint64_t value)
{
	unsigned int varied = 0;

	if (addr - (UNKNOWN_TLS - (1ull << 32)) < 2ull << 32)
		return unknown_tls(k, addr, n, &value, true);
	for (unsigned int i = 0; i < n; i++) {
		struct page *p = page_of(k, addr + i);
		uint8_t *at, b = (uint8_t)(value >> 8 * i);

		if (!p)
			return false;
		at = p->data + ((addr + i) & (PAGE - 1));
		if (*at != b) {
			k->memhash ^= mix((addr + i) * 256 + *at) ^ mix((addr + i) * 256 + b);
			*at = b;
			varied |= 1u << i;
		}
	}
	if (k->recording)
		note_write(k, addr, n, varied);
	return true;
}

/* ---- instructions ------------------------------------------------------------------------ */

struct op {
	struct machine *k;
	const uint8_t *p;
	unsigned int i, n; /* next byte, bytes there are */
	uint8_t rex;
	bool op16, rep, repne, lock, fs, gs;
	unsigned int size; /* operand size in bytes */
	/* modrm */
	int mod, reg, rm;
	uint64_t ea;
	bool bad;
};

static uint64_t mask_of(unsigned int n)
{
	return n >= 8 ? ~0ull : (1ull << 8 * n) - 1;
}

static uint64_t sign(uint64_t v, unsigned int n)
{
	uint64_t top = 1ull << (8 * n - 1);

	v &= mask_of(n);
	return n >= 8 ? v : (v ^ top) - top;
}

static uint64_t imm(struct op *o, unsigned int n)
{
	uint64_t v = 0;

	if (o->i + n > o->n) {
		o->bad = true;
		return 0;
	}
	memcpy(&v, o->p + o->i, n);
	o->i += n;
	return sign(v, n);
}

static uint64_t get_reg(const struct op *o, int reg, unsigned int n)
{
	const struct machine *k = o->k;

	if (n == 1 && !o->rex && reg >= 4 && reg < 8)
		return k->r[reg - 4] >> 8 & 0xff;
	return k->r[reg] & mask_of(n);
}

static void set_reg(struct op *o, int reg, unsigned int n, uint64_t v)
{
	struct machine *k = o->k;

	if (n == 1 && !o->rex && reg >= 4 && reg < 8)
		k->r[reg - 4] = (k->r[reg - 4] & ~0xff00ull) | (v & 0xff) << 8;
	else if (n >= 4)
		k->r[reg] = v & mask_of(n);
	else
		k->r[reg] = (k->r[reg] & ~mask_of(n)) | (v & mask_of(n));
}

/* trailing: bytes of immediates that follow, which a rip-relative address counts from. */
static bool modrm(struct op *o, unsigned int trailing)
{
	struct machine *k = o->k;
	uint8_t b;
	bool rip = false;
	uint64_t ea = 0;

	if (o->i >= o->n)
		return false;
	b = o->p[o->i++];
	o->mod = b >> 6;
	o->reg = (b >> 3 & 7) | (o->rex & 4 ? 8 : 0);
	o->rm = (b & 7) | (o->rex & 1 ? 8 : 0);
	if (o->mod == 3)
		return true;
	if ((b & 7) == 4) {
		uint8_t s;
		int index, base;

		if (o->i >= o->n)
			return false;
		s = o->p[o->i++];
		index = (s >> 3 & 7) | (o->rex & 2 ? 8 : 0);
		base = (s & 7) | (o->rex & 1 ? 8 : 0);
		if ((s & 7) == 5 && o->mod == 0)
			ea = imm(o, 4);
		else
			ea = k->r[base];
		if (index != 4)
			ea += k->r[index] << (s >> 6);
	} else if ((b & 7) == 5 && o->mod == 0) {
		ea = imm(o, 4);
		rip = true;
	} else {
		ea = k->r[o->rm];
	}
	if (o->mod == 1)
		ea += imm(o, 1);
	else if (o->mod == 2)
		ea += imm(o, 4);
	if (rip)
		ea += k->ip + o->i + trailing;
	if (o->fs) {
		ea += k->fsbase ? k->fsbase : UNKNOWN_TLS;
	} else if (o->gs) {
		return false;
	}
	o->ea = ea;
	return !o->bad;
}

static bool get_rm(struct op *o, unsigned int n, uint64_t *v)
{
	if (o->mod == 3) {
		*v = get_reg(o, o->rm, n);
		return true;
	}
	return load(o->k, o->ea, n, v);
}

static bool set_rm(struct op *o, unsigned int n, uint64_t v)
{
	if (o->mod == 3) {
		set_reg(o, o->rm, n, v);
		return true;
	}
	return store(o->k, o->ea, n, v & mask_of(n));
}

static void result_flags(struct machine *k, uint64_t v, unsigned int n)
{
	v &= mask_of(n);
	k->flags &= ~(uint64_t)(PF | ZF | SF);
	if (!v)
		k->flags |= ZF;
	if (v >> (8 * n - 1) & 1)
		k->flags |= SF;
	if (!(__builtin_popcount((unsigned int)(v & 0xff)) & 1))
		k->flags |= PF;
}

static void set_flag(struct machine *k, uint64_t f, bool on)
{
	k->flags = on ? k->flags | f : k->flags & ~f;
}

/* kind: add or adc sbb and sub xor cmp, as encoded. cmp's result is not stored. */
static uint64_t alu(struct machine *k, int kind, uint64_t a, uint64_t b, unsigned int n)
{
	uint64_t m = mask_of(n), v, c = (k->flags & CF) ? 1 : 0;
	unsigned int top = 8 * n - 1;

	a &= m;
	b &= m;
	switch (kind) {
	case 0:
	case 2:
		if (kind == 0)
			c = 0;
		v = (a + b + c) & m;
		set_flag(k, CF, n < 8 ? (a + b + c) >> (8 * n) & 1 : (v < a || (c && v == a)));
		set_flag(k, OF, (~(a ^ b) & (a ^ v)) >> top & 1);
		break;
	case 3:
	case 5:
	case 7:
		if (kind != 3)
			c = 0;
		v = (a - b - c) & m;
		set_flag(k, CF, a < b || (c && a == b));
		set_flag(k, OF, ((a ^ b) & (a ^ v)) >> top & 1);
		break;
	default:
		v = kind == 1 ? a | b : kind == 4 ? a & b : a ^ b;
		k->flags &= ~(uint64_t)(CF | OF);
		break;
	}
	result_flags(k, v, n);
	return v;
}

static bool cond(const struct machine *k, int cc)
{
	bool c = k->flags & CF, z = k->flags & ZF, s = k->flags & SF, v = k->flags & OF, r;

	switch (cc >> 1) {
	case 0:
		r = v;
		break;
	case 1:
		r = c;
		break;
	case 2:
		r = z;
		break;
	case 3:
		r = c || z;
		break;
	case 4:
		r = s;
		break;
	case 5:
		r = k->flags & PF;
		break;
	case 6:
		r = s != v;
		break;
	default:
		r = z || s != v;
		break;
	}
	return r != (cc & 1);
}

static bool push(struct machine *k, uint64_t v)
{
	k->r[SP] -= 8;
	return store(k, k->r[SP], 8, v);
}

static bool pop(struct machine *k, uint64_t *v)
{
	if (!load(k, k->r[SP], 8, v))
		return false;
	k->r[SP] += 8;
	return true;
}

static bool shift(struct op *o, int kind, unsigned int n, unsigned int count)
{
	struct machine *k = o->k;
	unsigned int bits = 8 * n;
	uint64_t v, x;

	count &= n == 8 ? 63 : 31;
	if (!get_rm(o, n, &v))
		return false;
	if (!count)
		return set_rm(o, n, v);
	x = v;
	switch (kind) {
	case 0: /* rol */
	case 1:
		if (count % bits) {
			unsigned int c = kind ? bits - count % bits : count % bits;

			v = (x << c | x >> (bits - c)) & mask_of(n);
		}
		set_flag(k, CF, kind ? v >> (bits - 1) & 1 : v & 1);
		return set_rm(o, n, v);
	case 4:
	case 6:
		v = count < bits ? x << count & mask_of(n) : 0;
		set_flag(k, CF, count <= bits && (x >> (bits - count) & 1));
		set_flag(k, OF, (v >> (bits - 1) & 1) != ((k->flags & CF) != 0));
		break;
	case 5:
		v = count < bits ? x >> count : 0;
		set_flag(k, CF, count <= bits && (x >> (count - 1) & 1));
		set_flag(k, OF, x >> (bits - 1) & 1);
		break;
	case 7: {
		int64_t s = (int64_t)sign(x, n);

		v = (uint64_t)(s >> (count > 63 ? 63 : count)) & mask_of(n);
		set_flag(k, CF, s >> (count - 1 > 63 ? 63 : count - 1) & 1);
		set_flag(k, OF, false);
		break;
	}
	default:
		return false;
	}
	result_flags(k, v, n);
	return set_rm(o, n, v);
}

static bool muldiv(struct op *o, int kind, unsigned int n)
{
	struct machine *k = o->k;
	uint64_t v, a = k->r[AX] & mask_of(n), d = k->r[DX] & mask_of(n);

	if (n == 1 || !get_rm(o, n, &v))
		return false;
	if (kind == 4 || kind == 5) { /* mul, imul */
		unsigned __int128 w = kind == 4
					      ? (unsigned __int128)a * v
					      : (unsigned __int128)((__int128)(int64_t)sign(a, n) *
								    (int64_t)sign(v, n));
		uint64_t lo = (uint64_t)w & mask_of(n), hi = (uint64_t)(w >> 8 * n) & mask_of(n);
		bool over = kind == 4 ? hi : hi != ((lo >> (8 * n - 1)) ? mask_of(n) : 0);

		set_reg(o, AX, n, lo);
		set_reg(o, DX, n, hi);
		result_flags(k, lo, n);
		set_flag(k, CF | OF, over);
		return true;
	}
	if (!v)
		return false;
	if (kind == 6) {
		unsigned __int128 w = (unsigned __int128)d << 8 * n | a;

		if (w / v > mask_of(n))
			return false;
		set_reg(o, AX, n, (uint64_t)(w / v));
		set_reg(o, DX, n, (uint64_t)(w % v));
		return true;
	}
	{
		__int128 w = (__int128)((unsigned __int128)sign(d, n) << 8 * n | a);
		int64_t by = (int64_t)sign(v, n);

		if (n < 8)
			w = (int64_t)((d << 8 * n | a) << (64 - 16 * n)) >> (64 - 16 * n);
		if (n == 8 && (w >> 63) != 0 && (w >> 63) != -1)
			return false;
		if (by == -1 || !by)
			return false;
		set_reg(o, AX, n, (uint64_t)(w / by));
		set_reg(o, DX, n, (uint64_t)(w % by));
		return true;
	}
}

static bool strings(struct op *o, uint8_t code)
{
	struct machine *k = o->k;
	unsigned int n = code & 1 ? o->size : 1;
	bool counted = o->rep || o->repne,
	     cmps = code == 0xa6 || code == 0xa7 || code == 0xae || code == 0xaf;

	if (k->flags & 0x400)
		return false;
	for (int i = 0; i < 65536; i++) {
		uint64_t v = k->r[AX], w;

		if (counted && !k->r[CX])
			return true;
		if (code <= 0xa7 || code >= 0xac) {
			if (code < 0xae && !load(k, k->r[SI], n, &v))
				return false;
			if (code < 0xae)
				k->r[SI] += n;
		}
		if (code == 0xac || code == 0xad) {
			set_reg(o, AX, n, v);
		} else if (cmps) {
			if (!load(k, k->r[DI], n, &w))
				return false;
			k->r[DI] += n;
			alu(k, 7, v, w, n);
		} else {
			if (!store(k, k->r[DI], n, v & mask_of(n)))
				return false;
			k->r[DI] += n;
		}
		if (!counted)
			return true;
		k->r[CX]--;
		if (cmps && ((k->flags & ZF) != 0) != o->rep)
			return true;
	}
	return false;
}

/* What a call answers while that which it asks for has not come. */
static bool not_yet(int64_t nr, uint64_t *answer)
{
	static const struct {
		const char *name;
		int err;
	} calls[] = {
		{"read", EAGAIN},
		{"readv", EAGAIN},
		{"recvfrom", EAGAIN},
		{"recvmsg", EAGAIN},
		{"accept", EAGAIN},
		{"accept4", EAGAIN},
		{"write", EAGAIN},
		{"sendto", EAGAIN},
		{"sendmsg", EAGAIN},
		{"poll", 0},
		{"ppoll", 0},
		{"epoll_wait", 0},
		{"epoll_pwait", 0},
		{"wait4", 0},
		{"access", ENOENT},
		{"faccessat", ENOENT},
		{"faccessat2", ENOENT},
		{"stat", ENOENT},
		{"newfstatat", ENOENT},
		{"statx", ENOENT},
		{"kill", 0},
		{"tgkill", 0},
		{"flock", EAGAIN},
		{"msgrcv", ENOMSG},
		{"mq_timedreceive", EAGAIN},
		{"rt_sigtimedwait", EAGAIN},
	};
	const char *name = wg_syscall_name(nr);

	for (size_t i = 0; name && i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i].name, name)) {
			*answer = (uint64_t) - (int64_t)calls[i].err;
			return true;
		}
	return false;
}

static bool system_call(struct op *o)
{
	struct machine *k = o->k;
	uint64_t nr = k->r[AX];

	switch (nr) {
	case 24: /* sched_yield */
		k->r[AX] = 0;
		k->yields = true;
		break;
	case 228: /* clock_gettime: the caller's buffer keeps what it held */
	case 96:
		k->r[AX] = 0;
		k->clock = true;
		break;
	default:
		if (nr > 1024 || !not_yet((int64_t)nr, &k->r[AX])) {
			k->why = "it makes a system call";
			return false;
		}
		if (!wg_has_int(k->call)) {
			static const int args[6] = {DI, SI, DX, 10, 8, 9};

			k->call = (int64_t)nr;
			for (int i = 0; i < 6; i++)
				k->call_args[i] = k->r[args[i]];
		}
	}
	k->r[CX] = k->ip + o->i;
	k->r[11] = k->flags;
	return true;
}

/* Vector registers: moved, cleared and compared for equality; more is computing. */
static bool vector(struct op *o, uint8_t code)
{
	struct machine *k = o->k;
	unsigned int n = 16;
	uint64_t v[2] = {0, 0};
	bool to_mem = false, gpr = false;

	switch (code) {
	case 0x10:
	case 0x11:
		n = o->rep ? 4 : o->repne ? 8 : 16;
		to_mem = code == 0x11;
		break;
	case 0x28:
	case 0x29:
		to_mem = code == 0x29;
		break;
	case 0x6f:
	case 0x7f:
		if (!o->op16 && !o->rep)
			return false;
		to_mem = code == 0x7f;
		break;
	case 0x6e:
	case 0x7e:
		if (code == 0x7e && o->rep) {
			n = 8;
			break;
		}
		if (!o->op16)
			return false;
		n = o->rex & 8 ? 8 : 4;
		gpr = true;
		to_mem = code == 0x7e;
		break;
	case 0xd6:
		if (!o->op16)
			return false;
		n = 8;
		to_mem = true;
		break;
	case 0xef:
	case 0x57:
		break;
	default:
		return false;
	}
	if (!modrm(o, 0))
		return false;
	if (code == 0xef || code == 0x57) {
		if (o->mod != 3 || o->reg != o->rm)
			return false;
		k->xmm[o->reg][0] = k->xmm[o->reg][1] = 0;
		k->xmm_known[o->reg] = true;
		return true;
	}
	if (to_mem) {
		if (!k->xmm_known[o->reg])
			return false;
		memcpy(v, k->xmm[o->reg], sizeof(v));
		if (o->mod == 3 && gpr) {
			set_reg(o, o->rm, n, v[0]);
			return true;
		}
		if (o->mod == 3) {
			if (n < 16)
				return false;
			memcpy(k->xmm[o->rm], v, sizeof(v));
			k->xmm_known[o->rm] = true;
			return true;
		}
		return store(k, o->ea, n > 8 ? 8 : n, v[0]) &&
		       (n < 16 || store(k, o->ea + 8, 8, v[1]));
	}
	if (o->mod == 3 && gpr) {
		v[0] = get_reg(o, o->rm, n);
	} else if (o->mod == 3) {
		if (n < 8 || !k->xmm_known[o->rm] || (n == 8 && code == 0x10))
			return false;
		v[0] = k->xmm[o->rm][0];
		v[1] = n == 16 ? k->xmm[o->rm][1] : 0;
	} else if (!load(k, o->ea, n > 8 ? 8 : n, &v[0]) ||
		   (n == 16 && !load(k, o->ea + 8, 8, &v[1]))) {
		return false;
	}
	memcpy(k->xmm[o->reg], v, sizeof(v));
	k->xmm_known[o->reg] = true;
	return true;
}

static bool two_byte(struct op *o)
{
	struct machine *k = o->k;
	uint64_t v, w;
	uint8_t code;
	unsigned int n = o->size;

	if (o->i >= o->n)
		return false;
	code = o->p[o->i++];
	if (code >= 0x80 && code <= 0x8f) {
		v = imm(o, 4);
		k->ip += o->i + (cond(k, code & 15) ? v : 0);
		return !o->bad;
	}
	switch (code) {
	case 0x05:
		if (!system_call(o))
			return false;
		k->ip += o->i;
		return true;
	case 0x31: /* rdtsc */
		k->clock = true;
		k->r[AX] = k->tsc & 0xffffffffu;
		k->r[DX] = k->tsc >> 32;
		k->ip += o->i;
		return true;
	case 0x01:
		if (o->i < o->n && o->p[o->i] == 0xf9) { /* rdtscp */
			o->i++;
			k->clock = true;
			k->r[AX] = k->tsc & 0xffffffffu;
			k->r[DX] = k->tsc >> 32;
			k->r[CX] = 0;
			k->ip += o->i;
			return true;
		}
		return false;
	}
	if (code >= 0xc8 && code <= 0xcf) {
		int reg = (code & 7) | (o->rex & 1 ? 8 : 0);

		set_reg(o, reg, n,
			n == 8 ? __builtin_bswap64(k->r[reg])
			       : __builtin_bswap32((uint32_t)k->r[reg]));
		k->ip += o->i;
		return n >= 4;
	}
	if (code == 0x10 || code == 0x11 || code == 0x28 || code == 0x29 || code == 0x6f ||
	    code == 0x7f || code == 0x6e || code == 0x7e || code == 0xd6 || code == 0xef ||
	    code == 0x57) {
		if (!vector(o, code))
			return false;
		k->ip += o->i;
		return true;
	}
	if (!modrm(o, code == 0xba || code == 0xa4 || code == 0xac ? 1 : 0))
		return false;
	if (code >= 0x40 && code <= 0x4f) {
		if (!get_rm(o, n, &v))
			return false;
		set_reg(o, o->reg, n, cond(k, code & 15) ? v : get_reg(o, o->reg, n));
		k->ip += o->i;
		return true;
	}
	if (code >= 0x90 && code <= 0x9f) {
		if (!set_rm(o, 1, cond(k, code & 15)))
			return false;
		k->ip += o->i;
		return true;
	}
	switch (code) {
	case 0x0d:
	case 0x18:
	case 0x1e:
	case 0x1f: /* nop, prefetch, endbr */
		break;
	case 0xae: /* fences */
		if (o->mod != 3 || (o->reg & 7) < 5)
			return false;
		break;
	case 0xaf:
		if (!get_rm(o, n, &v))
			return false;
		{
			__int128 x = (__int128)(int64_t)sign(get_reg(o, o->reg, n), n) *
				     (int64_t)sign(v, n);

			v = (uint64_t)x & mask_of(n);
			set_reg(o, o->reg, n, v);
			result_flags(k, v, n);
			set_flag(k, CF | OF, (__int128)(int64_t)sign(v, n) != x);
		}
		break;
	case 0xb6:
	case 0xb7:
	case 0xbe:
	case 0xbf:
		if (!get_rm(o, code & 1 ? 2 : 1, &v))
			return false;
		if (code >= 0xbe)
			v = sign(v, code & 1 ? 2 : 1);
		set_reg(o, o->reg, n, v);
		break;
	case 0xb0:
	case 0xb1: /* cmpxchg */
		n = code & 1 ? n : 1;
		if (!get_rm(o, n, &v))
			return false;
		alu(k, 7, k->r[AX], v, n);
		if (k->flags & ZF) {
			if (!set_rm(o, n, get_reg(o, o->reg, n)))
				return false;
		} else {
			set_reg(o, AX, n, v);
			if (o->mod != 3 && !set_rm(o, n, v)) /* memory is written all the same */
				return false;
		}
		break;
	case 0xc0:
	case 0xc1: /* xadd */
		n = code & 1 ? n : 1;
		if (!get_rm(o, n, &v))
			return false;
		w = alu(k, 0, v, get_reg(o, o->reg, n), n);
		set_reg(o, o->reg, n, v);
		if (!set_rm(o, n, w))
			return false;
		break;
	case 0xa3:
	case 0xab:
	case 0xb3:
	case 0xbb:
	case 0xba: {
		int kind = code == 0xba ? o->reg & 7 : 4 + (code >> 3 & 3);
		uint64_t bit = code == 0xba ? 0 : get_reg(o, o->reg, n);

		if (code == 0xba) {
			bit = imm(o, 1);
			if (kind < 4)
				return false;
		} else if (o->mod != 3) {
			return false;
		}
		bit &= 8 * n - 1;
		if (!get_rm(o, n, &v))
			return false;
		set_flag(k, CF, v >> bit & 1);
		if (kind == 5)
			v |= 1ull << bit;
		else if (kind == 6)
			v &= ~(1ull << bit);
		else if (kind == 7)
			v ^= 1ull << bit;
		if (kind != 4 && !set_rm(o, n, v))
			return false;
		break;
	}
	case 0xbc:
	case 0xbd:
	case 0xb8:
		if (!get_rm(o, n, &v))
			return false;
		if (code == 0xb8) {
			if (!o->rep)
				return false;
			w = (uint64_t)__builtin_popcountll(v);
			k->flags &= ~(uint64_t)ARITH;
		} else if (!v) {
			if (!o->rep)
				return false;
			w = 8 * n;
			set_flag(k, CF, true);
		} else {
			w = code == 0xbc ? (uint64_t)__builtin_ctzll(v)
					 : 63 - (uint64_t)__builtin_clzll(v);
			if (o->rep && code == 0xbd)
				w = 8 * n - 1 - w;
			set_flag(k, CF, false);
		}
		set_flag(k, ZF, o->rep ? !w && code != 0xb8 : !v);
		set_reg(o, o->reg, n, w);
		break;
	case 0xc7: /* cmpxchg8b, 16b */
		if ((o->reg & 7) != 1 || o->mod == 3 || !(o->rex & 8))
			return false;
		if (!load(k, o->ea, 8, &v) || !load(k, o->ea + 8, 8, &w))
			return false;
		if (v == k->r[AX] && w == k->r[DX]) {
			set_flag(k, ZF, true);
			if (!store(k, o->ea, 8, k->r[BX]) || !store(k, o->ea + 8, 8, k->r[CX]))
				return false;
		} else {
			set_flag(k, ZF, false);
			k->r[AX] = v;
			k->r[DX] = w;
		}
		break;
	default:
		return false;
	}
	k->ip += o->i;
	return !o->bad;
}

/* ---- functions that are known as a whole -------------------------------------------------------
 *
 * libc's string functions use vector instructions that are not followed here, and the vdso reads
 * pages that nobody else may read. Both are the same files for the reader and for the process
 * (mostly: else they stay unknown), so their entries are found by our own addresses.
 */
enum known {
	K_STRCMP,
	K_STRNCMP,
	K_STRCASECMP,
	K_MEMCMP,
	K_STRLEN,
	K_GETTIME,
	K_GETTIMEOFDAY,
	K_TIME,
	KNOWN
};

static struct {
	uint64_t dev, ino, off; /* of the entry in its file; vdso: ino 0, off from its start */
} entries[KNOWN];
static bool any_libc, any_vdso;

static void find_entries(void)
{
	static const char *const names[KNOWN] = {"strcmp",
						 "strncmp",
						 "strcasecmp",
						 "memcmp",
						 "strlen",
						 "__vdso_clock_gettime",
						 "__vdso_gettimeofday",
						 "__vdso_time"};
	uint64_t base = getauxval(AT_SYSINFO_EHDR);
	void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
	/* Its own, whoever stands before it here (a sanitizer, a preloaded library). */
	void *own = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	for (int i = 0; i < KNOWN; i++) {
		bool libc = i < K_GETTIME;
		void *at = libc	  ? dlsym(own ? own : RTLD_DEFAULT, names[i])
			   : vdso ? dlsym(vdso, names[i])
				  : NULL;
		struct stat st;
		Dl_info where;

		entries[i].off = UINT64_MAX;
		if (!at)
			continue;
		if (!libc) {
			entries[i].off = (uint64_t)(uintptr_t)at - base;
			any_vdso |= base != 0;
		} else if (dladdr(at, &where) && where.dli_fname && !stat(where.dli_fname, &st)) {
			entries[i].dev = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev);
			entries[i].ino = st.st_ino;
			entries[i].off = (uint64_t)((char *)at - (char *)where.dli_fbase);
			any_libc = true;
		}
	}
	if (vdso)
		dlclose(vdso);
	if (own)
		dlclose(own);
}

static int known_function(struct machine *k)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct wg_map *map;
	bool vdso;

	pthread_once(&once, find_entries);
	map = wg_mem_map_at(k->mem, k->ip);
	if (!map || !map->path)
		return -1;
	vdso = !strcmp(map->path, "[vdso]");
	for (int i = vdso ? K_GETTIME : 0; i < (vdso ? KNOWN : K_GETTIME); i++)
		if (entries[i].off == k->ip - map->lo + (vdso ? 0 : map->off) &&
		    (vdso || (entries[i].ino == map->ino && entries[i].dev == map->dev)))
			return i;
	return vdso ? KNOWN : -1;
}

static bool compare(struct machine *k, int which)
{
	uint64_t a = k->r[DI], b = k->r[SI],
		 n = which == K_STRCMP || which == K_STRCASECMP ? UINT64_MAX : k->r[DX];
	int result = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint8_t x, y;

		if (i == 65536 || !raw_read(k, a + i, &x, 1) || !raw_read(k, b + i, &y, 1))
			return false;
		if (!i && k->recording) {
			note_read(k, a, x, 1);
			note_read(k, b, y, 1);
		}
		if (which == K_STRCASECMP) {
			x = x >= 'A' && x <= 'Z' ? (uint8_t)(x + 32) : x;
			y = y >= 'A' && y <= 'Z' ? (uint8_t)(y + 32) : y;
		}
		result = x - y;
		if (result || (which != K_MEMCMP && !x))
			break;
	}
	k->r[AX] = (uint32_t)result;
	return true;
}

/* The time, as it was when the run began. */
static bool tell_time(struct machine *k, int which)
{
	struct timespec t = {0};

	k->clock = true;
	if (which == K_GETTIME && clock_gettime((clockid_t)k->r[DI], &t))
		return false;
	if (which != K_GETTIME)
		clock_gettime(CLOCK_REALTIME, &t);
	if (k->time_known[which - K_GETTIME])
		t = k->times[which - K_GETTIME];
	k->time_known[which - K_GETTIME] = true;
	k->times[which - K_GETTIME] = t;
	k->r[AX] = which == K_TIME ? (uint64_t)t.tv_sec : 0;
	if (which == K_TIME)
		return !k->r[DI] || store(k, k->r[DI], 8, k->r[AX]);
	k->r[AX] = 0;
	if (which == K_GETTIMEOFDAY)
		return store(k, k->r[DI], 8, (uint64_t)t.tv_sec) &&
		       store(k, k->r[DI] + 8, 8, (uint64_t)t.tv_nsec / 1000);
	return store(k, k->r[SI], 8, (uint64_t)t.tv_sec) &&
	       store(k, k->r[SI] + 8, 8, (uint64_t)t.tv_nsec);
}

/* Where a call or jump has just led. -1: unknown, and the run ends; 0: not one of these. */
static int call_known(struct machine *k)
{
	int which = known_function(k);
	uint64_t n = 0;
	uint8_t x = 1;

	if (which < 0)
		return 0;
	if (which == KNOWN) {
		k->why = "it is inside the kernel's own page of functions";
		return -1;
	}
	if (which == K_STRLEN) {
		for (; n < 65536 && x; n += x != 0)
			if (!raw_read(k, k->r[DI] + n, &x, 1))
				return -1;
		k->r[AX] = n;
	} else if (which >= K_GETTIME ? !tell_time(k, which) : !compare(k, which)) {
		return -1;
	}
	/* What a function may change is not to be relied on: the same each time will do. */
	k->r[CX] = k->r[DX] = k->r[SI] = k->r[DI] = 0;
	k->r[8] = k->r[9] = k->r[10] = k->r[11] = 0;
	k->flags &= ~(uint64_t)ARITH;
	memset(k->xmm_known, 0, sizeof(k->xmm_known));
	memset(k->xmm, 0, sizeof(k->xmm));
	k->stubbed = true;
	for (int i = 0; i < WG_LOOP_STUBS && k->stubs[i] != k->ip; i++)
		if (!k->stubs[i]) {
			k->stubs[i] = k->ip;
			break;
		}
	return pop(k, &k->ip) ? 1 : -1;
}

/* One instruction. False: it is not known here, or its memory is not. */
static bool step(struct machine *k)
{
	uint8_t bytes[16], code;
	struct op o = {.k = k, .p = bytes, .size = 4};
	uint64_t v, w;
	unsigned int n;
	bool recording = k->recording;

	k->recording = false; /* code is no data */
	o.n = 15;
	while (o.n && !raw_read(k, k->ip, bytes, o.n))
		o.n = o.n == 15 ? PAGE - (unsigned int)(k->ip & (PAGE - 1)) < 15
					  ? PAGE - (unsigned int)(k->ip & (PAGE - 1))
					  : 0
				: 0;
	k->recording = recording;
	if (!o.n)
		return false;
	k->why = NULL;
	if (k->jumped) {
		int rc = call_known(k);

		k->jumped = false;
		if (rc)
			return rc > 0;
	}
	for (; o.i < o.n; o.i++) {
		uint8_t b = bytes[o.i];

		if (b == 0x66)
			o.op16 = true;
		else if (b == 0xf3)
			o.rep = true;
		else if (b == 0xf2)
			o.repne = true;
		else if (b == 0xf0)
			o.lock = true;
		else if (b == 0x64)
			o.fs = true;
		else if (b == 0x65)
			o.gs = true;
		else if (b != 0x2e && b != 0x3e)
			break;
	}
	if (o.i < o.n && (bytes[o.i] & 0xf0) == 0x40)
		o.rex = bytes[o.i++];
	if (o.i >= o.n)
		return false;
	o.size = o.rex & 8 ? 8 : o.op16 ? 2 : 4;
	code = bytes[o.i++];
	if (code == 0x0f)
		return two_byte(&o);
	n = code & 1 ? o.size : 1;
	if (code < 0x40 && (code & 7) < 6) {
		int kind = code >> 3;

		if ((code & 7) >= 4) {
			v = imm(&o, n > 4 ? 4 : n);
			w = alu(k, kind, k->r[AX], v, n);
			if (kind != 7)
				set_reg(&o, AX, n, w);
		} else {
			if (!modrm(&o, 0) || !get_rm(&o, n, &v))
				return false;
			if (code & 2) {
				w = alu(k, kind, get_reg(&o, o.reg, n), v, n);
				if (kind != 7)
					set_reg(&o, o.reg, n, w);
			} else {
				w = alu(k, kind, v, get_reg(&o, o.reg, n), n);
				if (kind != 7 && !set_rm(&o, n, w))
					return false;
			}
		}
	} else if (code >= 0x50 && code <= 0x57) {
		if (o.op16 || !push(k, k->r[(code & 7) | (o.rex & 1 ? 8 : 0)]))
			return false;
	} else if (code >= 0x58 && code <= 0x5f) {
		if (o.op16 || !pop(k, &v))
			return false;
		k->r[(code & 7) | (o.rex & 1 ? 8 : 0)] = v;
	} else if (code >= 0x70 && code <= 0x7f) {
		v = imm(&o, 1);
		if (cond(k, code & 15))
			k->ip += v;
	} else if (code >= 0x91 && code <= 0x97) {
		int reg = (code & 7) | (o.rex & 1 ? 8 : 0);

		v = get_reg(&o, AX, o.size);
		w = get_reg(&o, reg, o.size);
		set_reg(&o, AX, o.size, w);
		set_reg(&o, reg, o.size, v);
	} else if (code >= 0xb0 && code <= 0xb7) {
		v = imm(&o, 1);
		set_reg(&o, (code & 7) | (o.rex & 1 ? 8 : 0), 1, v);
	} else if (code >= 0xb8 && code <= 0xbf) {
		v = imm(&o, o.size);
		set_reg(&o, (code & 7) | (o.rex & 1 ? 8 : 0), o.size, v);
	} else {
		switch (code) {
		case 0x63:
			if (!modrm(&o, 0) || !get_rm(&o, 4, &v))
				return false;
			set_reg(&o, o.reg, o.size, sign(v, 4));
			break;
		case 0x68:
		case 0x6a:
			v = imm(&o, code == 0x68 ? 4 : 1);
			if (!push(k, v))
				return false;
			break;
		case 0x69:
		case 0x6b: {
			__int128 x;

			n = o.size;
			if (!modrm(&o, code == 0x6b ? 1 : n > 4 ? 4 : n) || !get_rm(&o, n, &v))
				return false;
			w = imm(&o, code == 0x6b ? 1 : n > 4 ? 4 : n);
			x = (__int128)(int64_t)sign(v, n) * (int64_t)sign(w, n);
			v = (uint64_t)x & mask_of(n);
			set_reg(&o, o.reg, n, v);
			result_flags(k, v, n);
			set_flag(k, CF | OF, (__int128)(int64_t)sign(v, n) != x);
			break;
		}
		case 0x80:
		case 0x81:
		case 0x83: {
			unsigned int m = code == 0x81 ? (n > 4 ? 4 : n) : 1;

			if (!modrm(&o, m) || !get_rm(&o, n, &v))
				return false;
			w = alu(k, o.reg & 7, v, imm(&o, m), n);
			if ((o.reg & 7) != 7 && !set_rm(&o, n, w))
				return false;
			break;
		}
		case 0x84:
		case 0x85:
			if (!modrm(&o, 0) || !get_rm(&o, n, &v))
				return false;
			alu(k, 4, v, get_reg(&o, o.reg, n), n);
			break;
		case 0x86:
		case 0x87:
			if (!modrm(&o, 0) || !get_rm(&o, n, &v))
				return false;
			w = get_reg(&o, o.reg, n);
			if (!set_rm(&o, n, w))
				return false;
			set_reg(&o, o.reg, n, v);
			break;
		case 0x88:
		case 0x89:
			if (!modrm(&o, 0) || !set_rm(&o, n, get_reg(&o, o.reg, n)))
				return false;
			break;
		case 0x8a:
		case 0x8b:
			if (!modrm(&o, 0) || !get_rm(&o, n, &v))
				return false;
			set_reg(&o, o.reg, n, v);
			break;
		case 0x8d:
			if (!modrm(&o, 0) || o.mod == 3)
				return false;
			set_reg(&o, o.reg, o.size, o.ea);
			break;
		case 0x8f:
			if (!modrm(&o, 0) || (o.reg & 7) || !pop(k, &v) || !set_rm(&o, 8, v))
				return false;
			break;
		case 0x90: /* nop, pause */
			if (o.rex & 1)
				return false;
			break;
		case 0x98:
			v = sign(k->r[AX], o.size / 2);
			set_reg(&o, AX, o.size, v);
			break;
		case 0x99:
			v = sign(k->r[AX], o.size) >> 63 ? ~0ull : 0;
			set_reg(&o, DX, o.size, v);
			break;
		case 0xa8:
		case 0xa9:
			v = imm(&o, n > 4 ? 4 : n);
			alu(k, 4, k->r[AX], v, n);
			break;
		case 0xa4:
		case 0xa5:
		case 0xa6:
		case 0xa7:
		case 0xaa:
		case 0xab:
		case 0xac:
		case 0xad:
		case 0xae:
		case 0xaf:
			if (!strings(&o, code))
				return false;
			break;
		case 0xc0:
		case 0xc1:
		case 0xd0:
		case 0xd1:
		case 0xd2:
		case 0xd3: {
			unsigned int by;

			if (!modrm(&o, code < 0xd0 ? 1 : 0))
				return false;
			by = code < 0xd0   ? (unsigned int)imm(&o, 1) & 0xff
			     : code < 0xd2 ? 1
					   : (unsigned int)(k->r[CX] & 0xff);
			if (!shift(&o, o.reg & 7, n, by))
				return false;
			break;
		}
		case 0xc2:
		case 0xc3:
			v = code == 0xc2 ? imm(&o, 2) & 0xffff : 0;
			if (!pop(k, &w))
				return false;
			k->r[SP] += v;
			k->ip = w;
			return true;
		case 0xc6:
		case 0xc7: {
			unsigned int m = n > 4 ? 4 : n;

			if (!modrm(&o, m) || (o.reg & 7))
				return false;
			v = imm(&o, m);
			if (!set_rm(&o, n, v))
				return false;
			break;
		}
		case 0xc9:
			k->r[SP] = k->r[BP];
			if (!pop(k, &k->r[BP]))
				return false;
			break;
		case 0xe8:
			v = imm(&o, 4);
			if (!push(k, k->ip + o.i))
				return false;
			k->ip += v;
			k->jumped = true;
			break;
		case 0xe9:
			k->ip += imm(&o, 4);
			k->jumped = true;
			break;
		case 0xeb:
			k->ip += imm(&o, 1);
			break;
		case 0xf6:
		case 0xf7: {
			int kind;

			if (o.i >= o.n)
				return false;
			kind = bytes[o.i] >> 3 & 7;
			if (!modrm(&o, kind < 2 ? (n > 4 ? 4 : n) : 0))
				return false;
			if (kind >= 4) {
				if (!muldiv(&o, kind, n))
					return false;
				break;
			}
			if (!get_rm(&o, n, &v))
				return false;
			if (kind < 2) {
				alu(k, 4, v, imm(&o, n > 4 ? 4 : n), n);
			} else if (kind == 2) {
				if (!set_rm(&o, n, ~v))
					return false;
			} else {
				w = alu(k, 5, 0, v, n);
				if (!set_rm(&o, n, w))
					return false;
			}
			break;
		}
		case 0xfe:
		case 0xff: {
			int kind;
			bool carry = k->flags & CF;

			if (!modrm(&o, 0))
				return false;
			kind = o.reg & 7;
			if (kind >= 2) {
				if (code == 0xfe || kind == 3 || kind == 5 || kind == 7)
					return false;
				/* Where code lies is no message: a table of functions, a PLT. */
				recording = k->recording;
				k->recording = false;
				if (!get_rm(&o, 8, &v)) {
					k->recording = recording;
					return false;
				}
				k->recording = recording;
				if (kind == 6) {
					if (!push(k, v))
						return false;
					break;
				}
				if (kind == 2 && !push(k, k->ip + o.i))
					return false;
				k->ip = v;
				k->jumped = true;
				return true;
			}
			if (!get_rm(&o, n, &v))
				return false;
			w = alu(k, kind ? 5 : 0, v, 1, n);
			set_flag(k, CF, carry);
			if (!set_rm(&o, n, w))
				return false;
			break;
		}
		default:
			return false;
		}
	}
	k->ip += o.i;
	return !o.bad;
}

/* ---- rounds -------------------------------------------------------------------------------- */

struct state {
	uint64_t r[16], ip, flags, memhash;
	uint64_t xmm[16][2];
};

static void take_state(const struct machine *k, struct state *s)
{
	memcpy(s->r, k->r, sizeof(s->r));
	s->ip = k->ip;
	s->flags = k->flags & ARITH;
	s->memhash = k->memhash;
	memcpy(s->xmm, k->xmm, sizeof(s->xmm));
}

static bool same_state(const struct machine *k, const struct state *s)
{
	return k->ip == s->ip && k->memhash == s->memhash && !memcmp(k->r, s->r, sizeof(s->r)) &&
	       (k->flags & ARITH) == s->flags && !memcmp(k->xmm, s->xmm, sizeof(s->xmm));
}

/* What a sample shows of a state. A system call changes cx and r11 in ways that tell nothing. */
static uint64_t state_hash(const uint64_t *r, uint64_t ip, bool yields, bool clock, bool stubbed)
{
	static const uint16_t caller_saved = 1 << CX | 1 << DX | 1 << SI | 1 << DI | 0xf00;
	uint16_t skip = (uint16_t)(clock     ? 0xffff
				   : stubbed ? caller_saved
				   : yields  ? 1 << CX | 1 << 11
					     : 0);
	uint64_t h = mix(ip);

	for (int i = 0; i < 16; i++)
		if (!(skip >> i & 1))
			h = mix(h ^ r[i]);
	return h;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void begin_round(struct machine *k)
{
	k->recording = true;
	k->nwrote = k->nwords = 0;
	k->nreads = 0;
	k->readhash = 0;
}

/* Go on until this instruction is reached again. */
static bool round_to(struct machine *k, uint64_t ip, uint32_t budget)
{
	for (uint32_t i = 0; i < budget; i++) {
		if (!step(k))
			return false;
		if (k->ip == ip)
			return true;
	}
	return false;
}

static void changes(struct machine *k, struct wg_loop *out)
{
	uint64_t at = k->ip, hash = 0;
	bool same = true;

	out->kind = WG_ROUND_CHANGES;
	k->overflow = false;
	for (int i = 0; i < 4 && same; i++) {
		begin_round(k);
		if (!round_to(k, at, 4096) || !k->nreads || k->overflow)
			same = false;
		else if (i && k->readhash != hash)
			same = false;
		hash = k->readhash;
	}
	out->fixed_reads = same;
	for (int i = 0; same && i < k->nwords; i++)
		if (!k->words[i].stack)
			out->words[out->nwords++] = k->words[i];
}

/* The round itself gives it other values in between: its own variable, and nobody else's message.
 */
static bool own_variable(const struct machine *k, uint64_t addr)
{
	for (int j = 0; j < k->nwrote; j++)
		if (k->wrote[j].at == (addr & ~7ull) && (k->wrote[j].varied >> (addr & 7) & 1))
			return true;
	return false;
}

static void repeats(struct machine *k, struct wg_loop *out, uint32_t period)
{
	out->insns = period;
	out->lo = UINT64_MAX;
	out->all_states = true;
	begin_round(k);
	out->nstates = 0;
	for (uint32_t i = 0; i < period; i++) {
		out->lo = k->ip < out->lo ? k->ip : out->lo;
		out->hi = k->ip > out->hi ? k->ip : out->hi;
		if (out->nstates < WG_LOOP_STATES)
			out->states[out->nstates++] =
				state_hash(k->r, k->ip, k->yields || wg_has_int(k->call), k->clock,
					   k->stubbed);
		else
			out->all_states = false;
		if (!step(k)) /* cannot be: it was run before */
			return;
	}
	qsort(out->states, (size_t)out->nstates, sizeof(out->states[0]), by_value);
	out->kind = WG_ROUND_SAME;
	out->reads = k->nreads;
	for (uint32_t i = 0; i < k->nreads && i < sizeof(k->read_at) / sizeof(k->read_at[0]); i++)
		out->reads -= own_variable(k, k->read_at[i]);
	out->yields = k->yields || wg_has_int(k->call);
	out->stubbed = k->stubbed;
	memcpy(out->stubs, k->stubs, sizeof(out->stubs));
	for (int i = 0; i < k->nwords; i++) /* its own stack's words last */
		if (!k->words[i].stack && !own_variable(k, k->words[i].addr))
			out->words[out->nwords++] = k->words[i];
	for (int i = 0; i < k->nwords; i++)
		if (k->words[i].stack && !own_variable(k, k->words[i].addr))
			out->words[out->nwords++] = k->words[i];
}

static struct machine *machine_new(struct wg_mem *m, const struct wg_loop_regs *regs)
{
	struct machine *k = calloc(1, sizeof(*k));
	const struct wg_map *stack;

	if (!k)
		return NULL;
	k->mem = m;
	memcpy(k->r, regs->r, sizeof(k->r));
	k->ip = regs->ip;
	k->flags = regs->flags;
	k->fsbase = regs->fsbase;
	k->stack_lo = k->r[SP] - (128 << 10);
	k->stack_hi = k->r[SP] + (1 << 20);
	stack = wg_mem_map_at(m, k->r[SP]);
	if (stack && k->stack_lo < stack->lo)
		k->stack_lo = stack->lo;
	if (stack && k->stack_hi > stack->hi)
		k->stack_hi = stack->hi;
	k->call = WG_NO_INT;
	k->tsc = __builtin_ia32_rdtsc(); /* the same counter for all */
	k->tls[0].addr = k->tls[0].v = UNKNOWN_TLS; /* it names itself, twice */
	k->tls[1].addr = UNKNOWN_TLS + 16;
	k->tls[1].v = UNKNOWN_TLS;
	k->tls[0].n = k->tls[1].n = 8;
	return k;
}

static void machine_free(struct machine *k)
{
	for (int i = 0; i < k->npages; i++)
		free(k->pages[i]);
	free(k);
}

bool wg_loop_follow(struct wg_mem *m, struct wg_loop_regs *regs, uint64_t stop, uint32_t budget)
{
	struct machine *k = machine_new(m, regs);
	bool there = false;

	for (uint32_t i = 0; k && i < budget && !there; i++) {
		if (!step(k))
			break;
		there = k->ip == stop;
	}
	if (k) {
		memcpy(regs->r, k->r, sizeof(k->r));
		regs->ip = k->ip;
		regs->flags = k->flags;
		machine_free(k);
	}
	return there;
}

void wg_loop_run(struct wg_mem *m, const struct wg_loop_regs *regs, uint32_t budget,
		 struct wg_loop *out)
{
	struct machine *k = machine_new(m, regs);
	uint32_t since = 0, power = 64;
	struct state saved;

	memset(out, 0, sizeof(*out));
	out->call = WG_NO_INT;
	if (!k)
		return;
	take_state(k, &saved);
	for (uint32_t i = 0; i < budget; i++) {
		if (!step(k)) {
			out->why = k->why ? k->why : "it uses an instruction that is not followed";
			goto out;
		}
		since++;
		if (same_state(k, &saved)) {
			repeats(k, out, since);
			goto out;
		}
		if (since == power) { /* Brent: a period of any length is found */
			take_state(k, &saved);
			since = 0;
			if (power < budget)
				power *= 2;
		}
	}
	changes(k, out);
out:
	out->clock = k->clock;
	out->call = k->call;
	memcpy(out->call_args, k->call_args, sizeof(out->call_args));
	machine_free(k);
}

bool wg_loop_has(const struct wg_loop *l, const struct wg_loop_regs *regs)
{
	uint64_t h = state_hash(regs->r, regs->ip, l->yields, l->clock, l->stubbed);

	/* Inside a function that was not followed: one of them is shorter than this. */
	for (int i = 0; i < WG_LOOP_STUBS && l->stubs[i]; i++)
		if (regs->ip >= l->stubs[i] && regs->ip - l->stubs[i] < 4096)
			return true;
	return l->nstates && bsearch(&h, l->states, (size_t)l->nstates, sizeof(h), by_value);
}

#else /* no instructions are known for this machine */

bool wg_loop_follow(struct wg_mem *m, struct wg_loop_regs *regs, uint64_t stop, uint32_t budget)
{
	(void)m;
	(void)regs;
	(void)stop;
	(void)budget;
	return false;
}

void wg_loop_run(struct wg_mem *m, const struct wg_loop_regs *regs, uint32_t budget,
		 struct wg_loop *out)
{
	(void)m;
	(void)regs;
	(void)budget;
	memset(out, 0, sizeof(*out));
	out->call = WG_NO_INT;
}

bool wg_loop_has(const struct wg_loop *l, const struct wg_loop_regs *regs)
{
	(void)l;
	(void)regs;
	return false;
}

#endif
