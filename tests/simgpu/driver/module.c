// SPDX-License-Identifier: Apache-2.0
/*
 * module.c - modules, libraries, functions, launches.
 *
 * Any image loads. A kernel does what its name says: the unqualified name, after C++ names are
 * demangled, begins with "spin" (never ends) or "sleep_us_N" (takes N microseconds); every other
 * ends at once. Names that an image of our own makes (image.h) are host functions.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define FUNC_MAGIC 0x46554e43u
#define KERNEL_MAGIC 0x4b45524eu
#define MODULE_MAGIC 0x4d4f4455u
#define LIBRARY_MAGIC 0x4c494252u
#define GLOBAL_BYTES (64u << 10) /* of a variable whose size no one told */

struct sg_kernel {
	uint32_t magic;
	char *name;
	struct sg_library *library;
	struct sg_kernel *next;
};

struct sg_library {
	uint32_t magic;
	const struct simgpu_image *native;
	struct sg_kernel *kernels;
	struct sg_module *modules[SG_MAX_DEVICES * 4]; /* one for each context that used it */
	unsigned int module_count;
	bool unloaded;
};

struct sg_global {
	char *name;
	uint64_t addr;
	size_t size;
	struct sg_global *next;
};

/* -- names ----------------------------------------------------------------------------------- */

#ifdef SIMGPU_HAVE_IBERTY
char *cplus_demangle(const char *mangled, int options);
static char *demangle(const char *name)
{
	return cplus_demangle(name, (1 << 14) | 1 | 2); /* V3 names, parameters, no more */
}
#else
static char *demangle(const char *name)
{
	static char *(*f)(const char *, char *, size_t *, int *);
	int status;

	if (!f) {
		void *lib = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);

		f = lib ? (char *(*)(const char *, char *, size_t *, int *))dlsym(lib,
										  "__cxa_demangle")
			: NULL;
	}
	return f ? f(name, NULL, NULL, &status) : NULL;
}
#endif

/* Where the unqualified name begins in "ret ns::(anonymous namespace)::name<args>(params)". */
static const char *unqualified(const char *s)
{
	const char *at = s;
	int nest = 0;

	for (const char *c = s; *c; c++) {
		if (!strncmp(c, "(anonymous namespace)", 21)) {
			c += 20;
			continue;
		}
		if (*c == '<') {
			nest++;
		} else if (*c == '>') {
			nest--;
		} else if (!nest && *c == '(') {
			break;
		} else if (!nest && (*c == ' ' || (c[0] == ':' && c[1] == ':'))) {
			at = *c == ' ' ? c + 1 : c + 2;
			c += *c == ' ' ? 0 : 1;
		}
	}
	return at;
}

void sg_name_behaviour(const char *name, enum sg_behaviour *what, uint64_t *sleep_us)
{
	char *plain = !strncmp(name, "_Z", 2) ? demangle(name) : NULL;
	const char *s = plain ? unqualified(plain) : name;

	*what = SG_K_END;
	*sleep_us = 0;
	if (!strncmp(s, "spin", 4)) {
		*what = SG_K_SPIN;
	} else if (!strncmp(s, "sleep_us_", 9) && isdigit((unsigned char)s[9])) {
		*what = SG_K_SLEEP;
		*sleep_us = strtoull(s + 9, NULL, 10);
	}
	free(plain);
}

/* -- modules --------------------------------------------------------------------------------- */

static const struct simgpu_image *native_image(const void *image)
{
	/* Byte by byte: a real image may be shorter than the magic. */
	const char *p = image;

	for (size_t i = 0; i < sizeof(SIMGPU_IMAGE_MAGIC) - 1; i++)
		if (p[i] != SIMGPU_IMAGE_MAGIC[i])
			return NULL;
	return image;
}

static struct sg_module *module_new(struct sg_ctx *ctx, const struct simgpu_image *native)
{
	struct sg_module *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->magic = MODULE_MAGIC;
	m->ctx = ctx;
	m->native = native;
	sg_lock();
	m->next = ctx->modules;
	ctx->modules = m;
	sg_unlock();
	SG_LOG("module-load module=%p", (void *)m);
	return m;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	struct sg_ctx *ctx;
	CUresult e = sg_enter_ctx(&ctx);

