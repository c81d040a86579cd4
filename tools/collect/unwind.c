/* SPDX-License-Identifier: Apache-2.0 */
/* unwind.c - see unwind.h. */
#include "unwind.h"

#include <errno.h>
#include <libunwind.h>
#include <stdlib.h>
#include <string.h>

#define STEP_READS 100000  /* words one step may read: real ones need hundreds */
#define GUESS_WORDS 4096   /* stack words that are tried as frame pointers */
#define GUESS_WALKS 256

/* libunwind's own search in an .eh_frame_hdr table, through our accessors. */
#if defined(__x86_64__)
int _Ux86_64_dwarf_search_unwind_table(unw_addr_space_t, unw_word_t, unw_dyn_info_t *,
				       unw_proc_info_t *, int, void *);
#define search_table _Ux86_64_dwarf_search_unwind_table
#define REG_FP UNW_X86_64_RBP
#define RA_COLUMN 16
#elif defined(__aarch64__)
int _Uaarch64_dwarf_search_unwind_table(unw_addr_space_t, unw_word_t, unw_dyn_info_t *,
					unw_proc_info_t *, int, void *);
#define search_table _Uaarch64_dwarf_search_unwind_table
#define REG_FP UNW_AARCH64_X29
#define RA_COLUMN 30
#endif

struct wg_unwinder {
	struct wg_symbols *s;
	struct wg_mem *m;
	unw_addr_space_t as;
	const struct wg_regs *r;
	bool has_bp;
	uint64_t stack_lo, stack_hi; /* the mapping sp lies in: never a file's */
	int needs;	/* a register that was asked for and is not known */
	bool no_info;	/* this step found no unwind information */
	uint32_t reads;
};

/* ---- accessors ------------------------------------------------------------------------ */

/* Bytes at an address of the process: read-only parts of files from the files. */
static int read_at(struct wg_unwinder *u, uint64_t addr, void *buf, size_t n)
{
	uint64_t off;

	if (addr < u->stack_lo || addr >= u->stack_hi) {
		struct wg_module *mod;
		const struct wg_map *x = wg_mem_map_at(u->m, addr);

		if (x && x->path && !x->w) {
			mod = wg_symbols_module(u->s, addr);
			if (mod && mod->usable &&
			    wg_image_offset(mod->image, addr - mod->bias, n, true, &off) &&
			    !wg_image_read(mod->image, off, buf, n))
				return 0;
		}
	}
	return wg_mem_read(u->m, addr, buf, n);
}

static int find_table(struct wg_unwinder *u, uint64_t ip, unw_dyn_info_t *di)
{
	struct wg_module *mod = wg_symbols_module(u->s, ip);
	uint64_t off, n;
	uint8_t head[12];
	uint32_t count;

	if (!mod || !mod->usable || !mod->image->hdr_vaddr)
		return -UNW_ENOINFO;
	if (!wg_image_offset(mod->image, mod->image->hdr_vaddr, sizeof(head), false, &off) ||
	    wg_image_read(mod->image, off, head, sizeof(head)))
		return -UNW_ENOINFO;
	/* version 1, a count as udata4, a table as datarel | sdata4: what every linker writes */
	if (head[0] != 1 || head[2] != 0x03 || head[3] != 0x3b)
		return -UNW_ENOINFO;
	/* eh_frame_ptr stands between: 4 bytes in every encoding that linkers use */
	if ((head[1] & 0x0f) != 0x0b && (head[1] & 0x0f) != 0x03)
		return -UNW_ENOINFO;
	memcpy(&count, head + 8, 4);
	n = (mod->image->hdr_size - sizeof(head)) / 8;
	if (!count || count > n)
		return -UNW_ENOINFO;
	memset(di, 0, sizeof(*di));
	di->format = UNW_INFO_FORMAT_REMOTE_TABLE;
	di->start_ip = mod->lo;
	di->end_ip = mod->hi;
	di->u.rti.segbase = mod->bias + mod->image->hdr_vaddr;
	di->u.rti.table_data = di->u.rti.segbase + sizeof(head);
	di->u.rti.table_len = (unw_word_t)count * 8 / sizeof(unw_word_t);
	return 0;
}

