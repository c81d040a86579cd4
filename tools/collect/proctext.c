/* SPDX-License-Identifier: Apache-2.0 */
/* proctext.c - the kernel's texts, parsed (see proctext.h). */
#include "proctext.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABSENT INT64_MIN

/* ---- numbers ------------------------------------------------------------- */

static void blanks(const char **s)
{
	while (**s == ' ' || **s == '\t')
		(*s)++;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

/* An unsigned number in `base`; never crosses a line, saturates. */
static bool u64(const char **s, int base, uint64_t *out)
{
	uint64_t v = 0;
	const char *p;

	blanks(s);
	p = *s;
	if (base == 16 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	if (digit(*p) >= base)
		return false;
	for (; digit(*p) < base; p++)
		if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)digit(*p), &v))
			v = UINT64_MAX;
	*s = p;
	*out = v;
	return true;
}

static bool s64(const char **s, int64_t *out)
{
	bool minus = false;
	uint64_t v;

	blanks(s);
	if (**s == '-') {
		minus = true;
		(*s)++;
	}
	if (!u64(s, 10, &v))
		return false;
	if (v > INT64_MAX)
		v = INT64_MAX;
	*out = minus ? -(int64_t)v : (int64_t)v;
	return true;
}

static bool s32(const char **s, int32_t *out)
{
	int64_t v;

	if (!s64(s, &v))
		return false;
	*out = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
	return true;
}

static const char *next_line(const char *s)
{
	const char *nl = strchr(s, '\n');

	return nl ? nl + 1 : s + strlen(s);
}

/* The rest of the line that starts with `key` followed by blanks or a colon. */
static const char *value_of(const char *s, const char *key)
{
	size_t n = strlen(key);

	for (; *s; s = next_line(s)) {
		const char *p;

		if (strncmp(s, key, n))
			continue;
		p = s + n;
		if (*p != ':' && *p != ' ' && *p != '\t')
			continue;
		while (*p == ':' || *p == ' ' || *p == '\t')
			p++;
		return p;
	}
	return NULL;
}

static int64_t number_of(const char *s, const char *key)
{
	const char *p = value_of(s, key);
	int64_t v;

	return p && s64(&p, &v) ? v : ABSENT;
}

/* ---- /proc/PID/stat -------------------------------------------------------- */

bool wg_pt_stat(const char *s, struct wg_pt_stat *out)
{
	/* Fields from the third on, in the kernel's order (proc(5)). */
	enum { STATE = 3, PPID, PGRP, SID, TTY, TPGID, FLAGS, MINFLT, CMINFLT, MAJFLT, CMAJFLT,
	       UTIME, STIME, CUTIME, CSTIME, PRIO, NICE, NTHREADS, ITREAL, START, VSIZE, RSS,
	       RSSLIM, STARTCODE, ENDCODE, STARTSTACK, ESP, EIP, SIG, BLOCKED, IGN, CATCH, WCHAN,
	       NSWAP, CNSWAP, EXITSIG, CPU, RTPRIO, POLICY, BLKIO, GUEST, CGUEST, STARTDATA,
	       ENDDATA, STARTBRK, ARGSTART, ARGEND, ENVSTART, ENVEND, EXITCODE, LAST };
	const char *open = strchr(s, '('), *close = strrchr(s, ')'), *p;
	int64_t v[LAST];
	size_t n;
	int i;

	memset(out, 0, sizeof(*out));
	out->cpu = -1;
	p = s;
	if (!s32(&p, &out->pid) || !open || !close || close < open)
		return false;
	n = (size_t)(close - open - 1);
	if (n >= sizeof(out->comm))
		n = sizeof(out->comm) - 1;
	memcpy(out->comm, open + 1, n);
	p = close + 1;
	blanks(&p);
	if (!isalpha((unsigned char)*p))
		return false;
	out->state = *p++;
	for (i = 0; i < LAST; i++)
		v[i] = 0;
	for (i = PPID; i < LAST; i++) {
		uint64_t u;

		blanks(&p);
		if (*p == '-') {
			if (!s64(&p, &v[i]))
				break;
		} else {
			if (!u64(&p, 10, &u)) /* addresses need all 64 bits */
				break;
			v[i] = (int64_t)u;
		}
	}
	if (i <= START)
		return false;
	out->ppid = (int32_t)v[PPID];
	out->pgid = (int32_t)v[PGRP];
	out->sid = (int32_t)v[SID];
	out->tty = (int32_t)v[TTY];
	out->tpgid = (int32_t)v[TPGID];
	out->flags = (uint32_t)v[FLAGS];
	out->majflt = (uint64_t)v[MAJFLT];
	out->utime = (uint64_t)v[UTIME];
	out->stime = (uint64_t)v[STIME];
	out->cutime = (uint64_t)v[CUTIME];
	out->cstime = (uint64_t)v[CSTIME];
	out->nthreads = v[NTHREADS];
	out->start = (uint64_t)v[START];
	out->start_code = (uint64_t)v[STARTCODE];
	out->start_stack = (uint64_t)v[STARTSTACK];
	out->arg_start = (uint64_t)v[ARGSTART];
	if (i > CPU)
		out->cpu = (int32_t)v[CPU];
	if (i == LAST) {
		out->exit_code = (int32_t)v[EXITCODE];
		out->has_exit_code = true;
	}
	return true;
}

