// SPDX-License-Identifier: Apache-2.0
/*
 * guest_hosts.c - programs with habits that the recorder has to survive, one a verb; test_hosts runs
 * them on the simulated GPU. Exit 0 is well; anything else says why on stdout.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			printf("%d: not so: %s (errno %d)\n", __LINE__, #condition, errno); \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

static void *cuda;

static void *fn(void *library, const char *name)
{
	void *p = dlsym(library, name);

	CHECK(p);
	return p;
}

#define CALL(name, types, ...) (((int (*)types)fn(cuda, #name))(__VA_ARGS__))

static void use_of(void *library)
{
	void *context, *was = cuda;
	uint64_t p;
	int device;

	cuda = library;
	CHECK(!CALL(cuInit, (unsigned int), 0));
	CHECK(!CALL(cuDeviceGet, (int *, int), &device, 0));
	CHECK(!CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device));
	CHECK(!CALL(cuCtxSetCurrent, (void *), context));
	for (int i = 0; i < 100; i++) {
		CHECK(!CALL(cuMemAlloc_v2, (uint64_t *, size_t), &p, 4096));
		CHECK(!CALL(cuMemFree_v2, (uint64_t), p));
	}
	CHECK(!CALL(cuCtxSynchronize, (void)));
	if (was)
		cuda = was;
}

static void up(void)
{
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(cuda);
	use_of(cuda);
}

static void plain(void)
{
	up();
}

/* ---- main goes, the program ends with its last thread ---- */

static void *last(void *arg)
{
	usleep(100000);
	return arg;
}

static void at_the_end(void)
{
	printf("ended\n");
	fflush(stdout);
}

static void main_leaves(void)
{
	pthread_t t;

	up();
	atexit(at_the_end);
	CHECK(!pthread_create(&t, NULL, last, NULL));
	pthread_exit(NULL);
}

/* ---- a handler set by system call, as Go sets its own ---- */

static volatile int heard;

static void hear(int sig)
{
	(void)sig;
	heard++;
}

#if defined(__x86_64__)
extern void raw_return(void);
__asm__(".text\nraw_return:\n\tmov $15, %eax\n\tsyscall\n");
#endif

static void *other(void *arg)
{
	use_of(cuda);
	raise(SIGURG);
	return arg;
}

static void raw_handler(void)
{
#if defined(__x86_64__)
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} act = { hear, 0x14000000 /* SA_RESTORER | SA_RESTART */, raw_return, 0 };
	pthread_t t;

	CHECK(!syscall(SYS_rt_sigaction, SIGURG, &act, NULL, 8));
	up();
	raise(SIGURG);
	CHECK(heard == 1);
	CHECK(!pthread_create(&t, NULL, other, NULL));
	pthread_join(t, NULL);
	CHECK(heard == 2);
#endif
}

/* ---- the mask, by libc's older names ---- */

static int blocked(void)
{
	sigset_t set;

	CHECK(!sigprocmask(SIG_BLOCK, NULL, &set));
	return sigismember(&set, SIGURG);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
int sighold(int);
int sigrelse(int);
static void old_masks(void)
{
	up();
	CHECK(!blocked());
	CHECK(!sighold(SIGURG) && blocked());
	CHECK(!sigrelse(SIGURG) && !blocked());
	CHECK(sigblock(1 << (SIGURG - 1)) == 0 && blocked());
	CHECK(sigsetmask(0) == 1 << (SIGURG - 1) && !blocked());
	CHECK(sighold(-1) == -1 && errno == EINVAL);
}

/* ---- it waits itself for what it has blocked and sends to itself (WAITGRAPH_SIGNAL=USR1) ---- */

static void waits_itself(void)
{
	struct timespec limit = { 5, 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(!sigprocmask(SIG_BLOCK, &set, NULL));
	up();
	for (int i = 0; i < 5; i++) {
		kill(getpid(), SIGUSR1);
		CHECK(sigtimedwait(&set, NULL, &limit) == SIGUSR1);
	}
}

/* ---- two drivers, of which the one that the linker bound is looked up last ---- */

int cuInit(unsigned int flags) __attribute__((weak));
int cuDeviceGetCount(int *count) __attribute__((weak));

static void two_namespaces(void)
{
	void *away = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
	int n = 0;

	CHECK(away);
	CHECK(!((int (*)(unsigned int))fn(away, "cuInit"))(0));
	CHECK(cuInit && !cuInit(0));
	/* Not wrapped by anybody: only the bound library's own start makes this work. */
	CHECK(cuDeviceGetCount && !cuDeviceGetCount(&n) && n > 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*f)(void);
	} verbs[] = {
		{ "plain", plain }, { "main-leaves", main_leaves }, { "raw-handler", raw_handler },
		{ "old-masks", old_masks }, { "waits-itself", waits_itself },
		{ "two-namespaces", two_namespaces },
	};

	for (unsigned int i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name)) {
			verbs[i].f();
			return 0;
		}
	return 64;
}
