/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bystander.c - threads that are idle by design, so that nobody waits for their word.
 *
 * Judged by what they wait on and whose code started them, never by what the program is: a
 * thread started by a driver, a communication library, a thread pool of a numerical library or
 * the recorder, and one of several with equal stacks asleep on something without an owner, are
 * spare hands. As soon as a thread runs code of somebody else (a host callback on a driver's
 * thread, a task on a pool's worker), it is none.
 */
#include "internal.h"

#include <strings.h>

static const char *const helper_libs[] = {
	"libcuda.so", "libcuda-",  "libnvidia",	   "libcudart", "libnccl", "libcublas", "libcudnn",
	"libcupti",   "libnvrtc",  "libopenblas",  "libblas",	"libmkl",  "libgomp",	"libiomp5",
	"libomp",     "libtbb",	   "libjemalloc",  "libucs",	"libuct",  "libucp",	"librdmacm",
	"libibverbs", "libfabric", "libwaitgraph", "libtorch",	"libc10",  "libxla",	"libarrow",
	"libjvm.so",
};

static bool helper_module(const struct wg_frame *f)
{
	return wg_base_in(f->module, helper_libs, sizeof(helper_libs) / sizeof(helper_libs[0]));
}

static bool idle_op(const struct wg_thread *t)
{
	switch (t->wait.op) {
	case WG_OP_FUTEX:
	case WG_OP_POLL:
	case WG_OP_EPOLL:
	case WG_OP_SLEEP:
	case WG_OP_SIGWAIT:
	case WG_OP_READ:
	case WG_OP_IOURING:
	case WG_OP_ACCEPT:
		return true;
	case WG_OP_IOCTL:
		return t->state != 'D';
	default:
		return false;
	}
}

/* Started by a helper library and inside no other code than that library's and the system's. */
static bool helpers_own(const struct wg_thread *t)
{
	const struct wg_frame *start = wg_start_function(t);

	if (!start || !helper_module(start) || t->has_python || t->python_stack.n)
		return false;
	for (size_t i = 0; i < t->native_stack.n; i++) {
		const struct wg_frame *f = &t->native_stack.v[i];

		if (f->module && !wg_is_plumbing(f) && !helper_module(f))
			return false;
		/* Code without a file is what a virtual machine made of the program's. */
		if (!f->module && wg_module_is(start, "libjvm"))
			return false;
	}
	return true;
}

static bool polling_library(const struct wg_thread *t)
{
	static const char *const libs[] = {"libcuda.so", "libcuda-",  "libnccl",     "libnvidia",
					   "libucs",	 "libuct",    "libucp",	     "libibverbs",
					   "librdmacm",	 "libfabric", "libwaitgraph"};
	const struct wg_frame *start = wg_start_function(t);

	return start && wg_base_in(start->module, libs, sizeof(libs) / sizeof(libs[0]));
}

/* Names that these libraries give to their threads: only where no stack can be had. */
static bool helper_name(const struct wg_thread *t)
{
	static const char *const names[] = {"cuda-",	   "cuda0",    "nccl",	  "NCCL",
					    "jemalloc_bg", "OpenBLAS", "pt_nccl", "pt_tcpstore",
					    "pt_autograd", "waitgraph"};

	if (!t->name || t->native_stack.n || t->python_stack.n)
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(t->name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* Of those, the ones that poll: on a processor, where a stack can only be had with BPF. */
static bool driver_name(const struct wg_thread *t)
{
	return t->name && helper_name(t) &&
	       (!strncmp(t->name, "cuda", 4) || !strncasecmp(t->name, "nccl", 4));
}

/* All Python frames belong to the interpreter's own library: a service thread of it. */
static bool stdlib_only(const struct wg_thread *t)
{
	if (!t->python_stack.n)
		return false;
	for (size_t i = 0; i < t->python_stack.n; i++) {
		const char *f = t->python_stack.v[i].file;

		if (!f)
			return false;
		if (f[0] == '<')
			continue;
		if (!strstr(f, "/lib/python") || strstr(f, "-packages/"))
			return false;
	}
	return true;
}

bool wg_is_bystander(struct wg_b *b, int32_t proc, const struct wg_thread *t)
{
	const struct wg_process *p = b->pi[proc].p;

	if (t->ours)
		return true;
	if (t == &p->threads.v[b->pi[proc].main_thr] || t->py_main || t->calls.n)
		return false;
	/* Drivers and communication libraries poll: their own threads burn CPU without any work. */
	if (t->wait.op == WG_OP_RUNNING &&
	    ((polling_library(t) && helpers_own(t)) || driver_name(t)))
		return true;
	if (!idle_op(t))
		return false;
	if (helpers_own(t) || helper_name(t))
		return true;
	if (t->wait.op != WG_OP_FUTEX)
		return false;
	if (stdlib_only(t))
		return true;
	return wg_same_stack(b, proc, t) >= 2;
}
