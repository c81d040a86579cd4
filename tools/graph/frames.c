/* SPDX-License-Identifier: Apache-2.0 */
/* frames.c - questions to stacks: whose code waits, and where it was called from. */
#include "internal.h"

const char *wg_base(const char *path)
{
	const char *s = path ? strrchr(path, '/') : NULL;

	return s ? s + 1 : path;
}

/* Does the base name start with one of these? */
bool wg_base_in(const char *path, const char *const *list, size_t n)
{
	const char *m = wg_base(path);

	for (size_t i = 0; i < n && m; i++)
		if (m[0] == list[i][0] && !strncmp(m, list[i], strlen(list[i])))
			return true;
	return false;
}

bool wg_module_is(const struct wg_frame *f, const char *prefix)
{
	const char *m = wg_base(f->module);

	return m && !strncmp(m, prefix, strlen(prefix));
}

/* Symbols come with arguments ("f(int)") or versions ("f@@GLIBC_2.34"): compare the name. */
static bool symbol_is(const char *sym, const char *name)
{
	size_t n = strlen(name);

	return sym && !strncmp(sym, name, n) && (!sym[n] || sym[n] == '(' || sym[n] == '@');
}

bool wg_has_symbol(const struct wg_thread *t, const char *symbol)
{
	for (size_t i = 0; i < t->native_stack.n; i++)
		if (symbol_is(t->native_stack.v[i].symbol, symbol))
			return true;
	return false;
}

bool wg_has_symbol_prefix(const struct wg_thread *t, const char *prefix)
{
	size_t n = strlen(prefix);

	for (size_t i = 0; i < t->native_stack.n; i++)
		if (t->native_stack.v[i].symbol && !strncmp(t->native_stack.v[i].symbol, prefix, n))
			return true;
	return false;
}

bool wg_is_plumbing(const struct wg_frame *f)
{
	static const char *const libs[] = {"libc.so", "libc-",	     "libpthread", "libstdc++",
					   "libc++",  "ld-linux",    "ld-2.",	   "libgcc_s",
					   "libm.so", "[vdso]",	     "librt",	   "libdl",
					   "ld-musl", "libwaitgraph"};
	static const char *const syms[] = {"std::",	  "void std::", "bool std::", "__gthread",
					   "__gnu_cxx::", "decltype",	"pthread_",   "__pthread_"};

	if (wg_base_in(f->module, libs, sizeof(libs) / sizeof(libs[0])))
		return true;
	/* Templates of the standard library are compiled into the program itself. */
	if (!f->symbol || !strchr("svbd_p", f->symbol[0]))
		return false;
	for (size_t i = 0; i < sizeof(syms) / sizeof(syms[0]) && f->symbol; i++)
		if (!strncmp(f->symbol, syms[i], strlen(syms[i])))
			return true;
	return false;
}

const struct wg_frame *wg_caller(const struct wg_thread *t)
{
	for (size_t i = 0; i < t->native_stack.n; i++)
		if (t->native_stack.v[i].module && !wg_is_plumbing(&t->native_stack.v[i]))
			return &t->native_stack.v[i];
	return NULL;
}

const struct wg_frame *wg_start_function(const struct wg_thread *t)
{
	for (size_t i = t->native_stack.n; i-- > 0;) {
		const struct wg_frame *f = &t->native_stack.v[i];

		if (!f->module || wg_is_plumbing(f))
			continue;
		if (symbol_is(f->symbol, "_start"))
			continue;
		return f;
	}
	return NULL;
}

bool wg_frames_py_is(const struct wg_pyframe *f, const char *file, const char *function)
{
	const char *b = wg_base(f->file), *dot;

	if (file) {
		/* "concurrent/futures/_base.py": compare the end of the path */
		size_t n = strlen(file), m = f->file ? strlen(f->file) : 0;

		if (strchr(file, '/')) {
			if (m < n || strcmp(f->file + m - n, file))
				return false;
		} else if (!b || strcmp(b, file)) {
			return false;
		}
	}
	if (!function)
		return true;
	if (!f->function)
		return false;
	if (!strcmp(f->function, function))
		return true;
	dot = strrchr(f->function, '.'); /* qualified from 3.11 on */
	return dot && !strcmp(dot + 1, function);
}