/* ---- /proc/PID/status ------------------------------------------------------ */

bool wg_pt_status(const char *s, struct wg_pt_status *out)
{
	const char *p;
	int64_t v, w;

	memset(out, 0, sizeof(*out));
	out->uid = out->threads = out->lck_kb = out->pin_kb = out->switches = ABSENT;
	if (!value_of(s, "State"))
		return false;
	p = value_of(s, "Uid");
	if (p && s64(&p, &v) && s64(&p, &w)) /* real, effective: whose it is */
		out->uid = w;
	out->threads = number_of(s, "Threads");
	out->lck_kb = number_of(s, "VmLck");
	out->pin_kb = number_of(s, "VmPin");
	v = number_of(s, "TracerPid");
	out->tracer = v > 0 && v <= INT32_MAX ? (int32_t)v : 0;
	v = number_of(s, "Tgid");
	out->tgid = v > 0 && v <= INT32_MAX ? (int32_t)v : 0;
	p = value_of(s, "NSpid");
	while (p && s64(&p, &v) && v > 0 && v <= INT32_MAX) {
		out->nspid = (int32_t)v; /* the innermost stands last */
		out->ns_depth++;
	}
	v = number_of(s, "voluntary_ctxt_switches");
	w = number_of(s, "nonvoluntary_ctxt_switches");
	if (v != ABSENT && w != ABSENT)
		out->switches = v + w;
	p = value_of(s, "SigBlk");
	for (size_t i = 0; p && i < sizeof(out->sigblk) - 1 && digit(p[i]) < 16; i++)
		out->sigblk[i] = p[i];
	out->blocked = strtoull(out->sigblk, NULL, 16);
	p = value_of(s, "SigCgt");
	out->got_caught = p && out->sigblk[0];
	out->caught = out->got_caught ? strtoull(p, NULL, 16) : 0;
	return true;
}

/* ---- small files of a thread ------------------------------------------------ */

bool wg_pt_syscall(const char *s, struct wg_pt_syscall *out)
{
	memset(out, 0, sizeof(*out));
	blanks(&s);
	if (!strncmp(s, "running", 7)) {
		out->running = true;
		out->nr = ABSENT;
		return true;
	}
	if (!s64(&s, &out->nr))
		return false;
	if (out->nr >= 0)
		for (int i = 0; i < 6; i++)
			if (!u64(&s, 16, &out->args[i]))
				return false;
	return u64(&s, 16, &out->sp) && u64(&s, 16, &out->pc);
}

bool wg_pt_sched(const char *s, struct wg_pt_sched *out)
{
	const char *p = value_of(s, "se.exec_start");

	out->exec_start_ms = NAN;
	out->switches = number_of(s, "nr_switches");
	if (p) {
		char *end;
		double v = strtod(p, &end);

		if (end != p && v > 0 && v < 1e15)
			out->exec_start_ms = v;
	}
	return p || out->switches != ABSENT;
}

bool wg_pt_schedstat(const char *s, uint64_t *run_ns, uint64_t *slices)
{
	uint64_t delay;

	return u64(&s, 10, run_ns) && u64(&s, 10, &delay) && u64(&s, 10, slices);
}

bool wg_pt_io(const char *s, struct wg_pt_io *out)
{
	out->rchar = number_of(s, "rchar");
	out->wchar = number_of(s, "wchar");
	out->read_bytes = number_of(s, "read_bytes");
	out->write_bytes = number_of(s, "write_bytes");
	return out->rchar != ABSENT;
}

