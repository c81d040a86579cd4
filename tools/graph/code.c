/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code.c - does a tight loop poll or compute?
 *
 * Sampled program counters within a few bytes of each other show a tight loop, but summing an
 * array is as tight as waiting for a flag. What tells them apart is state that one round hands
 * to the next: a counter, an accumulator, a pointer. A loop in which every register and stack
 * slot that is read was first written in the same round does the same thing again until the
 * memory it loads changes: it polls. `pause` and a locked compare-and-exchange say the same.
 *
 * Only the x86-64 instructions that such loops consist of are decoded; at the first other one
 * the answer is LOOP_UNKNOWN. (A vector or floating-point instruction is taken for computing.)
 * On other machines the answer is always LOOP_UNKNOWN.
 */
#include "internal.h"

#if defined(__x86_64__)

enum { LOC_REG = 0, LOC_FLAGS = 16, LOC_SLOT = 17, LOC_MAX = 49 };

struct flow {
	int64_t slot[LOC_MAX - LOC_SLOT]; /* displacement and base of stack slots seen */
	int nslot;
	uint64_t exposed, defined; /* bit sets of locations */
	bool pauses, locked, computes, unknown, stores, call;
};

struct insn {
	size_t len;
	bool branch, jmp, end; /* end: return, or an indirect jump */
	int64_t target;	       /* relative to the instruction's end */
};

static void use(struct flow *s, int loc)
{
	if (loc >= 0 && !(s->defined & (1ull << loc)))
		s->exposed |= 1ull << loc;
}

static void def(struct flow *s, int loc)
{
	if (loc >= 0)
		s->defined |= 1ull << loc;
}

struct modrm {
	int mod, reg, rm;
	int base, index;
	int32_t disp;
	size_t len; /* bytes from the modrm byte on */
	int slot;   /* location of the memory operand when it is a stack slot; -1 */
	bool mem;
};

static bool get_modrm(struct flow *s, const uint8_t *p, size_t n, uint8_t rex, struct modrm *m)
{
	size_t i = 1;

	if (n < 1)
		return false;
	memset(m, 0, sizeof(*m));
	m->mod = p[0] >> 6;
	m->reg = (p[0] >> 3 & 7) | (rex & 4 ? 8 : 0);
	m->rm = (p[0] & 7) | (rex & 1 ? 8 : 0);
	m->base = m->rm;
	m->index = -1;
	m->slot = -1;
	m->mem = m->mod != 3;
	if (m->mem && (p[0] & 7) == 4) {
		if (n < 2)
			return false;
		m->base = (p[1] & 7) | (rex & 1 ? 8 : 0);
		m->index = (p[1] >> 3 & 7) | (rex & 2 ? 8 : 0);
		if (m->index == 4)
			m->index = -1;
		i = 2;
		if (m->mod == 0 && (p[1] & 7) == 5) {
			m->base = -1;
			i += 4;
		}
	} else if (m->mod == 0 && (p[0] & 7) == 5) {
		m->base = -1; /* relative to the program counter: a global */
		i += 4;
	}
	if (m->mod == 1) {
		if (n < i + 1)
			return false;
		m->disp = (int8_t)p[i];
		i += 1;
	} else if (m->mod == 2) {
		if (n < i + 4)
			return false;
		memcpy(&m->disp, p + i, 4);
		i += 4;
	}
	if (n < i)
		return false;
	m->len = i;
	if (m->mem && m->index < 0 && (m->base == 4 || m->base == 5)) {
		int64_t key = (int64_t)m->disp * 256 + m->base;

		for (int k = 0; k < s->nslot; k++)
			if (s->slot[k] == key)
				m->slot = LOC_SLOT + k;
		if (m->slot < 0 && s->nslot < LOC_MAX - LOC_SLOT) {
			s->slot[s->nslot] = key;
			m->slot = LOC_SLOT + s->nslot++;
		}
	}
	return true;
}

static void use_addr(struct flow *s, const struct modrm *m)
{
	if (!m->mem)
		return;
	if (m->base >= 0)
		use(s, LOC_REG + m->base);
	if (m->index >= 0)
		use(s, LOC_REG + m->index);
}

