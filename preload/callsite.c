/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callsite.c - who called: stacks at an allocation, interned, and the objects that
 * their addresses lie in.
 *
 * A stack is taken in one of two ways. A trace that was taken before at the same place
 * (same thread, return address and stack pointer) is looked at again: when every saved
 * return address still stands in its slot it is the same stack, at less than a nanosecond a
 * frame and without a lock. (The frame pointer is no part of it: in optimised code that
 * register holds anything, a loop's counter for one.) Otherwise libgcc's unwinder, which is linked in
 * with hidden symbols, walks (0.1 us a frame, lock-free through _dl_find_object).
 *
 * Slots lie on the thread's own stack above the caller's stack pointer. They are looked
 * at innermost first and the first difference ends it, so no slot is read that the
 * present chain of frames does not have.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include "accounting.h"
#include "pyframes.h"

#define CS_REMEMBERED 1024u /* traces; a power of two. Pages are only taken when used */
#define CS_STACKS 65536u
#define CS_SITES 65536u
#define CS_OBJECTS 4096u

struct cs_trace {
	struct wg_lock lock;
	uint32_t stack;
	uint64_t thread, ra, sp;
	uint32_t n;
	struct {
		uint64_t slot, ra;
	} frames[WGTR_FRAMES];
};

struct cs_entry {
	_Atomic uint64_t key; /* 0 empty; written last */
	uint32_t id;
	uint32_t pad;
};

struct cs_range {
	uint64_t start, end;
};

static struct {
	struct cs_trace *traces;
	struct cs_entry *stacks, *sites; /* open-addressed, twice as large as the count */
	struct wg_lock stacks_lock, sites_lock, objects_lock;
	uint32_t nstacks, nsites, stacks_max;
	/* Known executable ranges, sorted. Two sets: the one in use, and the next. */
	struct cs_range *ranges[2];
	uint32_t nranges[2];
	_Atomic uint32_t ranges_now;
	_Atomic uint32_t stale;
	uint64_t *seen; /* hashes of mappings already written */
	uint32_t nseen;
	char *maps;
} cs;

/*
 * Python frames cost tens of microseconds, so they are taken once a call site, when it is new,
 * and at most so often a second: enough to say where in the program it came from first.
 */
#define CS_PYTHON_FRAMES 6
#define CS_PYTHON_S 50

static void python_def(uint32_t site)
{
	static struct wg_pyline lines[CS_PYTHON_FRAMES]; /* sites_lock is held */
	static uint8_t buf[CS_PYTHON_FRAMES * 256];
	static uint64_t second, taken;
	struct wg_out o = { buf, buf + sizeof(buf) };
	uint64_t now = wg_ticks_to_ns(wg_ticks()) / 1000000000u;
	int n;

	if (now != second)
		taken = 0;
	second = now;
	if (taken++ >= CS_PYTHON_S)
		return;
	n = wg_python_take(lines, CS_PYTHON_FRAMES);
	if (!n)
		return;
	wg_out_varint(&o, site);
	wg_out_varint(&o, (uint64_t)n);
	for (int i = 0; i < n; i++) {
		wg_out_varint(&o, lines[i].line);
		wg_out_bytes(&o, lines[i].function, strnlen(lines[i].function, 60));
		wg_out_bytes(&o, lines[i].file, strnlen(lines[i].file, 128));
	}
	wg_trace_def(WGTR_D_PYTHON, buf, (size_t)(o.p - buf));
}

/* ---- interning ------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ (h >> 29);
}

/* The entry with this key, or the empty one where it belongs. NULL: no table. */
static struct cs_entry *find(struct cs_entry *table, uint32_t size, uint64_t key)
{
	uint32_t i;

	if (!table)
		return NULL;
	i = (uint32_t)(mix(0, key) >> 32);
	for (;; i++) {
		struct cs_entry *e = &table[i & (size - 1)];
		uint64_t k = atomic_load_explicit(&e->key, memory_order_acquire);

		if (k == key || !k)
			return e;
	}
}

static bool in_known_object(uint64_t pc)
{
	uint32_t set = atomic_load_explicit(&cs.ranges_now, memory_order_acquire) & 1;
	const struct cs_range *r = cs.ranges[set];
	uint32_t lo = 0, hi = cs.nranges[set];

	while (r && lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (pc < r[mid].start)
			hi = mid;
		else if (pc >= r[mid].end)
			lo = mid + 1;
		else
			return true;
	}
	return false;
}

static uint32_t intern_stack(const uint64_t *frames, uint32_t n)
{
	uint8_t buf[WGTR_FRAMES * 10 + 32];
	struct wg_out o = { buf, buf + sizeof(buf) };
	uint64_t key = 1;
	struct cs_entry *e;
	uint32_t id = 0;

	if (!n)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		key = mix(key, frames[i]);
	key |= !key;
	e = find(cs.stacks, 2 * CS_STACKS, key);
	if (!e)
		return 0;
	if (atomic_load_explicit(&e->key, memory_order_acquire) == key)
		return e->id;
	if (cs.nstacks >= cs.stacks_max || !wg_lock_take(&cs.stacks_lock))
		return 0;
	e = find(cs.stacks, 2 * CS_STACKS, key);
	if (atomic_load_explicit(&e->key, memory_order_acquire) == key) {
		id = e->id;
		goto out;
	}
	id = cs.nstacks + 1;
	wg_out_varint(&o, id);
	wg_out_varint(&o, n);
	wg_out_varint(&o, frames[0]);
	for (uint32_t i = 1; i < n; i++)
		wg_out_varint(&o, wg_zigzag(frames[i - 1], frames[i]));
	/* Without a file the number still tells stacks apart, for the runs of failure.c. */
	if (!wg_trace_def(WGTR_D_STACK, buf, (size_t)(o.p - buf)) && wg_trace_is_file()) {
		id = 0;
		goto out;
	}
	cs.nstacks = id;
	e->id = id;
	atomic_store_explicit(&e->key, key, memory_order_release);
	for (uint32_t i = 0; i < n; i++)
		if (!in_known_object(frames[i]))
			atomic_store_explicit(&cs.stale, 1, memory_order_relaxed);
out:
	wg_lock_drop(&cs.stacks_lock);
	return id;
}

/* ---- taking a stack ------------------------------------------------------------------ */

struct walk {
	uint64_t above; /* frames whose stack pointer is below belong to us */
	struct cs_trace *t; /* or NULL */
	uint64_t *frames;
	int n, max;
	bool exact; /* every return address was found in its slot */
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *arg)
{
	struct walk *w = arg;
	uint64_t pc = _Unwind_GetIP(context);
	uint64_t cfa = _Unwind_GetCFA(context); /* libgcc: this frame's stack pointer */

	if (!pc)
		return _URC_END_OF_STACK;
	if (cfa <= w->above)
		return _URC_NO_REASON;
	if (w->n == w->max)
		return _URC_END_OF_STACK;
	if (w->t) {
#if defined(__x86_64__)
		uint64_t slot = cfa - 8;

		if (*(const uint64_t *)slot != pc)
			w->exact = false; /* a signal frame, or a leaf of another kind */
		w->t->frames[w->n].slot = slot;
		w->t->frames[w->n].ra = pc;
#else
		w->exact = false; /* the slot of a return address is not at a fixed place */
#endif
	}
	w->frames[w->n++] = pc;
	return _URC_NO_REASON;
}

int wg_stack_take(const struct wg_site *s, uint64_t *frames, int max)
{
	struct walk w = { .above = (uint64_t)s->wrapper_frame, .frames = frames, .max = max };

	if (!w.above) {
		frames[0] = s->ra;
		return s->ra != 0;
	}
	_Unwind_Backtrace(step, &w);
	if (!w.n && s->ra) /* no unwind information for the wrapper's caller */
		frames[w.n++] = s->ra;
	return w.n;
}

static uint32_t remembered_stack(const struct wg_site *s)
{
	uint64_t frames[WGTR_FRAMES];
	struct walk w = { .above = (uint64_t)s->wrapper_frame, .frames = frames,
			  .max = WGTR_FRAMES, .exact = true };
	uint64_t thread = (uint64_t)&wg_mt;
	struct cs_trace *t;
	uint32_t id, i;

	if (!w.above || !cs.traces)
		return intern_stack(&s->ra, s->ra != 0);
	t = &cs.traces[mix(mix(thread, s->ra), s->sp) >> 54 & (CS_REMEMBERED - 1)];
	if (!wg_lock_try(&t->lock)) { /* another thread's trace lives here: take ours plainly */
		i = (uint32_t)wg_stack_take(s, frames, WGTR_FRAMES);
		return intern_stack(frames, i);
	}
	if (t->n && t->ra == s->ra && t->sp == s->sp && t->thread == thread) {
		for (i = 0; i < t->n; i++)
			if (*(const volatile uint64_t *)t->frames[i].slot != t->frames[i].ra)
				break;
		if (i == t->n) {
			id = t->stack;
			goto out;
		}
	}
	t->n = 0;
	w.t = t;
	_Unwind_Backtrace(step, &w);
	if (!w.n && s->ra) {
		frames[w.n++] = s->ra;
		w.exact = false;
	}
	id = intern_stack(frames, (uint32_t)w.n);
	if (w.exact && id && w.n) {
		t->thread = thread;
		t->ra = s->ra;
		t->sp = s->sp;
		t->stack = id;
		t->n = (uint32_t)w.n;
	}
out:
	wg_lock_drop(&t->lock);
	return id;
}

uint32_t wg_site_of(const struct wg_site *s, enum wg_mem_kind kind, int device)
{
	uint32_t stack, site = 0;
	struct wgtr_site *entry;
	struct cs_entry *e;
	uint64_t key;

	if (wg_settings.stacks == WG_STACKS_OFF ||
	    (kind == WG_MEM_KINDS && wg_settings.stacks != WG_STACKS_ALL))
		stack = intern_stack(&s->ra, s->ra != 0); /* the caller's address costs nothing */
	else
		stack = remembered_stack(s);
	key = (uint64_t)stack << 32 | (uint64_t)s->fn << 16 |
	      (uint64_t)((device + 1) & 0xff) << 8 | (uint64_t)(kind + 1);
	e = find(cs.sites, 2 * CS_SITES, key);
	if (!e)
		return 0;
	if (wg_likely(atomic_load_explicit(&e->key, memory_order_acquire) == key))
		return e->id;
	wg_trace_name(s->fn);
	if (cs.nsites >= CS_SITES || !wg_lock_take(&cs.sites_lock))
		return 0;
	e = find(cs.sites, 2 * CS_SITES, key);
	if (atomic_load_explicit(&e->key, memory_order_acquire) == key) {
		site = e->id;
		goto out;
	}
	entry = wg_trace_site_new(&site);
	if (!entry)
		goto out;
	entry->stack = stack;
	entry->fn = s->fn;
	entry->device = (int16_t)device;
	entry->first = wg_ticks();
	__atomic_store_n(&entry->kind, (uint8_t)(kind + 1), __ATOMIC_RELEASE);
	cs.nsites++;
	if (wg_settings.stacks != WG_STACKS_OFF && kind != WG_MEM_KINDS)
		python_def(site);
	e->id = site;
	atomic_store_explicit(&e->key, key, memory_order_release);
out:
	wg_lock_drop(&cs.sites_lock);
	return site;
}

/* ---- objects ------------------------------------------------------------------------------ */

bool wg_objects_stale(void)
{
	return atomic_load_explicit(&cs.stale, memory_order_relaxed);
}

/* The GNU build id of the ELF image at base, from its notes in memory. Length, 0 none. */
static size_t build_id(uint64_t base, uint8_t out[64])
{
	uint8_t note[1024];
	Elf64_Ehdr eh;
	uint64_t bias = 0;
	bool have_bias = false;

	if (wg_peek(base, &eh, sizeof(eh)) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_phentsize != sizeof(Elf64_Phdr))
		return 0;
	for (int pass = 0; pass < 2; pass++) {
		for (unsigned int i = 0; i < eh.e_phnum && i < 64; i++) {
			Elf64_Phdr ph;
			size_t n, at = 0;

			if (wg_peek(base + eh.e_phoff + i * sizeof(ph), &ph, sizeof(ph)))
				return 0;
			if (!pass && ph.p_type == PT_LOAD && !have_bias) {
				bias = base - (ph.p_vaddr - ph.p_offset);
				have_bias = true;
			}
			if (!pass || ph.p_type != PT_NOTE || !have_bias)
				continue;
			n = ph.p_filesz < sizeof(note) ? ph.p_filesz : sizeof(note);
			if (wg_peek(bias + ph.p_vaddr, note, n))
				continue;
			while (at + sizeof(Elf64_Nhdr) <= n) {
				Elf64_Nhdr nh;
				size_t name, desc;

				memcpy(&nh, note + at, sizeof(nh));
				at += sizeof(nh);
				name = ((size_t)nh.n_namesz + 3) & ~3ul;
				desc = ((size_t)nh.n_descsz + 3) & ~3ul;
				if (name > n - at || desc > n - at - name)
					break;
				if (nh.n_type == NT_GNU_BUILD_ID && nh.n_namesz == 4 &&
				    !memcmp(note + at, "GNU", 4) && nh.n_descsz <= 64) {
					memcpy(out, note + at + name, nh.n_descsz);
					return nh.n_descsz;
				}
				at += name + desc;
			}
		}
	}
	return 0;
}

struct map_line {
	uint64_t start, end, offset, inode;
	bool exec;
	const char *path;
	size_t path_len;
};

static const char *hex(const char *p, uint64_t *v)
{
	for (*v = 0;; p++) {
		char c = *p;

		if (c >= '0' && c <= '9')
			*v = *v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			*v = *v << 4 | (uint64_t)(c - 'a' + 10);
		else
			return p;
	}
}

/* "start-end rwxp offset dev inode   path"; the line ends with a NUL. */
static bool parse_line(const char *p, struct map_line *m)
{
	uint64_t ignored;

	p = hex(p, &m->start);
	if (*p++ != '-')
		return false;
	p = hex(p, &m->end);
	if (*p++ != ' ' || strnlen(p, 5) < 5)
		return false;
	m->exec = p[2] == 'x';
	p = hex(p + 5, &m->offset);
	if (*p++ != ' ')
		return false;
	p = hex(p, &ignored);
	if (*p++ != ':')
		return false;
	p = hex(p, &ignored);
	while (*p == ' ')
		p++;
	for (m->inode = 0; *p >= '0' && *p <= '9'; p++)
		m->inode = m->inode * 10 + (uint64_t)(*p - '0');
	while (*p == ' ')
		p++;
	m->path = p;
	m->path_len = strlen(p);
	return true;
}

static void write_object(const struct map_line *m, uint64_t base)
{
	uint8_t buf[4096 + 256], id[64];
	struct wg_out o = { buf, buf + sizeof(buf) };
	size_t n = base ? build_id(base, id) : 0;

	wg_out_varint(&o, wg_ticks());
	wg_out_varint(&o, m->start);
	wg_out_varint(&o, m->end);
	wg_out_varint(&o, m->offset);
	wg_out_varint(&o, m->inode);
	wg_out_bytes(&o, id, n);
	wg_out_bytes(&o, m->path, m->path_len);
	wg_trace_def(WGTR_D_OBJECT, buf, (size_t)(o.p - buf));
}

#define MAPS_BUFFER (256u << 10)

/*
 * Every executable mapping of a file that was not there before becomes an OBJECT. Read
 * raw and by nobody's allocator; from the loader we ask nothing, its lock may be held by
 * a thread that hangs in a constructor.
 */
void wg_objects_scan(void)
{
	uint32_t set, n = 0;
	uint64_t base = 0, base_inode = 0;
	size_t have = 0;
	int fd;

	if (!cs.maps || !cs.seen || !wg_lock_take(&cs.objects_lock))
		return;
	atomic_store_explicit(&cs.stale, 0, memory_order_relaxed);
	fd = wg_raw_open("/proc/self/maps");
	if (fd < 0)
		goto out;
	set = !(atomic_load_explicit(&cs.ranges_now, memory_order_relaxed) & 1);
	for (;;) {
		long r = syscall(SYS_read, fd, cs.maps + have, MAPS_BUFFER - 1 - have);
		char *p = cs.maps, *nl;

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		have += (size_t)r;
		cs.maps[have] = 0;
		while ((nl = memchr(p, '\n', have - (size_t)(p - cs.maps)))) {
			struct map_line m;
			bool known = false;
			uint64_t key;

			*nl = 0;
			if (!parse_line(p, &m) || !m.path_len)
				goto next;
			if (!m.offset && m.path[0] == '/') {
				base = m.start;
				base_inode = m.inode;
			}
			if (!m.exec || (m.path[0] != '/' && strcmp(m.path, "[vdso]")))
				goto next;
			if (cs.ranges[set] && n < CS_OBJECTS) {
				cs.ranges[set][n].start = m.start;
				cs.ranges[set][n++].end = m.end;
			}
			key = mix(mix(mix(1, m.start), m.end), m.offset ^ m.inode << 20);
			for (uint32_t i = cs.nseen; i-- && !known;)
				known = cs.seen[i] == key;
			if (known || cs.nseen >= CS_OBJECTS)
				goto next;
			cs.seen[cs.nseen++] = key;
			if (m.path[0] == '/') {
				uint64_t at = base_inode == m.inode ? base : 0;

				write_object(&m, at);
				wg_python_object(at, m.path);
			} else {
				write_object(&m, m.start);
			}
next:
			p = nl + 1;
		}
		have -= (size_t)(p - cs.maps);
		memmove(cs.maps, p, have);
		if (have >= MAPS_BUFFER - 1)
			have = 0; /* a line of 256 KiB is none */
	}
	wg_raw_close(fd);
	cs.nranges[set] = n;
	atomic_store_explicit(&cs.ranges_now, set, memory_order_release);
out:
	wg_lock_drop(&cs.objects_lock);
}

/* ---- life ------------------------------------------------------------------------------------- */

void wg_callsite_start(void)
{
	uint64_t budget = wg_settings.trace_max / 4 / 256;

	cs.stacks_max = budget < 1024 ? 1024 : budget > CS_STACKS ? CS_STACKS : (uint32_t)budget;
	cs.traces = wg_pages(CS_REMEMBERED * sizeof(*cs.traces));
	cs.stacks = wg_pages(2 * CS_STACKS * sizeof(*cs.stacks));
	cs.sites = wg_pages(2 * CS_SITES * sizeof(*cs.sites));
	cs.ranges[0] = wg_pages(CS_OBJECTS * sizeof(struct cs_range));
	cs.ranges[1] = wg_pages(CS_OBJECTS * sizeof(struct cs_range));
	cs.seen = wg_pages(CS_OBJECTS * sizeof(*cs.seen));
	cs.maps = wg_pages(MAPS_BUFFER);
	wg_objects_scan();
}

void wg_callsite_fork_child(void)
{
	wg_pages_free(cs.traces, CS_REMEMBERED * sizeof(*cs.traces));
	wg_pages_free(cs.stacks, 2 * CS_STACKS * sizeof(*cs.stacks));
	wg_pages_free(cs.sites, 2 * CS_SITES * sizeof(*cs.sites));
	wg_pages_free(cs.ranges[0], CS_OBJECTS * sizeof(struct cs_range));
	wg_pages_free(cs.ranges[1], CS_OBJECTS * sizeof(struct cs_range));
	wg_pages_free(cs.seen, CS_OBJECTS * sizeof(*cs.seen));
	wg_pages_free(cs.maps, MAPS_BUFFER);
	memset(&cs, 0, sizeof(cs));
}
