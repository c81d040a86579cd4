// SPDX-License-Identifier: Apache-2.0
/*
 * guest_linked.c - bound to libcuda by the linker, for what the doors do then.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned int flags);
int cuMemGetInfo_v2(size_t *f, size_t *t);
int cuStreamQuery_ptsz(void *stream);
int cuStreamQuery(void *stream);

#define CHECK(condition)                                                 \
	do {                                                             \
		if (!(condition)) {                                      \
			printf("line %d: not so: %s\n", __LINE__, #condition); \
			exit(1);                                         \
		}                                                        \
	} while (0)

static int call_of(const char *lib, const char *function)
{
	void *h = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	int (*user)(void);

	if (!h)
		printf("%s\n", dlerror());
	CHECK(h);
	*(void **)&user = dlsym(h, function);
	CHECK(user);
	return user();
}

static int user_of(const char *lib)
{
	return call_of(lib, "user");
}

static int query_of(const char *lib)
{
	void *h = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	int (*query)(void *);

	CHECK(h);
	*(void **)&query = dlsym(h, "cudaStreamQuery");
	CHECK(query);
	return query(NULL);
}

int main(int argc, char **argv)
{
	int *interposed = dlsym(RTLD_DEFAULT, "interposed");
	size_t total = 0;

	CHECK(argc > 1);
	CHECK(!cuInit(0));
	if (!strcmp(argv[1], "interposed")) {
		CHECK(interposed);
		for (int i = 1; i <= 5; i++) {
			CHECK(!cuMemGetInfo_v2(NULL, &total) && total == 1ul << 33);
			CHECK(*interposed == i);
		}
		/* Also for who looks it up. */
		int (*f)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
		CHECK(f && !f(NULL, &total) && *interposed >= 5);
		return 0;
	}
	if (!strcmp(argv[1], "flavours")) {
		CHECK(cuStreamQuery(NULL) == 600 && cuStreamQuery_ptsz(NULL) == 78);
		return 0;
	}
	if (!strcmp(argv[1], "runtimes")) {
		/* None, then one, then two, in either order, bound and looked up. */
		CHECK(!dlsym(RTLD_DEFAULT, "cudaStreamQuery"));
		CHECK(user_of("libuser12.so") == 12);
		CHECK(user_of("libuser12.so") == 12);
		CHECK(user_of("libuser13.so") == 13);
		CHECK(user_of("libuser12.so") == 12);
		CHECK(user_of("libuser13.so") == 13);
		CHECK(query_of("libcudart.so.13") == 13);
		CHECK(query_of("libcudart.so.12") == 12);
		CHECK(query_of("libcudart.so.13") == 13);
		CHECK(user_of("libuser12.so") == 12);
		CHECK(call_of("libuser13.so", "launches") == 13);
		CHECK(call_of("libuser12.so", "launches") == 12);
		return 0;
	}
	return 64;
}