static void read_rm(struct flow *s, const struct modrm *m)
{
	use_addr(s, m);
	if (!m->mem)
		use(s, LOC_REG + m->rm);
	else if (m->slot >= 0)
		use(s, m->slot);
}

static void write_rm(struct flow *s, const struct modrm *m)
{
	use_addr(s, m);
	if (!m->mem)
		def(s, LOC_REG + m->rm);
	else if (m->slot >= 0)
		def(s, m->slot);
	else
		s->stores = true;
}

static size_t imm_size(bool op16, bool byte)
{
	return byte ? 1 : op16 ? 2 : 4;
}

/* Decode one instruction and note what it reads and writes. False: not one that we know. */
static bool step(struct flow *s, const uint8_t *p, size_t n, struct insn *out)
{
	size_t i = 0;
	uint8_t rex = 0, op;
	bool op16 = false, rep = false, lock = false;
	struct modrm m;

	memset(out, 0, sizeof(*out));
	for (; i < n; i++) {
		if (p[i] == 0x66)
			op16 = true;
		else if (p[i] == 0xf3 || p[i] == 0xf2)
			rep = true;
		else if (p[i] == 0xf0)
			lock = true;
		else if (p[i] != 0x2e && p[i] != 0x3e && p[i] != 0x64 && p[i] != 0x65)
			break;
	}
	if (i < n && (p[i] & 0xf0) == 0x40)
		rex = p[i++];
	if (i >= n)
		return false;
	op = p[i++];
	if (op == 0x0f) {
		if (i >= n)
			return false;
		op = p[i++];
		if (op >= 0x80 && op <= 0x8f) {
			int32_t d;

			if (n < i + 4)
				return false;
			memcpy(&d, p + i, 4);
			use(s, LOC_FLAGS);
			out->branch = true;
			out->target = d;
			out->len = i + 4;
			return true;
		}
		if (op == 0x05 || op == 0x34) /* a system call: not a loop in user space */
			return false;
		if (!get_modrm(s, p + i, n - i, rex, &m))
			return false;
		out->len = i + m.len;
		if (op == 0x1f || op == 0x18 || op == 0x0d || op == 0xae || op == 0x1e)
			return true; /* nop, prefetch, fence, endbr */
		if (op >= 0x90 && op <= 0x9f) {
			use(s, LOC_FLAGS);
			write_rm(s, &m);
			return true;
		}
		if (op >= 0x40 && op <= 0x4f) {
			use(s, LOC_FLAGS);
			read_rm(s, &m);
			use(s, LOC_REG + m.reg);
			def(s, LOC_REG + m.reg);
			return true;
		}
		switch (op) {
		case 0xb6:
		case 0xb7:
		case 0xbe:
		case 0xbf: /* movzx, movsx */
			read_rm(s, &m);
			def(s, LOC_REG + m.reg);
			return true;
		case 0xb0:
		case 0xb1: /* cmpxchg: what a spin lock does */
			if (lock)
				s->locked = true;
			read_rm(s, &m);
			use(s, LOC_REG);
			def(s, LOC_REG);
			def(s, LOC_FLAGS);
			return true;
		case 0xaf: /* imul */
			read_rm(s, &m);
			use(s, LOC_REG + m.reg);
			def(s, LOC_REG + m.reg);
			def(s, LOC_FLAGS);
			return true;
		case 0xa3:
		case 0xba: /* bit test */
			if (op == 0xba) {
				out->len++;
				if ((m.reg & 7) != 4) {
					s->stores = true;
					s->computes = true;
				}
			}
			read_rm(s, &m);
			def(s, LOC_FLAGS);
			return true;
		case 0xc0:
		case 0xc1: /* xadd: counts */
			s->computes = true;
			return true;
		case 0x2e:
		case 0x2f: /* a number compared */
			use_addr(s, &m);
			def(s, LOC_FLAGS);
			return true;
		case 0x10:
		case 0x28:
		case 0x57:
		case 0x6e:
		case 0x6f:
		case 0xef: /* loaded, cleared */
			use_addr(s, &m);
			return true;
		default: /* vectors and floating point: nobody polls with those */
			s->computes = true;
			return op != 0x38 && op != 0x3a && op != 0xa2 && op != 0x31;
		}
	}
	if (op >= 0x70 && op <= 0x7f) {
		if (i >= n)
			return false;
		use(s, LOC_FLAGS);
		out->branch = true;
		out->target = (int8_t)p[i];
		out->len = i + 1;
		return true;
	}
	if (op < 0x40 && (op & 7) < 6) { /* add or adc sbb and sub xor cmp */
		int kind = op >> 3;
		bool cmp = kind == 7;

		if ((op & 7) >= 4) { /* with the accumulator */
			out->len = i + imm_size(op16, (op & 7) == 4);
			use(s, LOC_REG);
			if (!cmp)
				def(s, LOC_REG);
			def(s, LOC_FLAGS);
			return out->len <= n;
		}
		if (!get_modrm(s, p + i, n - i, rex, &m))
			return false;
		out->len = i + m.len;
		if (kind == 6 && !m.mem && m.reg == m.rm) { /* xor r,r: a constant */
			def(s, LOC_REG + m.reg);
			def(s, LOC_FLAGS);
			return true;
		}
		read_rm(s, &m);
		use(s, LOC_REG + m.reg);
		def(s, LOC_FLAGS);
		if (!cmp) {
			if (op & 2)
				def(s, LOC_REG + m.reg);
			else if (m.mem && m.slot < 0)
				s->computes = true; /* memory is counted up: state goes on */
			else
				write_rm(s, &m);
		}
		return true;
	}
	switch (op) {
	case 0x90:
		if (rep)
			s->pauses = true;
		out->len = i;
		return true;
	case 0x98:
	case 0x99:
		use(s, LOC_REG);
		def(s, op == 0x98 ? LOC_REG : LOC_REG + 2);
		out->len = i;
		return true;
	case 0xa8:
	case 0xa9:
		out->len = i + imm_size(op16, op == 0xa8);
		use(s, LOC_REG);
		def(s, LOC_FLAGS);
		return out->len <= n;
	case 0xeb:
		if (i >= n)
			return false;
		out->branch = out->jmp = true;
		out->target = (int8_t)p[i];
		out->len = i + 1;
		return true;
	case 0xe9: {
		int32_t d;

		if (n < i + 4)
			return false;
		memcpy(&d, p + i, 4);
		out->branch = out->jmp = true;
		out->target = d;
		out->len = i + 4;
		return true;
	}
	case 0xe8:
		s->call = true;
		return false;
	case 0xc3:
	case 0xcb:
		out->end = true;
		out->len = i;
		return true;
	}
	if (op >= 0x50 && op <= 0x5f) {
		s->stores = true;
		out->len = i;
		return true;
	}
	if (op >= 0xb0 && op <= 0xbf) {
		def(s, LOC_REG + ((op & 7) | (rex & 1 ? 8 : 0)));
		out->len = i + (op < 0xb8 ? 1 : rex & 8 ? 8 : op16 ? 2 : 4);
		return out->len <= n;
	}
	if (!get_modrm(s, p + i, n - i, rex, &m))
		return false;
	out->len = i + m.len;
	switch (op) {
	case 0x63:
	case 0x8a:
	case 0x8b:
		read_rm(s, &m);
		def(s, LOC_REG + m.reg);
		return true;
	case 0x8d:
		use_addr(s, &m);
		def(s, LOC_REG + m.reg);
		return true;
	case 0x88:
	case 0x89:
		use(s, LOC_REG + m.reg);
		write_rm(s, &m);
		return true;
	case 0x84:
	case 0x85:
		read_rm(s, &m);
		use(s, LOC_REG + m.reg);
		def(s, LOC_FLAGS);
		return true;
	case 0x86:
	case 0x87: /* xchg with memory is locked by itself */
		if (m.mem) {
			s->locked = true;
			use_addr(s, &m);
		} else {
			read_rm(s, &m);
			def(s, LOC_REG + m.rm);
		}
		use(s, LOC_REG + m.reg);
		def(s, LOC_REG + m.reg);
		return true;
	case 0xc6:
	case 0xc7:
		write_rm(s, &m);
		out->len += imm_size(op16, op == 0xc6);
		return out->len <= n;
	case 0x80:
	case 0x81:
	case 0x83:
		read_rm(s, &m);
		def(s, LOC_FLAGS);
		out->len += imm_size(op16, op != 0x81);
		if ((m.reg & 7) != 7) {
			if (m.mem && m.slot < 0)
				s->computes = true;
			else
				write_rm(s, &m);
		}
		return out->len <= n;
	case 0x69:
	case 0x6b:
		read_rm(s, &m);
		def(s, LOC_REG + m.reg);
		def(s, LOC_FLAGS);
		out->len += imm_size(op16, op == 0x6b);
		return out->len <= n;
	case 0xc0:
	case 0xc1:
	case 0xd0:
	case 0xd1:
	case 0xd2:
	case 0xd3:
		read_rm(s, &m);
		write_rm(s, &m);
		def(s, LOC_FLAGS);
		if (op < 0xd0)
			out->len++;
		return out->len <= n;
	case 0xf6:
	case 0xf7:
		read_rm(s, &m);
		def(s, LOC_FLAGS);
		if ((m.reg & 7) < 2)
			out->len += imm_size(op16, op == 0xf6);
		else if ((m.reg & 7) < 4)
			write_rm(s, &m);
		else
			s->computes = true; /* multiply, divide */
		return out->len <= n;
	case 0xfe:
	case 0xff:
		if ((m.reg & 7) > 1)
			return false;
		read_rm(s, &m);
		if (m.mem && m.slot < 0)
			s->computes = true;
		else
			write_rm(s, &m);
		def(s, LOC_FLAGS);
		return true;
	}
	if (op >= 0xc4 && op <= 0xc5)
		s->computes = true; /* AVX */
	return false;
}