bool wg_pt_stack_line(const char **s, char *out, size_t n)
{
	while (**s) {
		const char *line = *s, *p, *end;
		size_t k;

		*s = next_line(line);
		p = strchr(line, ']');
		if (line[0] != '[' || !p || p >= *s)
			continue;
		p++;
		blanks(&p);
		for (end = p; *end && *end != '+' && *end != ' ' && *end != '\n'; end++)
			;
		k = (size_t)(end - p);
		if (!k || !strncmp(p, "0x", 2))
			continue;
		if (k >= n)
			k = n - 1;
		memcpy(out, p, k);
		out[k] = 0;
		return true;
	}
	return false;
}

/* ---- fdinfo ------------------------------------------------------------------ */

static char lock_kind(const char *p)
{
	if (!strncmp(p, "FLOCK", 5))
		return 'f';
	if (!strncmp(p, "POSIX", 5))
		return 'p';
	if (!strncmp(p, "OFDLCK", 6))
		return 'o';
	if (!strncmp(p, "LEASE", 5) || !strncmp(p, "DELEG", 5))
		return 'l';
	return 0;
}

bool wg_pt_fdinfo(const char *s, struct wg_pt_fdinfo *out, struct wg_pt_tfd *tfd, size_t cap)
{
	bool any = false;

	memset(out, 0, sizeof(*out));
	out->pos = out->flags = out->event_count = out->event_id = ABSENT;
	out->fuse_connection = ABSENT;
	out->mnt_id = -1;
	out->tty_index = -1;
	out->pid = INT32_MAX;
	for (; *s; s = next_line(s)) {
		const char *p = strchr(s, ':');
		size_t key;
		uint64_t u;
		int64_t v;

		if (!p || p - s > 24 || memchr(s, '\n', (size_t)(p - s)))
			continue;
		key = (size_t)(p - s);
		p++;
#define KEY(name) (key == sizeof(name) - 1 && !memcmp(s, name, key))
		if (KEY("pos")) {
			any |= s64(&p, &out->pos);
		} else if (KEY("flags")) {
			if (u64(&p, 8, &u) && u <= INT64_MAX)
				out->flags = (int64_t)u;
		} else if (KEY("mnt_id")) {
			s32(&p, &out->mnt_id);
		} else if (KEY("ino")) {
			u64(&p, 10, &out->ino);
		} else if (KEY("eventfd-count")) {
			if (u64(&p, 16, &u))
				out->event_count = u > INT64_MAX ? INT64_MAX : (int64_t)u;
		} else if (KEY("eventfd-id")) {
			s64(&p, &out->event_id);
		} else if (KEY("Pid")) {
			if (!s32(&p, &out->pid))
				out->pid = INT32_MAX;
		} else if (KEY("tty-index")) {
			s32(&p, &out->tty_index);
		} else if (KEY("fuse_connection")) {
			s64(&p, &out->fuse_connection);
		} else if (KEY("it_value")) {
			blanks(&p);
			if (*p == '(')
				p++;
			if (s64(&p, &v) && *p == ',') {
				p++;
				out->timer_s = v;
				out->has_timer = s64(&p, &out->timer_ns);
			}
		} else if (KEY("tfd")) {
			struct wg_pt_tfd t;
			const char *e = strstr(p, "events:");

			if (!s32(&p, &t.fd) || !e || e > next_line(s))
				continue;
			e += 7;
			if (!u64(&e, 16, &u))
				continue;
			t.events = (uint32_t)u;
			if (out->ntfd < cap)
				tfd[out->ntfd] = t;
			out->ntfd++;
		} else if (KEY("lock")) {
			/* "1: FLOCK  ADVISORY  WRITE 123 00:2a:77 0 EOF" */
			const char *end = next_line(s);

			if (!s64(&p, &v) || *p != ':')
				continue;
			p++;
			blanks(&p);
			if (!strncmp(p, "->", 2))
				continue; /* that one waits */
			if (!out->lock_kind || out->lock_kind == 'l')
				out->lock_kind = lock_kind(p);
			p = strstr(p, "WRITE");
			out->lock_write |= p && p < end;
		}
#undef KEY
	}
	return any;
}

/* ---- mounts -------------------------------------------------------------------- */

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape(const char *s, const char *end, char *out, size_t n)
{
	size_t k = 0;

	while (s < end && k + 1 < n) {
		if (*s == '\\' && end - s >= 4 && digit(s[1]) < 4 && digit(s[2]) < 8 &&
		    digit(s[3]) < 8) {
			out[k++] = (char)(digit(s[1]) << 6 | digit(s[2]) << 3 | digit(s[3]));
			s += 4;
		} else {
			out[k++] = *s++;
		}
	}
	out[k] = 0;
}