bool wg_frames_py_at(const struct wg_thread *t, const char *file, const char *function)
{
	return t->python_stack.n && wg_frames_py_is(&t->python_stack.v[0], file, function);
}

bool wg_py_has(const struct wg_thread *t, const char *file, const char *function)
{
	for (size_t i = 0; i < t->python_stack.n; i++)
		if (wg_frames_py_is(&t->python_stack.v[i], file, function))
			return true;
	return false;
}

/* The frame that a user recognises: innermost outside the interpreter's own library. */
const char *wg_py_top(struct wg_b *b, const struct wg_thread *t)
{
	const struct wg_pyframe *best = NULL;

	for (size_t i = 0; i < t->python_stack.n; i++) {
		const struct wg_pyframe *f = &t->python_stack.v[i];

		if (!best)
			best = f;
		if (f->file && (strstr(f->file, "/lib/python") || f->file[0] == '<'))
			continue;
		best = f;
		break;
	}
	if (!best)
		return NULL;
	if (best->file && wg_has_int(best->line))
		return wg_say(b, "%s (%s:%lld)", best->function ? best->function : "?",
			      wg_base(best->file), (long long)best->line);
	return wg_say(b, "%s", best->function ? best->function : "?");
}

/*
 * The frame of the program that a user recognises. In a recorded call everything above our wrapper
 * is the driver's; the program begins below it.
 */
static const struct wg_frame *program_frame(const struct wg_thread *t)
{
	size_t from = 0;

	for (size_t i = 0; t->calls.n && i < t->native_stack.n; i++)
		if (t->native_stack.v[i].module &&
		    wg_module_is(&t->native_stack.v[i], "libwaitgraph.so"))
			from = i + 1;
	for (size_t i = from; from && i < t->native_stack.n; i++)
		if (t->native_stack.v[i].module && !wg_is_plumbing(&t->native_stack.v[i]))
			return &t->native_stack.v[i];
	return wg_caller(t);
}

const char *wg_where(struct wg_b *b, const struct wg_thread *t)
{
	const char *py = wg_py_top(b, t);
	const struct wg_frame *f;

	if (py)
		return py;
	f = program_frame(t);
	if (f && f->symbol && f->file && wg_has_int(f->line))
		return wg_say(b, "%s (%s:%lld)", f->symbol, wg_base(f->file), (long long)f->line);
	if (f && f->symbol)
		return wg_say(b, "%s (%s)", f->symbol, wg_base(f->module));
	if (f && f->module)
		return wg_say(b, "%s+0x%llx", wg_base(f->module), (unsigned long long)f->offset);
	return NULL;
}

const char *wg_where_failed(struct wg_b *b, const struct wg_failure *x)
{
	struct wg_thread t = { .tid = x->tid };

	t.native_stack.v = x->stack.v;
	t.native_stack.n = x->stack.n;
	t.python_stack.v = x->python_stack.v;
	t.python_stack.n = x->python_stack.n;
	return wg_where(b, &t);
}

bool wg_kernel_has(const struct wg_thread *t, const char *prefix)
{
	size_t n = strlen(prefix);

	if (t->wchan && !strncmp(t->wchan, prefix, n))
		return true;
	for (size_t i = 0; i < t->kernel_stack.n; i++)
		if (t->kernel_stack.v[i] && !strncmp(t->kernel_stack.v[i], prefix, n))
			return true;
	return false;
}

uint64_t wg_stack_hash(const struct wg_thread *t)
{
	uint64_t h = 0xcbf29ce484222325ull;

	if (!t->native_stack.n && !t->python_stack.n)
		return 0;
	for (size_t i = 0; i < t->native_stack.n; i++) {
		const struct wg_frame *f = &t->native_stack.v[i];

		h = (h ^ (f->pc ? f->pc : f->offset)) * 0x100000001b3ull;
		for (const char *s = f->pc ? NULL : f->symbol; s && *s; s++)
			h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	}
	for (size_t i = 0; i < t->python_stack.n; i++) {
		h = (h ^ (uint64_t)t->python_stack.v[i].line) * 0x100000001b3ull;
		for (const char *s = t->python_stack.v[i].function; s && *s; s++)
			h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	}
	return h | 1;
}