static int a_find(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need, void *arg)
{
	struct wg_unwinder *u = arg;
	unw_dyn_info_t di;
	int err = find_table(u, ip, &di);

	if (!err)
		err = search_table(as, ip, &di, pi, need, arg);
	if (err < 0)
		u->no_info = true;
	return err;
}

static void a_put(unw_addr_space_t as, unw_proc_info_t *pi, void *arg)
{
	/* what find hands out comes from libunwind's own pool and goes back there */
	(void)as;
	(void)pi;
	(void)arg;
}

static int a_dyn(unw_addr_space_t as, unw_word_t *d, void *arg)
{
	(void)as;
	(void)d;
	(void)arg;
	return -UNW_ENOINFO;
}

static int a_mem(unw_addr_space_t as, unw_word_t addr, unw_word_t *v, int write, void *arg)
{
	struct wg_unwinder *u = arg;

	(void)as;
	if (write || ++u->reads > STEP_READS)
		return -UNW_EINVAL;
	return read_at(u, addr, v, sizeof(*v)) ? -UNW_EINVAL : 0;
}

static int a_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *v, int write, void *arg)
{
	struct wg_unwinder *u = arg;
	const struct wg_regs *r = u->r;

	(void)as;
	if (write)
		return -UNW_EREADONLYREG;
	switch (reg) {
#if defined(__x86_64__)
	case UNW_X86_64_RIP:
		*v = r->ip;
		return 0;
	case UNW_X86_64_RSP:
		*v = r->sp;
		return 0;
	case UNW_X86_64_RBP:
		*v = r->bp;
		if (r->full || u->has_bp)
			return 0;
		break;
	case UNW_X86_64_RBX:
		*v = r->bx;
		if (r->full)
			return 0;
		break;
	case UNW_X86_64_R12:
		*v = r->r12;
		if (r->full)
			return 0;
		break;
	case UNW_X86_64_R13:
		*v = r->r13;
		if (r->full)
			return 0;
		break;
	case UNW_X86_64_R14:
		*v = r->r14;
		if (r->full)
			return 0;
		break;
	case UNW_X86_64_R15:
		*v = r->r15;
		if (r->full)
			return 0;
		break;
#elif defined(__aarch64__)
	case UNW_AARCH64_PC:
		*v = r->ip;
		return 0;
	case UNW_AARCH64_SP:
		*v = r->sp;
		return 0;
	case UNW_AARCH64_X29:
		*v = r->bp;
		if (r->full || u->has_bp)
			return 0;
		break;
#endif
	default:
		break;
	}
	u->needs = reg;
	return -UNW_EBADREG;
}

static int a_fpreg(unw_addr_space_t as, unw_regnum_t r, unw_fpreg_t *v, int write, void *arg)
{
	(void)as;
	(void)r;
	(void)v;
	(void)write;
	(void)arg;
	return -UNW_EBADREG;
}

static int a_resume(unw_addr_space_t as, unw_cursor_t *c, void *arg)
{
	(void)as;
	(void)c;
	(void)arg;
	return -UNW_EINVAL;
}

static int a_name(unw_addr_space_t as, unw_word_t a, char *b, size_t n, unw_word_t *o, void *arg)
{
	(void)as;
	(void)a;
	(void)b;
	(void)n;
	(void)o;
	(void)arg;
	return -UNW_ENOINFO;
}

struct wg_unwinder *wg_unwinder_open(struct wg_symbols *s)
{
	/* By name: libunwind 1.8 has accessors more, which may be absent. */
	unw_accessors_t acc = {
		.find_proc_info = a_find,
		.put_unwind_info = a_put,
		.get_dyn_info_list_addr = a_dyn,
		.access_mem = a_mem,
		.access_reg = a_reg,
		.access_fpreg = a_fpreg,
		.resume = a_resume,
		.get_proc_name = a_name,
	};
	struct wg_unwinder *u = calloc(1, sizeof(*u));