/* One blank-separated word inside the line. */
static bool word(const char **s, const char *end, const char **from, const char **to)
{
	while (*s < end && (**s == ' ' || **s == '\t'))
		(*s)++;
	*from = *s;
	while (*s < end && **s != ' ' && **s != '\t' && **s != '\n')
		(*s)++;
	*to = *s;
	return *to > *from;
}

bool wg_pt_mount(const char **s, struct wg_pt_mount *out)
{
	while (**s) {
		const char *line = *s, *end = next_line(line), *p = line, *a, *b;
		uint64_t maj, min;
		int64_t parent;
		bool dash = false;

		*s = end;
		memset(out, 0, sizeof(*out));
		if (!s32(&p, &out->id) || !s64(&p, &parent) || !u64(&p, 10, &maj) || *p++ != ':' ||
		    !u64(&p, 10, &min))
			continue;
		out->dev = maj << 20 | (min & 0xfffff);
		if (!word(&p, end, &a, &b))
			continue;
		unescape(a, b, out->root, sizeof(out->root));
		if (!word(&p, end, &a, &b))
			continue;
		unescape(a, b, out->point, sizeof(out->point));
		while (!dash && word(&p, end, &a, &b))
			dash = b - a == 1 && *a == '-';
		if (!dash || !word(&p, end, &a, &b))
			continue;
		unescape(a, b, out->type, sizeof(out->type));
		if (word(&p, end, &a, &b))
			unescape(a, b, out->source, sizeof(out->source));
		if (word(&p, end, &a, &b))
			unescape(a, b, out->options, sizeof(out->options));
		return true;
	}
	return false;
}

bool wg_pt_remote_fs(const char *type)
{
	static const char *const names[] = { "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p",
		"afs", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2", "orangefs", "coda",
		"pvfs2", "panfs", "virtiofs", "fuse", "fuseblk", "autofs", "wekafs", "davfs",
		"ncpfs", "dvs", "cvfs", "daos", "quobyte", "prl_fs", "vboxsf", NULL };

	if (!type)
		return false;
	if (!strncmp(type, "fuse.", 5) || !strncmp(type, "nfs", 3))
		return true;
	for (size_t i = 0; names[i]; i++)
		if (!strcmp(type, names[i]))
			return true;
	return false;
}

/* ---- locks ---------------------------------------------------------------------- */

bool wg_pt_lock(const char **s, struct wg_pt_lock *out)
{
	while (**s) {
		const char *line = *s, *end = next_line(line), *p = line, *a, *b;
		uint64_t maj, min;

		*s = end;
		memset(out, 0, sizeof(*out));
		if (!s32(&p, &out->id) || *p != ':')
			continue;
		p++;
		blanks(&p);
		if (!strncmp(p, "->", 2)) {
			out->blocked = true;
			p += 2;
			blanks(&p);
		}
		out->kind = lock_kind(p);
		if (!out->kind || !word(&p, end, &a, &b) || !word(&p, end, &a, &b) ||
		    !word(&p, end, &a, &b))
			continue;
		out->write = b - a == 5 && !memcmp(a, "WRITE", 5);
		if (!s32(&p, &out->pid) || !u64(&p, 16, &maj) || *p++ != ':' ||
		    !u64(&p, 16, &min) || *p++ != ':' || !u64(&p, 10, &out->ino))
			continue;
		out->dev = maj << 20 | (min & 0xfffff);
		if (!s64(&p, &out->start))
			continue;
		blanks(&p);
		if (!strncmp(p, "EOF", 3))
			out->end = ABSENT;
		else if (!s64(&p, &out->end))
			continue;
		return true;
	}
	return false;
}

/* ---- limits ----------------------------------------------------------------------- */

int64_t wg_pt_limit(const char *s, const char *name)
{
	size_t n = strlen(name);
	int64_t v;

	for (; *s; s = next_line(s)) {
		const char *p = s + n;

		if (strncmp(s, name, n) || *p != ' ')
			continue;
		blanks(&p);
		if (!strncmp(p, "unlimited", 9))
			return INT64_MAX;
		return s64(&p, &v) ? v : ABSENT;
	}
	return ABSENT;
}

/* ---- sockets ------------------------------------------------------------------------ */

/* An address as the kernel prints it: 32-bit words in host order. */
static bool address(const char **s, int words, uint8_t *out)
{
	blanks(s);
	for (int i = 0; i < words; i++) {
		uint32_t v = 0;

		for (int k = 0; k < 8; k++, (*s)++) {
			if (digit(**s) > 15)
				return false;
			v = v << 4 | (uint32_t)digit(**s);
		}
		memcpy(out + 4 * i, &v, 4);
	}
	return **s == ':';
}