	if (!e)
		e = sg_capture_unsafe(ctx);
	if (e)
		return e;
	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmodule)module_new(ctx, native_image(image));
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n, CUjit_option *options,
			    void **values)
{
	(void)n;
	(void)options;
	(void)values;
	return cuModuleLoadData(out, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	return cuModuleLoadData(out, image);
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
	FILE *f;

	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	f = fopen(path, "re");
	if (!f)
		return CUDA_ERROR_FILE_NOT_FOUND;
	fclose(f);
	return cuModuleLoadData(out, "file");
}

static CUresult module_valid(CUmodule h)
{
	struct sg_module *m = (struct sg_module *)h;

	return (uintptr_t)m > 4095 && m->magic == MODULE_MAGIC && !m->unloaded
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_HANDLE;
}

static void module_gone(struct sg_module *m)
{
	m->unloaded = true;
	for (struct sg_global *g = m->globals; g; g = g->next) {
		struct sg_alloc *a = sg_find(g->addr);

		if (!a)
			continue;
		sg_ranges_del(a);
		sg_device_give(&sg.dev[a->device], a->addr, a->charged);
		free(a);
	}
	m->globals = NULL;
}

/* Functions stay: a stream may still hold one. They are few. */
CUresult cuModuleUnload(CUmodule h)
{
	struct sg_ctx *ctx;
	CUresult e = sg_enter_ctx(&ctx);

	if (!e)
		e = module_valid(h);
	if (e)
		return e;
	sg_lock();
	module_gone((struct sg_module *)h);
	sg_unlock();
	return CUDA_SUCCESS;
}

void sg_ctx_free_modules(struct sg_ctx *ctx)
{
	sg_lock();
	for (struct sg_module *m = ctx->modules; m; m = m->next)
		module_gone(m);
	sg_unlock();
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (sg_enter())
		return sg_enter();
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = sg.lazy ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

static struct sg_func *func_get(struct sg_module *m, const char *name, struct sg_kernel *kernel)
{
	struct sg_func *f;

	for (f = m->funcs; f; f = f->next)
		if (!strcmp(f->name, name))
			return f;
	f = calloc(1, sizeof(*f));
	f->magic = FUNC_MAGIC;
	f->name = strdup(name);
	f->module = m;
	f->kernel = kernel;
	if (m->native) {
		for (unsigned int i = 0; i < m->native->count && !f->native; i++)
			if (!strcmp(m->native->kernels[i].name, name))
				f->native = &m->native->kernels[i];
		f->what = SG_K_NATIVE;
		if (!f->native) {
			free(f->name);
			free(f);
			return NULL;
		}
	} else {
		sg_name_behaviour(name, &f->what, &f->sleep_us);
	}
	f->attrs[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
	f->attrs[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
	f->attrs[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
	f->attrs[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
	f->attrs[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
	f->attrs[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
	f->next = m->funcs;
	m->funcs = f;
	return f;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule h, const char *name)
{
	CUresult e = sg_enter_ctx(NULL);

	if (!e)
		e = module_valid(h);
	if (e)
		return e;
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	*out = (CUfunction)func_get((struct sg_module *)h, name, NULL);
	sg_unlock();
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule h)
{
	struct sg_module *m = (struct sg_module *)h;
	CUresult e = module_valid(h);

	if (e)
		return e;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = 0; /* those that were asked for: the image is not read */
	for (struct sg_func *f = m->funcs; f; f = f->next)
		++*count;
	return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned int n, CUmodule h)
{
	struct sg_module *m = (struct sg_module *)h;
	CUresult e = module_valid(h);

	if (e)
		return e;
	for (struct sg_func *f = m->funcs; f && n; f = f->next, n--)
		*out++ = (CUfunction)f;
	return CUDA_SUCCESS;
}

static CUresult global_get(struct sg_module *m, const char *name, CUdeviceptr *addr, size_t *bytes)
{
	struct sg_global *g;
	struct sg_alloc *a;
	uint64_t at;
	CUresult e;

	sg_lock();
	for (g = m->globals; g && strcmp(g->name, name); g = g->next)
		;
	sg_unlock();
	if (!g) {
		e = sg_device_take(m->ctx->dev, GLOBAL_BYTES, SG_ALIGN, &at);
		if (e)
			return e;
		a = calloc(1, sizeof(*a));
		*a = (struct sg_alloc){.addr = at,
				       .size = GLOBAL_BYTES,
				       .charged = GLOBAL_BYTES,
				       .kind = SG_MEM_GLOBAL,
				       .device = m->ctx->dev->index,
				       .ctx = m->ctx};
		g = calloc(1, sizeof(*g));
		g->name = strdup(name);
		g->addr = at;
		g->size = GLOBAL_BYTES;
		sg_lock();
		sg_ranges_add(a);
		g->next = m->globals;
		m->globals = g;
		sg_unlock();
	}
	if (addr)
		*addr = g->addr;
	if (bytes)
		*bytes = g->size;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *addr, size_t *bytes, CUmodule h, const char *name)
{
	CUresult e = sg_enter_ctx(NULL);

	if (!e)
		e = module_valid(h);
	if (e)
		return e;
	if (!name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	return global_get((struct sg_module *)h, name, addr, bytes);
}

/* -- libraries ------------------------------------------------------------------------------- */

static CUresult library_valid(CUlibrary h)
{
	struct sg_library *l = (struct sg_library *)h;

	return (uintptr_t)l > 4095 && l->magic == LIBRARY_MAGIC && !l->unloaded
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit, void **jit_values,
			   unsigned int jit_count, CUlibraryOption *options, void **values,
			   unsigned int count)
{
	struct sg_library *l;
	CUresult e = sg_enter();

	(void)jit;
	(void)jit_values;
	(void)jit_count;
	(void)options;
	(void)values;
	(void)count;
	if (e)
		return e;
	if (!out || !code)
		return CUDA_ERROR_INVALID_VALUE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->magic = LIBRARY_MAGIC;
	l->native = native_image(code);
	*out = (CUlibrary)l;
	SG_LOG("library-load library=%p", (void *)l);
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit,
			       void **jit_values, unsigned int jit_count, CUlibraryOption *options,
			       void **values, unsigned int count)
{
	FILE *f;

	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	f = fopen(path, "re");
	if (!f)
		return CUDA_ERROR_FILE_NOT_FOUND;
	fclose(f);
	return cuLibraryLoadData(out, "file", jit, jit_values, jit_count, options, values, count);
}

CUresult cuLibraryUnload(CUlibrary h)
{
	struct sg_library *l = (struct sg_library *)h;
	CUresult e = sg_enter();

	if (!e)
		e = library_valid(h);
	if (e)
		return e;
	sg_lock();
	l->unloaded = true;
	for (unsigned int i = 0; i < l->module_count; i++)
		module_gone(l->modules[i]);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary h, const char *name)
{
	struct sg_library *l = (struct sg_library *)h;
	struct sg_kernel *k;
	CUresult e = sg_enter();

	if (!e)
		e = library_valid(h);
	if (e)
		return e;
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (k = l->kernels; k && strcmp(k->name, name); k = k->next)
		;
	if (!k && l->native) {
		bool has = false;

		for (unsigned int i = 0; i < l->native->count; i++)
			has |= !strcmp(l->native->kernels[i].name, name);
		if (!has) {
			sg_unlock();
			return CUDA_ERROR_NOT_FOUND;
		}
	}
	if (!k) {
		k = calloc(1, sizeof(*k));
		k->magic = KERNEL_MAGIC;
		k->name = strdup(name);
		k->library = l;
		k->next = l->kernels;
		l->kernels = k;
	}
	sg_unlock();
	*out = (CUkernel)k;
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary h)
{
	struct sg_library *l = (struct sg_library *)h;
	CUresult e = library_valid(h);

	if (e)
		return e;
	*count = 0;
	for (struct sg_kernel *k = l->kernels; k; k = k->next)
		++*count;
	return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int n, CUlibrary h)
{
	struct sg_library *l = (struct sg_library *)h;
	CUresult e = library_valid(h);

	if (e)
		return e;
	for (struct sg_kernel *k = l->kernels; k && n; k = k->next, n--)
		*out++ = (CUkernel)k;
	return CUDA_SUCCESS;
}

/* The library's module in a context: made at first use. */
static struct sg_module *library_module(struct sg_library *l, struct sg_ctx *ctx)
{
	struct sg_module *m = NULL;

	sg_lock();
	for (unsigned int i = 0; i < l->module_count && !m; i++)
		if (l->modules[i]->ctx == ctx && !l->modules[i]->unloaded)
			m = l->modules[i];
	sg_unlock();
	if (m)
		return m;
	m = module_new(ctx, l->native);
	if (!m)
		return NULL;
	m->library = l;
	sg_lock();
	if (l->module_count < sizeof(l->modules) / sizeof(l->modules[0]))
		l->modules[l->module_count++] = m;
	sg_unlock();
	return m;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary h)
{
	struct sg_ctx *ctx;
	CUresult e = sg_enter_ctx(&ctx);

	if (!e)
		e = library_valid(h);
	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmodule)library_module((struct sg_library *)h, ctx);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *addr, size_t *bytes, CUlibrary h, const char *name)
{
	CUmodule m;
	CUresult e = cuLibraryGetModule(&m, h);

	return e ? e : cuModuleGetGlobal_v2(addr, bytes, m, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *addr, size_t *bytes, CUlibrary h, const char *name)
{
	return cuLibraryGetGlobal(addr, bytes, h, name);
}

/* A CUfunction, or a CUkernel: a launch takes either. */
struct sg_func *sg_func_of(CUfunction h, struct sg_ctx *ctx)
{
	struct sg_func *f = (struct sg_func *)h;
	struct sg_kernel *k = (struct sg_kernel *)h;
	struct sg_module *m;

	if ((uintptr_t)h < 4096)
		return NULL;
	if (f->magic == FUNC_MAGIC)
		return f;
	if (k->magic != KERNEL_MAGIC)
		return NULL;
	m = library_module(k->library, ctx);
	if (!m)
		return NULL;
	sg_lock();
	f = func_get(m, k->name, k);
	sg_unlock();
	return f;
}

static CUresult func_valid(CUfunction h, struct sg_func **out)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	*out = sg_func_of(h, sg_current());
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel k)
{
	struct sg_ctx *ctx;
	CUresult e = sg_enter_ctx(&ctx);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUfunction)sg_func_of((CUfunction)k, ctx);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult kernel_valid(CUkernel h)
{
	struct sg_kernel *k = (struct sg_kernel *)h;
	CUresult e = sg_enter();

	if (e)
		return e;
	return (uintptr_t)k > 4095 && k->magic == KERNEL_MAGIC ? CUDA_SUCCESS
							       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel h)
{
	CUresult e = kernel_valid(h);

	if (e)
		return e;
	*out = (CUlibrary)((struct sg_kernel *)h)->library;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **out, CUkernel h)
{
	CUresult e;

	if ((uintptr_t)h > 4095 && ((struct sg_func *)h)->magic == FUNC_MAGIC)
		return cuFuncGetName(out, (CUfunction)h);
	e = kernel_valid(h);
	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ((struct sg_kernel *)h)->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **out, CUfunction h)
{
	struct sg_func *f;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if ((uintptr_t)h > 4095 && ((struct sg_kernel *)h)->magic == KERNEL_MAGIC) {
		*out = ((struct sg_kernel *)h)->name;
		return CUDA_SUCCESS;
	}
	f = (struct sg_func *)h;
	if ((uintptr_t)h < 4096 || f->magic != FUNC_MAGIC)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = f->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *out, CUfunction h)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmodule)f->module;
	return CUDA_SUCCESS;
}

static CUresult attribute_get(int *value, CUfunction_attribute attr, CUfunction h)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	if (e)
		return e;
	if (!value || attr < 0 || attr >= 24)
		return CUDA_ERROR_INVALID_VALUE;
	*value = f->attrs[attr];
	return CUDA_SUCCESS;
}

static CUresult attribute_set(CUfunction_attribute attr, int value, CUfunction h)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	if (e)
		return e;
	if (attr < 0 || attr >= 24)
		return CUDA_ERROR_INVALID_VALUE;
	f->attrs[attr] = value;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attr, CUfunction h)
{
	return attribute_get(value, attr, h);
}

CUresult cuFuncSetAttribute(CUfunction h, CUfunction_attribute attr, int value)
{
	return attribute_set(attr, value, h);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attr, CUkernel k, CUdevice dev)
{
	(void)dev;
	return sg_current() ? attribute_get(value, attr, (CUfunction)k)
			    : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attr, int value, CUkernel k, CUdevice dev)
{
	(void)dev;
	return sg_current() ? attribute_set(attr, value, (CUfunction)k)
			    : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuFuncSetCacheConfig(CUfunction h, CUfunc_cache config)
{
	struct sg_func *f;

	(void)config;
	return func_valid(h, &f);
}

CUresult cuKernelSetCacheConfig(CUkernel k, CUfunc_cache config, CUdevice dev)
{
	(void)config;
	(void)dev;
	return kernel_valid(k);
}

CUresult cuFuncSetSharedMemConfig(CUfunction h, CUsharedconfig config)
{
	struct sg_func *f;

	(void)config;
	return func_valid(h, &f);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction h)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	if (e)
		return e;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = !sg.lazy || f->loaded ? CU_FUNCTION_LOADING_STATE_LOADED
				       : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return CUDA_SUCCESS;
}

/*
 * Under CUDA_MODULE_LOADING=LAZY the first launch of a function loads it: the loading thread
 * holds the context and waits for the device to go idle. Real drivers do so when they have to
 * place code; here it is always so (SIMGPU_LAZY_SYNC=0 turns it off).
 */
static void load(struct sg_ctx *ctx, struct sg_func *f)
{
	if (atomic_load(&f->loaded))
		return;
	if (!sg.lazy_sync) {
		atomic_store(&f->loaded, 1);
		return;
	}
	sg_api_hold(ctx);
	if (!atomic_load(&f->loaded)) {
		SG_LOG("lazy-load kernel=%s", f->name);
		sg_ctx_drain(ctx, sg_sched(ctx));
		atomic_store(&f->loaded, 1);
	}
	sg_api_release(ctx);
}

CUresult cuFuncLoad(CUfunction h)
{
	struct sg_ctx *ctx;
	struct sg_func *f;
	CUresult e = sg_enter_ctx(&ctx);

	if (!e)
		e = func_valid(h, &f);
	if (e)
		return e;
	load(ctx, f);
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction h, size_t index, size_t *offset, size_t *size)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	if (e)
		return e;
	if (!f->native || index || !offset)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = 0;
	if (size)
		*size = f->native->param_bytes;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t index, size_t *offset, size_t *size)
{
	return cuFuncGetParamInfo((CUfunction)k, index, offset, size);
}

/* -- launches -------------------------------------------------------------------------------- */

CUresult sg_native_params(const struct sg_func *f, void **params, void **extra, void **out)
{
	const void *from = NULL;

	*out = NULL;
	if (f->what != SG_K_NATIVE || !f->native->param_bytes)
		return CUDA_SUCCESS;
	if (params) {
		from = params[0];
	} else if (extra) {
		for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2)
			if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
				from = extra[i + 1];
	}
	if (!from)
		return CUDA_ERROR_INVALID_VALUE;
	*out = malloc(f->native->param_bytes);
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(*out, from, f->native->param_bytes);
	return CUDA_SUCCESS;
}

struct shape {
	unsigned int gx, gy, gz, bx, by, bz, shared;
};

static CUresult launch(CUfunction h, const struct shape *g, CUstream stream, void **params,
		       void **extra, bool pt)
{
	struct sg_op op = {.kind = SG_OP_KERNEL};
	struct sg_stream *s;
	struct sg_func *f;
	CUresult e = sg_stream_resolve(stream, pt, &s);

	if (e)
		return e;
	f = sg_func_of(h, s->ctx);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (f->module->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!g->gx || !g->gy || !g->gz || !g->bx || !g->by || !g->bz || g->bx > 1024 ||
	    g->by > 1024 || g->bz > 64 || (uint64_t)g->bx * g->by * g->bz > 1024 || g->gy > 65535 ||
	    g->gz > 65535 || g->gx > 2147483647u)
		return CUDA_ERROR_INVALID_VALUE;
	if (g->shared > (unsigned int)f->attrs[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
		return CUDA_ERROR_INVALID_VALUE;
	load(s->ctx, f);
	op.kernel.func = f;
	op.kernel.node = (CUDA_KERNEL_NODE_PARAMS_v2){.func = h,
						      .gridDimX = g->gx,
						      .gridDimY = g->gy,
						      .gridDimZ = g->gz,
						      .blockDimX = g->bx,
						      .blockDimY = g->by,
						      .blockDimZ = g->bz,
						      .sharedMemBytes = g->shared};
	e = sg_native_params(f, params, extra, &op.kernel.params);
	if (e)
		return e;
	SG_LOG("launch stream=%p kernel=%s", (void *)s, f->name);
	return sg_submit(s, &op, NULL);
}

#define LAUNCH(name, thread)                                                                       \
	CUresult name(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,             \
		      unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,      \
		      CUstream s, void **params, void **extra)                                     \
	{                                                                                          \
		struct shape g = {gx, gy, gz, bx, by, bz, shared};                                 \
                                                                                                   \
		return launch(f, &g, s, params, extra, thread);                                    \
	}
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)

#define COOPERATIVE(name, thread)                                                                  \
	CUresult name(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,             \
		      unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,      \
		      CUstream s, void **params)                                                   \
	{                                                                                          \
		struct shape g = {gx, gy, gz, bx, by, bz, shared};                                 \
                                                                                                   \
		return launch(f, &g, s, params, NULL, thread);                                     \
	}
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

#define EX(name, thread)                                                                           \
	CUresult name(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)          \
	{                                                                                          \
		if (!c)                                                                            \
			return CUDA_ERROR_INVALID_VALUE;                                           \
		struct shape g = {c->gridDimX,	c->gridDimY,  c->gridDimZ,	c->blockDimX,      \
				  c->blockDimY, c->blockDimZ, c->sharedMemBytes};                  \
                                                                                                   \
		return launch(f, &g, c->hStream, params, extra, thread);                           \
	}
EX(cuLaunchKernelEx, false)
EX(cuLaunchKernelEx_ptsz, true)

/* -- occupancy: one block fills a multiprocessor's threads ------------------------------------ */

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction h, int size,
						     size_t shared)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	if (e)
		return e;
	if (!blocks || size < 1)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = size > 1024 ? 0 : SG_MIN(2048 / size, 32);
	if (shared)
		*blocks = SG_MIN(*blocks, (int)(233472 / (shared + 1024)));
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction h, int size,
							      size_t shared, unsigned int flags)
{
	(void)flags;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, h, size, shared);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction h,
					  CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	(void)shared_of;
	(void)shared;
	if (e)
		return e;
	if (!grid || !block)
		return CUDA_ERROR_INVALID_VALUE;
	*block = limit > 0 && limit < 1024 ? limit : 1024;
	*grid = 16 * (2048 / *block);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction h,
						   CUoccupancyB2DSize shared_of, size_t shared,
						   int limit, unsigned int flags)
{
	(void)flags;
	return cuOccupancyMaxPotentialBlockSize(grid, block, h, shared_of, shared, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction h, int blocks, int size)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	(void)size;
	if (e)
		return e;
	if (!bytes || blocks < 1)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = SG_MIN(232448u, 233472u / (unsigned int)blocks - 1024u);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction h, const CUlaunchConfig *config)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	(void)config;
	if (e)
		return e;
	*size = 8;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction h, const CUlaunchConfig *config)
{
	struct sg_func *f;
	CUresult e = func_valid(h, &f);

	(void)config;
	if (e)
		return e;
	*n = 2;
	return CUDA_SUCCESS;
}

/* -- the linker: takes anything, gives back an image that loads ------------------------------- */

struct sg_link {
	char image[64];
};

CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *o, void **v, CUlinkState *out)
{
	(void)n;
	(void)o;
	(void)v;
	if (sg_enter_ctx(NULL))
		return sg_enter_ctx(NULL);
	*out = calloc(1, sizeof(struct sg_link));
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLinkAddData_v2(CUlinkState s, CUjitInputType t, void *data, size_t size,
			  const char *name, unsigned int n, CUjit_option *o, void **v)
{
	(void)t;
	(void)size;
	(void)name;
	(void)n;
	(void)o;
	(void)v;
	return s && data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkAddFile_v2(CUlinkState s, CUjitInputType t, const char *path, unsigned int n,
			  CUjit_option *o, void **v)
{
	(void)t;
	(void)n;
	(void)o;
	(void)v;
	return s && path ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkComplete(CUlinkState s, void **image, size_t *size)
{
	struct sg_link *l = (struct sg_link *)s;

	if (!l || !image)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(l->image, sizeof(l->image), "simgpu linked image");
	*image = l->image;
	if (size)
		*size = sizeof(l->image);
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState s)
{
	free(s);
	return CUDA_SUCCESS;
}