	if (!u)
		exit(70);
	u->s = s;
	u->m = wg_symbols_mem(s);
	u->as = unw_create_addr_space(&acc, 0);
	if (!u->as) {
		free(u);
		return NULL;
	}
	unw_set_caching_policy(u->as, UNW_CACHE_GLOBAL);
	return u;
}

void wg_unwinder_close(struct wg_unwinder *u)
{
	if (!u)
		return;
	unw_destroy_addr_space(u->as);
	free(u);
}

/* ---- what a return address looks like --------------------------------------------------- */

/* Length of the call instruction that ends at pc, 0 if none; target of a direct one. */
static int call_before(struct wg_unwinder *u, uint64_t pc, uint64_t *target)
{
	*target = 0;
#if defined(__x86_64__)
	uint8_t b[8];
	int32_t rel;

	if (pc < 8 || !wg_symbols_is_code(u->s, pc - 1) || read_at(u, pc - 8, b, sizeof(b)))
		return 0;
	if (b[3] == 0xe8) {
		memcpy(&rel, b + 4, 4);
		*target = pc + (uint64_t)(int64_t)rel;
		if (wg_symbols_is_code(u->s, *target))
			return 5;
		*target = 0;
	}
	for (int n = 2; n <= 7; n++) { /* FF /2: modrm tells how long it is */
		const uint8_t *i = b + 8 - n;
		int mod = i[1] >> 6, rm = i[1] & 7, len = 2;

		if (i[0] != 0xff || (i[1] >> 3 & 7) != 2)
			continue;
		if (mod != 3 && rm == 4) {
			len++;
			if (n > 2 && !mod && (i[2] & 7) == 5)
				len += 4;
		}
		if (mod == 1)
			len++;
		else if (mod == 2 || (!mod && rm == 5))
			len += 4;
		if (len == n)
			return n;
	}
	return 0;
#else
	uint32_t insn;

	if (pc < 4 || (pc & 3) || read_at(u, pc - 4, &insn, 4))
		return 0;
	if (insn >> 26 == 0x25) {
		*target = pc - 4 + (uint64_t)((int64_t)(int32_t)(insn << 6) >> 4);
		return 4;
	}
	return (insn & 0xfffffc1fu) == 0xd63f0000u ? 4 : 0;
#endif
}

/* Where a PLT stub (or a thunk that only jumps) leads; target itself otherwise. */
static uint64_t through_stub(struct wg_unwinder *u, uint64_t target)
{
#if defined(__x86_64__)
	for (int hops = 0; hops < 3; hops++) {
		uint8_t b[16];
		uint64_t at = target, slot;
		int32_t rel;
		int o = 0;

		if (read_at(u, at, b, sizeof(b)))
			break;
		if (!memcmp(b, "\xf3\x0f\x1e\xfa", 4)) /* endbr64 */
			o = 4;
		if (b[o] == 0xf2) /* bnd */
			o++;
		if (b[o] == 0xff && b[o + 1] == 0x25) {
			memcpy(&rel, b + o + 2, 4);
			slot = at + (uint64_t)o + 6 + (uint64_t)(int64_t)rel;
			if (wg_mem_read(u->m, slot, &target, 8))
				break;
		} else if (b[o] == 0xe9) {
			memcpy(&rel, b + o + 1, 4);
			target = at + (uint64_t)o + 5 + (uint64_t)(int64_t)rel;
		} else {
			break;
		}
	}
#else
	(void)u;
#endif
	return target;
}

/* The function, as the unwind tables delimit it, that covers pc. */
static bool function_range(struct wg_unwinder *u, uint64_t pc, uint64_t *lo, uint64_t *hi)
{
	unw_dyn_info_t di;
	unw_proc_info_t pi;

	u->reads = 0;
	if (find_table(u, pc, &di) || search_table(u->as, pc, &di, &pi, 0, u) < 0)
		return false;
	*lo = pi.start_ip;
	*hi = pi.end_ip;
	return true;
}