bool wg_pt_inet(const char **s, int family, int type, struct wg_pt_sock *out)
{
	int words = family == 10 /* AF_INET6 */ ? 4 : 1;

	while (**s) {
		const char *p = *s;
		uint64_t v, w;
		int64_t x;

		*s = next_line(p);
		memset(out, 0, sizeof(*out));
		out->family = family;
		out->type = type;
		if (!s64(&p, &x) || *p++ != ':' || !address(&p, words, out->laddr))
			continue;
		p++;
		if (!u64(&p, 16, &v) || !address(&p, words, out->raddr))
			continue;
		p++;
		if (!u64(&p, 16, &w))
			continue;
		out->lport = (uint16_t)v;
		out->rport = (uint16_t)w;
		if (!u64(&p, 16, &v))
			continue;
		out->state = (int)v;
		out->listening = v == 10;
		if (!u64(&p, 16, &v) || *p++ != ':' || !u64(&p, 16, &w))
			continue;
		out->txq = (int64_t)(v & INT64_MAX);
		out->rxq = (int64_t)(w & INT64_MAX);
		if (!u64(&p, 16, &v) || *p++ != ':' || !u64(&p, 16, &v) || /* timer */
		    !u64(&p, 16, &v) || !s64(&p, &x) || !s64(&p, &x) || /* retransmits uid timeout */
		    !u64(&p, 10, &out->ino))
			continue;
		return true;
	}
	return false;
}

bool wg_pt_unix(const char **s, struct wg_pt_sock *out)
{
	while (**s) {
		const char *p = *s, *end = next_line(p);
		uint64_t flags, type, state, v;
		size_t n;

		*s = end;
		memset(out, 0, sizeof(*out));
		out->rxq = out->txq = ABSENT;
		out->family = 1;
		if (!u64(&p, 16, &v) || *p++ != ':' || !u64(&p, 16, &v) || !u64(&p, 16, &v) ||
		    !u64(&p, 16, &flags) || !u64(&p, 16, &type) || !u64(&p, 16, &state) ||
		    !u64(&p, 10, &out->ino))
			continue;
		out->type = (int)type;
		out->state = (int)state;
		out->listening = flags & 0x10000; /* __SO_ACCEPTCON */
		if (*p == ' ')
			p++;
		n = (size_t)(end - p);
		if (n && p[n - 1] == '\n')
			n--;
		if (n >= sizeof(out->path))
			n = sizeof(out->path) - 1;
		memcpy(out->path, p, n);
		return true;
	}
	return false;
}

/* ---- cgroups ------------------------------------------------------------------------ */

int64_t wg_pt_value(const char *s, const char *name)
{
	return number_of(s, name);
}

int64_t wg_pt_number(const char *s)
{
	int64_t v;

	blanks(&s);
	if (!strncmp(s, "max", 3))
		return INT64_MAX;
	return s64(&s, &v) ? v : ABSENT;
}

bool wg_pt_cgroup(const char *s, const char *controller, char *out, size_t n)
{
	size_t want = strlen(controller);

	for (; *s; s = next_line(s)) {
		const char *a = strchr(s, ':'), *b, *end, *c;
		bool hit = false;
		size_t k;

		if (!a)
			break;
		b = strchr(a + 1, ':');
		if (!b)
			break;
		end = next_line(s);
		if (a >= end || b >= end)
			continue;
		if (!want)
			hit = b == a + 1;
		for (c = a + 1; want && c < b && !hit;) {
			const char *comma = memchr(c, ',', (size_t)(b - c));
			const char *stop = comma ? comma : b;

			hit = (size_t)(stop - c) == want && !memcmp(c, controller, want);
			c = stop + 1;
		}
		if (!hit)
			continue;
		b++;
		k = (size_t)(end - b);
		if (k && b[k - 1] == '\n')
			k--;
		if (k >= n)
			return false;
		memcpy(out, b, k);
		out[k] = 0;
		return true;
	}
	return false;
}

/* ---- environment --------------------------------------------------------------------- */

bool wg_pt_env(const char *s, size_t len, size_t *at, const char **name, size_t *name_len,
	       const char **value, size_t *value_len)
{
	while (*at < len) {
		const char *p = s + *at, *eq;
		size_t n = strnlen(p, len - *at);

		*at += n + 1;
		eq = n ? memchr(p, '=', n) : NULL;
		if (!eq || eq == p)
			continue;
		*name = p;
		*name_len = (size_t)(eq - p);
		*value = eq + 1;
		*value_len = n - *name_len - 1;
		return true;
	}
	return false;
}
