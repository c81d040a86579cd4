// SPDX-License-Identifier: Apache-2.0
/* lookup.c - cuGetProcAddress gives for every (name, version, flavour) the symbol that the table
 * says. */
#include <cuda.h>
#include <dlfcn.h>

#include "tests.h"

static const struct row {
	const char *name;
	int version, thread;
	const char *symbol;
} rows[] = {
#define V(name, version, flavour, symbol) {#name, version, flavour, #symbol},
#include "driver_versions.def"
#undef V
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void t_table(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	int checked = 0, threaded = 0;

	CHECK(lib);
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		void *want = dlsym(lib, r->symbol), *got = (void *)1, *next = NULL;
		CUdriverProcAddressQueryResult st;
		int upto = r->version;

		/* The row holds up to the next version of the same name and flavour. */
		if (i + 1 < ROWS && !strcmp(rows[i + 1].name, r->name) &&
		    rows[i + 1].thread == r->thread) {
			upto = rows[i + 1].version - 1;
			next = dlsym(lib, rows[i + 1].symbol);
		} else {
			upto = 14000;
		}
		if (!want)
			continue;
		checked++;
		threaded += r->thread;
		for (int v = r->version;; v = upto) {
			OK(cuGetProcAddress_v2(
				r->name, &got, v,
				r->thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
					  : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
				&st));
			IS(st, CU_GET_PROC_ADDRESS_SUCCESS);
			if (got != want) {
				fprintf(stderr, "%s %d %d: not %s\n", r->name, v, r->thread,
					r->symbol);
				exit(1);
			}
			if (v == upto)
				break;
		}
		CHECK(next != want);
	}
	CHECK(checked > 400 && threaded > 60);
	printf("%d of %zu rows\n", checked, ROWS);
}

static void t_status(void)
{
	CUdriverProcAddressQueryResult st;
	CUuuid id = {{0}};
	const void *table = &id;
	void *p, *q;

	OK(cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, &st));
	IS(st, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CHECK(!p);
	IS(cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	OK(cuGetProcAddress_v2("cuMemCreate", &p, 9000, 0, &st));
	IS(st, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	CHECK(!p);
	IS(cuGetProcAddress_v2("cuMemCreate", NULL, 13000, 0, &st), CUDA_ERROR_INVALID_VALUE);
	IS(cuGetProcAddress_v2("cuMemCreate", &p, 13000, 8, &st), CUDA_ERROR_INVALID_VALUE);
	/* What has no per-thread flavour is the same in both; what has, is not. */
	OK(cuGetProcAddress_v2("cuMemAlloc", &p, 13000, 0, &st));
	OK(cuGetProcAddress_v2("cuMemAlloc", &q, 13000, 2, &st));
	CHECK(p == q && p);
	OK(cuGetProcAddress_v2("cuLaunchKernel", &p, 13000, 0, &st));
	OK(cuGetProcAddress_v2("cuLaunchKernel", &q, 13000, 2, &st));
	CHECK(p != q && p && q);
	/* Too old for the per-thread one: the legacy one. */
	OK(cuGetProcAddress_v2("cuLaunchKernel", &q, 6000, 2, &st));
	CHECK(p == q);
	IS(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
	CHECK(!table);
}

MAIN({"table", t_table}, {"status", t_status})