/*
 * Does the call that returns to ret_pc lead to the function that callee_pc lies in?
 * 1 yes, 0 cannot be told (indirect call, no table), -1 no: it calls something else.
 */
static int calls(struct wg_unwinder *u, uint64_t ret_pc, uint64_t callee_pc)
{
	uint64_t target, lo, hi;

	if (!call_before(u, ret_pc, &target))
		return -1;
	if (!target || !function_range(u, callee_pc, &lo, &hi))
		return 0;
	target = through_stub(u, target);
	if (target >= lo && target < hi)
		return 1;
	return -1; /* or it leads there by a tail call, or the callee is in its cold part */
}

static bool is_sigreturn(struct wg_unwinder *u, uint64_t pc)
{
#if defined(__x86_64__)
	static const uint8_t code[9] = { 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05 };
	uint8_t b[9];

	return !read_at(u, pc, b, sizeof(b)) && !memcmp(b, code, sizeof(b));
#else
	(void)u;
	(void)pc;
	return false;
#endif
}

/* ---- the thread's first function ----------------------------------------------------- */

static uint64_t uleb(const uint8_t *b, size_t n, size_t *i)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; *i < n; shift += 7) {
		uint8_t c = b[(*i)++];

		if (shift < 64)
			v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80))
			break;
	}
	return v;
}

/* Do these call-frame instructions declare the return address undefined? */
static bool says_undefined(const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n;) {
		uint8_t op = b[i++];

		if (op >> 6 == 1 || op >> 6 == 3)
			continue;
		if (op >> 6 == 2) {
			uleb(b, n, &i);
			continue;
		}
		switch (op) {
		case 0x00: case 0x0a: case 0x0b: case 0x2d:
			break;
		case 0x02:
			i += 1;
			break;
		case 0x03:
			i += 2;
			break;
		case 0x04:
			i += 4;
			break;
		case 0x07: /* DW_CFA_undefined */
			if (uleb(b, n, &i) == RA_COLUMN)
				return true;
			break;
		case 0x06: case 0x08: case 0x0d: case 0x0e: case 0x13: case 0x2e:
			uleb(b, n, &i);
			break;
		case 0x05: case 0x09: case 0x0c: case 0x11: case 0x12: case 0x14: case 0x15:
		case 0x2f:
			uleb(b, n, &i);
			uleb(b, n, &i);
			break;
		case 0x0f: { /* an expression: skip it whole */
			uint64_t len = uleb(b, n, &i);

			i = len > n - i ? n : i + (size_t)len;
			break;
		}
		case 0x10: case 0x16: {
			uint64_t len;

			uleb(b, n, &i);
			len = uleb(b, n, &i);
			i = len > n - i ? n : i + (size_t)len;
			break;
		}
		default: /* DW_CFA_set_loc and unknown ones: their length is not known here */
			return false;
		}
	}
	return false;
}