enum wg_loop wg_code_kind(const uint8_t *code, size_t n, uint64_t at, uint64_t lo, uint64_t hi)
{
	struct flow scan, body;
	struct insn in;
	uint64_t pc, begin = 0, end = 0;

	if (lo < at || hi >= at + n)
		return LOOP_UNKNOWN;
	/* A sampled pc is an instruction's start: decode on from there to the branch back. */
	memset(&scan, 0, sizeof(scan));
	for (pc = lo; pc < at + n; pc += in.len) {
		if (!step(&scan, code + (pc - at), (size_t)(at + n - pc), &in)) {
			if (scan.computes)
				return LOOP_COMPUTES;
			return LOOP_UNKNOWN;
		}
		if (in.end)
			return LOOP_UNKNOWN;
		if (in.branch && in.target < 0) {
			uint64_t to = pc + in.len + (uint64_t)in.target;

			if (to <= lo && pc >= hi) {
				begin = to;
				end = pc + in.len;
				break;
			}
		} else if (in.jmp) { /* rotated loop: follow it */
			uint64_t to = pc + in.len + (uint64_t)in.target;

			if (to >= at + n)
				return LOOP_UNKNOWN;
		}
	}
	if (!end || begin < at)
		return LOOP_UNKNOWN;
	memset(&body, 0, sizeof(body));
	for (pc = begin; pc < end; pc += in.len)
		if (!step(&body, code + (pc - at), (size_t)(at + n - pc), &in))
			return body.computes ? LOOP_COMPUTES : LOOP_UNKNOWN;
	if (pc != end)
		return LOOP_UNKNOWN;
	if (body.pauses || (body.locked && !body.computes))
		return LOOP_POLLS;
	if (body.computes || body.stores || (body.exposed & body.defined))
		return LOOP_COMPUTES;
	return LOOP_POLLS;
}

#else

enum wg_loop wg_code_kind(const uint8_t *code, size_t n, uint64_t at, uint64_t lo, uint64_t hi)
{
	(void)code;
	(void)n;
	(void)at;
	(void)lo;
	(void)hi;
	return LOOP_UNKNOWN;
}

#endif