/* Entry of the binary search table for pc: address of its FDE. */
static bool find_fde(struct wg_unwinder *u, uint64_t pc, uint64_t *fde)
{
	unw_dyn_info_t di;
	uint64_t lo = 0, hi, base;
	int32_t e[2];

	if (find_table(u, pc, &di))
		return false;
	base = di.u.rti.segbase;
	hi = di.u.rti.table_len;
	while (lo < hi) {
		uint64_t mid = (lo + hi) / 2;

		if (read_at(u, di.u.rti.table_data + mid * 8, e, 8))
			return false;
		if (base + (uint64_t)(int64_t)e[0] <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || read_at(u, di.u.rti.table_data + (lo - 1) * 8, e, 8))
		return false;
	*fde = base + (uint64_t)(int64_t)e[1];
	return true;
}

/* Do the initial instructions of a CIE say so? */
static bool cie_says_undefined(struct wg_unwinder *u, uint64_t cie)
{
	uint8_t b[256], *z;
	uint64_t skip;
	uint32_t len;
	size_t n, i;

	if (read_at(u, cie, &len, 4) || len < 8 || len == 0xffffffffu)
		return false;
	n = len < sizeof(b) ? len : sizeof(b);
	if (read_at(u, cie + 4, b, n) || b[0] || b[1] || b[2] || b[3] || b[5] != 'z')
		return false;
	z = memchr(b + 5, 0, n - 5);
	if (!z)
		return false;
	i = (size_t)(z + 1 - b);
	uleb(b, n, &i); /* code and data alignment, return address column */
	uleb(b, n, &i);
	uleb(b, n, &i);
	skip = uleb(b, n, &i);
	return skip <= n - i && says_undefined(b + i + skip, n - i - (size_t)skip);
}

/*
 * _start and the function that clone() begins in declare their return address undefined.
 * Names would do too, but not in a stripped libc.
 */
static bool is_first_function(struct wg_unwinder *u, uint64_t pc)
{
	uint64_t fde, lo, hi, skip;
	uint32_t len, cie;
	uint8_t b[512];
	size_t n, at = 12;

	if (!function_range(u, pc, &lo, &hi) || !find_fde(u, pc, &fde) ||
	    read_at(u, fde, &len, 4) || len < 16 || len == 0xffffffffu)
		return false;
	n = len < sizeof(b) ? len : sizeof(b);
	if (read_at(u, fde + 4, b, n))
		return false;
	/* pointer to the CIE, start and length (4 bytes each), augmentation, instructions */
	skip = uleb(b, n, &at);
	if (skip <= n - at && says_undefined(b + at + skip, n - at - (size_t)skip))
		return true;
	memcpy(&cie, b, 4);
	return cie && cie_says_undefined(u, fde + 4 - cie);
}

/* ---- walking ------------------------------------------------------------------------------ */

static void look_at_stack(struct wg_unwinder *u, uint64_t sp)
{
	const struct wg_map *x = wg_mem_map_at(u->m, sp);

	u->stack_lo = x ? x->lo : 0;
	u->stack_hi = x ? x->hi : 0;
}

/* Registers of the frame that a cursor stands at, as far as they are known. */
static void regs_at(struct wg_unwinder *u, unw_cursor_t *c, struct wg_regs *out, bool *has_bp)
{
	unw_word_t v;

	memset(out, 0, sizeof(*out));
	if (!unw_get_reg(c, UNW_REG_IP, &v))
		out->ip = v;
	if (!unw_get_reg(c, UNW_REG_SP, &v))
		out->sp = v;
	*has_bp = !unw_get_reg(c, REG_FP, &v);
	if (*has_bp)
		out->bp = v;
#if defined(__x86_64__)
	if (u->r->full && *has_bp) { /* callee-saved ones are all known then */
		out->full = true;
		if (!unw_get_reg(c, UNW_X86_64_RBX, &v))
			out->bx = v;
		if (!unw_get_reg(c, UNW_X86_64_R12, &v))
			out->r12 = v;
		if (!unw_get_reg(c, UNW_X86_64_R13, &v))
			out->r13 = v;
		if (!unw_get_reg(c, UNW_X86_64_R14, &v))
			out->r14 = v;
		if (!unw_get_reg(c, UNW_X86_64_R15, &v))
			out->r15 = v;
	}
#endif
}

static bool returns_to(struct wg_unwinder *u, uint64_t slot, uint64_t *pc)
{
	uint64_t target;

	return !wg_mem_read(u->m, slot, pc, 8) && wg_symbols_is_code(u->s, *pc) &&
	       call_before(u, *pc, &target);
}

#if defined(__x86_64__)
/*
 * Code without tables (made at run time): read on from pc. If the function goes on to its
 * return in a straight line, its instructions say where the return address stands. This is
 * what the trampolines of CPython's perf support look like: they keep no frame pointer.
 */
static bool by_epilogue(struct wg_unwinder *u, struct wg_regs *r, bool *has_bp)
{
	uint64_t *const low[8] = { NULL, NULL, NULL, &r->bx, NULL, &r->bp, NULL, NULL };
	uint64_t *const high[8] = { NULL, NULL, NULL, NULL, &r->r12, &r->r13, &r->r14, &r->r15 };
	uint8_t b[64];
	int got = wg_mem_read_some(u->m, r->ip, b, sizeof(b));
	int32_t n;
	uint64_t v;

	for (int i = 0; i + 8 < got;) {
		const uint8_t *c = b + i;

		if (c[0] == 0xc3 || (c[0] == 0xf3 && c[1] == 0xc3) || c[0] == 0xc2) {
			if (!returns_to(u, r->sp, &r->ip))
				return false;
			r->sp += 8;
			return true;
		}
		if (c[0] == 0x48 && c[1] == 0x83 && c[2] == 0xc4) { /* add imm8, rsp */
			r->sp += (uint64_t)(int64_t)(int8_t)c[3];
			i += 4;
		} else if (c[0] == 0x48 && c[1] == 0x81 && c[2] == 0xc4) {
			memcpy(&n, c + 3, 4);
			r->sp += (uint64_t)(int64_t)n;
			i += 7;
		} else if (c[0] == 0xc9) { /* leave */
			if (!*has_bp)
				return false;
			r->sp = r->bp;
			if (wg_mem_read(u->m, r->sp, &r->bp, 8))
				return false;
			r->sp += 8;
			i++;
		} else if ((c[0] & 0xf8) == 0x58 || (c[0] == 0x41 && (c[1] & 0xf8) == 0x58)) {
			uint64_t *to = c[0] == 0x41 ? high[c[1] & 7] : low[c[0] & 7];

			if (wg_mem_read(u->m, r->sp, &v, 8))
				return false;
			if (to)
				*to = v;
			if (c[0] == 0x5d)
				*has_bp = true;
			r->sp += 8;
			i += c[0] == 0x41 ? 2 : 1;
		} else if (c[0] == 0xc5 && c[1] == 0xf8 && c[2] == 0x77) { /* vzeroupper */
			i += 3;
		} else if ((c[0] == 0x48 || c[0] == 0x49 || c[0] == 0x4c) &&
			   (c[1] == 0x89 || c[1] == 0x8b) && c[2] >> 6 == 3 && c[2] != 0xec &&
			   c[2] != 0xe5) {
			i += 3; /* a move between registers, not of the stack pointer */
		} else {
			return false;
		}
	}
	return false;
}
#endif

/* The caller of code that has no unwind information: a guess that has to look like a call. */
static bool step_without_tables(struct wg_unwinder *u, struct wg_regs *r, bool *has_bp,
				bool is_leaf)
{
#if defined(__x86_64__)
	struct wg_regs try = *r;
	bool bp = *has_bp;

	if (by_epilogue(u, &try, &bp)) {
		*r = try;
		*has_bp = bp;
		return true;
	}
#endif
	if (*has_bp && r->bp >= r->sp && r->bp + 16 <= u->stack_hi && !(r->bp & 7)) {
		uint64_t pc, saved;

		if (returns_to(u, r->bp + 8, &pc) && !wg_mem_read(u->m, r->bp, &saved, 8)) {
			r->sp = r->bp + 16;
			r->ip = pc;
			r->bp = saved;
			return true;
		}
	}
	/* A leaf that has not made its frame yet, or makes none. */
	if (is_leaf) {
		uint64_t pc;

		if (returns_to(u, r->sp, &pc)) {
			r->ip = pc;
			r->sp += 8;
			return true;
		}
	}
	return false;
}

void wg_unwind(struct wg_unwinder *u, const struct wg_regs *r, bool has_bp, bool ip_is_return,
	       struct wg_walk *w)
{
	unw_cursor_t c, before;
	struct wg_regs regs = *r, next;
	bool ret = ip_is_return;
	int k;

	w->n = 0;
	w->end = WG_WALK_LOST;
	w->needs = 0;
	w->guessed = false;
	u->r = &regs;
	u->has_bp = has_bp;
	u->reads = 0;
	look_at_stack(u, r->sp);
	if (unw_init_remote(&c, u->as, u))
		return;
	for (;;) {
		struct wg_step *s;
		unw_word_t pc = 0, sp = 0;
		bool next_has_bp;

		unw_get_reg(&c, UNW_REG_IP, &pc);
		unw_get_reg(&c, UNW_REG_SP, &sp);
		if (w->n && (!pc || !wg_mem_map_at(u->m, pc))) {
			w->end = pc ? WG_WALK_LOST : WG_WALK_ZERO;
			return;
		}
		if (w->n == WG_WALK_MAX) {
			w->end = WG_WALK_LIMIT;
			return;
		}
		if (w->n > 1 && sp <= w->step[w->n - 1].sp && pc == w->step[w->n - 1].pc)
			return;
		s = &w->step[w->n++];
		*s = (struct wg_step){ .pc = pc, .sp = sp, .is_return = ret, .guessed = w->guessed };
		ret = !is_sigreturn(u, pc);
		u->no_info = false;
		u->needs = 0;
		u->reads = 0;
		before = c;
		k = unw_step(&c);
		if (u->no_info) {
			/* libunwind would follow rbp whatever it is: look closer, from here. */
			regs_at(u, &before, &next, &next_has_bp);
			if (!step_without_tables(u, &next, &next_has_bp, w->n == 1)) {
				if (!next_has_bp && !r->full) {
					w->end = WG_WALK_NEEDS;
					w->needs = REG_FP;
				}
				return;
			}
			regs = next;
			u->has_bp = next_has_bp;
			w->guessed = true;
			ret = true;
			if (unw_init_remote(&c, u->as, u))
				return;
			continue;
		}
		if (k > 0)
			continue;
		if (!k && is_first_function(u, s->is_return ? pc - 1 : pc))
			w->end = WG_WALK_START;
		else if (!k)
			w->end = WG_WALK_ZERO;
		else if (k == -UNW_EBADREG && u->needs) {
			w->end = WG_WALK_NEEDS;
			w->needs = u->needs;
		}
		return;
	}
}

/*
 * How good is this stack, made with a guessed frame pointer? 0: not one. It has to reach the
 * thread's start through return addresses; then the first caller that came from the guess
 * decides: 3 it calls that very function, 2 it cannot be told (an indirect call), 1 it calls
 * something else, so it may be left over from an earlier call, or a tail call stands between.
 */
static int score(struct wg_unwinder *u, const struct wg_walk *w, size_t known, uint64_t call_sp,
		 uint64_t call_ra)
{
	bool through = !call_sp;
	uint64_t target;
	int first = 2;

	if (w->end != WG_WALK_START || w->guessed || w->n <= known)
		return 0;
	for (size_t i = 1; i < w->n; i++) {
		if (w->step[i].sp <= w->step[i - 1].sp && w->step[i].is_return)
			return 0;
		if (w->step[i].sp == call_sp && w->step[i].pc == call_ra)
			through = true;
		if (!w->step[i].is_return || i < known)
			continue;
		if (i == known) {
			int k = calls(u, w->step[i].pc, w->step[i - 1].pc);

			first = k > 0 ? 3 : !k ? 2 : 1;
		}
		if (!call_before(u, w->step[i].pc, &target))
			return 0;
	}
	return through ? first : 0;
}

/*
 * Where the frame pointer of a function must be, if the function moves its stack pointer in
 * its first instructions only: push rbp, mov rsp to rbp, pushes, one subtraction. 0: it
 * begins otherwise.
 */
static uint64_t predicted(struct wg_unwinder *u, uint64_t pc, uint64_t sp)
{
#if defined(__x86_64__)
	uint64_t lo, hi;
	uint8_t b[64];
	int i = 0;
	int32_t n;

	if (!function_range(u, pc, &lo, &hi) || read_at(u, lo, b, sizeof(b)))
		return 0;
	if (!memcmp(b, "\xf3\x0f\x1e\xfa", 4))
		i = 4;
	if (b[i] != 0x55 || memcmp(b + i + 1, "\x48\x89\xe5", 3))
		return 0;
	for (i += 4; i < 40; i++) {
		if (b[i] >= 0x50 && b[i] <= 0x57) {
			sp += 8;
		} else if (b[i] == 0x41 && b[i + 1] >= 0x50 && b[i + 1] <= 0x57) {
			sp += 8;
			i++;
		} else if (b[i] == 0x49 || (b[i] == 0x48 && b[i + 1] == 0x89) || b[i] == 0x89) {
			/* a move between registers may stand among the pushes */
			i += b[i] == 0x89 ? 1 : 2;
			if (b[i] >> 6 != 3)
				return 0;
		} else if (b[i] == 0x48 && b[i + 1] == 0x83 && b[i + 2] == 0xec) {
			return sp + b[i + 3];
		} else if (b[i] == 0x48 && b[i + 1] == 0x81 && b[i + 2] == 0xec) {
			memcpy(&n, b + i + 3, 4);
			return n > 0 ? sp + (uint64_t)n : 0;
		} else {
			break;
		}
	}
	return sp;
#else
	(void)u;
	(void)pc;
	(void)sp;
	return 0;
#endif
}

bool wg_unwind_guess(struct wg_unwinder *u, const struct wg_regs *r, uint64_t call_sp,
		     uint64_t call_ra, struct wg_walk *w, bool *weak)
{
	struct wg_regs try = *r;
	uint64_t words[512], from, best_bp = 0, target, at;
	size_t known = w->n, equals = 0;
	int walks = 0, best = 0, k;

	*weak = false;
	if (w->end != WG_WALK_NEEDS || w->needs != REG_FP || !known)
		return false;
	at = predicted(u, w->step[known - 1].pc, w->step[known - 1].sp);
	if (at && at >= w->step[known - 1].sp && at + 16 <= u->stack_hi) {
		try.bp = at;
		wg_unwind(u, &try, true, false, w);
		if (score(u, w, known, call_sp, call_ra) >= 2)
			return true;
		wg_unwind(u, r, false, false, w);
	}
	from = (w->step[known - 1].sp + 7) & ~7ull;
	for (size_t done = 0; done < GUESS_WORDS && walks < GUESS_WALKS;) {
		size_t want = sizeof(words);
		int got;

		if (from + done * 8 >= u->stack_hi)
			break;
		if (u->stack_hi - (from + done * 8) < want)
			want = (size_t)(u->stack_hi - (from + done * 8));
		got = wg_mem_read_some(u->m, from + done * 8, words, want & ~(size_t)7);
		if (got < 16)
			break;
		for (size_t i = 0; i + 1 < (size_t)got / 8 && walks < GUESS_WALKS; i++) {
			at = from + (done + i) * 8;

			/* A frame record: a saved frame pointer, then a return address. */
			if (words[i + 1] < 4096 || words[i + 1] >> 47 ||
			    (words[i + 1] >= u->stack_lo && words[i + 1] < u->stack_hi) ||
			    !wg_symbols_is_code(u->s, words[i + 1]) ||
			    !call_before(u, words[i + 1], &target))
				continue;
			try.bp = at;
			walks++;
			wg_unwind(u, &try, true, false, w);
			k = score(u, w, known, call_sp, call_ra);
			if (k == 3)
				return true;
			equals = k > best ? 1 : k && k == best ? equals + 1 : equals;
			if (k > best) {
				best = k;
				best_bp = at;
			}
		}
		done += (size_t)got / 8 - 1; /* a record may lie across two reads */
	}
	if (best) {
		try.bp = best_bp;
		wg_unwind(u, &try, true, false, w);
		*weak = best == 1 || equals > 1;
		return true;
	}
	wg_unwind(u, r, false, false, w); /* what is certain, as before */
	return false;
}
