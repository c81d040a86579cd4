// SPDX-License-Identifier: Apache-2.0
/*
 * bench_wrapper.c - what the recorder costs a call, a look-up and a start.
 *
 * Runs itself bare and under the built libwaitgraph.so against a libcuda whose functions return at once
 * (bench_fake.c): what is measured is ours alone. Figures of one run side by side, the programs in turn,
 * best of many rounds; ratios count, absolute times move from machine to machine.
 *
 *	bench_wrapper [LIBWAITGRAPH [FAKE_DIR [ANOTHER_LIBWAITGRAPH]]]
 *	bench_wrapper count CASE N	N calls of one kind and nothing else: run it under LD_PRELOAD and
 *					valgrind --tool=callgrind with two values of N; the difference
 *					of the instructions is repeatable where times are not
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURNS 4 /* of the workers */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { EVENT_UNKNOWN, RECORD_QUERY, SYNC, LAUNCH, LEGACY, RUNTIME, RUNTIME_QUERY, TWO, ALLOC_FREE, PROC,
       DLSYM_OURS, DLSYM_OTHER, OPERATION, LOOP, FIGURES };
static const char *const names[FIGURES] = {
	"cuEventQuery, unknown event (in and out)",
	"cuEventRecord + cuEventQuery",
	"cuLaunchKernel + cuStreamSynchronize",
	"cuLaunchKernel, own stream",
	"cuLaunchKernel, legacy default stream",
	"cudaLaunchKernel > cuLaunchKernel",
	"cudaEventQuery > cuEventQuery",
	"cuLaunchKernel, two threads, own streams",
	"cuMemAlloc + cuMemFree (accounting, stack)",
	"cuGetProcAddress, a wrapped name",
	"dlsym, a wrapped name",
	"dlsym, a foreign name",
	"an operation's calls, as PyTorch makes them",
	"launch-bound loop: an operation of 10 us",
};

struct dim {
	unsigned int x, y, z;
};
static struct {
	void *cuda, *ctx, *own, *other, *event;
	int (*query)(void *), (*sync)(void *), (*record)(void *, void *), (*current)(void *);
	int (*get)(const char *, void **, int, uint64_t, int *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);
	int (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
	int (*rt_launch)(const void *, struct dim, struct dim, void **, size_t, void *);
	int (*rt_query)(void *);
	int (*rt_device)(int *), (*rt_peek)(void), (*rt_capturing)(void *, int *);
	int (*takes)(uint64_t, uint64_t);
} w;

/* Ticks of a nanosecond, to 10 %. */
static double ticks_a_ns(void)
{
	double t = now();
	uint64_t ticks = __builtin_ia32_rdtsc();

	while (now() - t < 1e6)
		;
	return (double)(__builtin_ia32_rdtsc() - ticks) / (now() - t);
}

/*
 * An operation of an eager PyTorch program on the default stream: which device, is it capturing, launch, any
 * error; an event now and then (its allocator and its watchdogs). The loop's takes 10 us, of which 2 are the
 * driver's launch; a position write takes 1 us, as on an H200.
 */
static void operation(int i)
{
	struct dim one = { 1, 1, 1 };
	int v;

	w.rt_device(&v);
	w.rt_capturing(NULL, &v);
	w.rt_launch((void *)(uintptr_t)(0x2000 + i % 50 * 16), one, one, NULL, 0, NULL);
	w.rt_peek();
	w.rt_device(&v);
	if (i % 16 == 0) {
		w.record(w.event, NULL);
		w.rt_query(w.event);
	}
}

static void loop(int n)
{
	static double rate;
	uint64_t t;

	if (rate == 0)
		rate = ticks_a_ns();
	w.takes((uint64_t)(2000 * rate), (uint64_t)(1000 * rate));
	for (int i = 0; i < n; i++) {
		t = __builtin_ia32_rdtsc();
		while (__builtin_ia32_rdtsc() - t < (uint64_t)(8000 * rate))
			;
		operation(i);
	}
	w.takes(0, 0);
}

static void launches(void *stream, int n)
{
	for (int i = 0; i < n; i++)
		w.launch((void *)0x2000, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void *second(void *arg)
{
	w.current(w.ctx);
	launches(w.other, *(int *)arg);
	return NULL;
}

static void calls(int what, int n)
{
	struct dim one = { 1, 1, 1 };
	pthread_t thread;
	uint64_t d;
	void *p;

	switch (what) {
	case LAUNCH:
	case LEGACY:
		launches(what == LAUNCH ? w.own : NULL, n);
		return;
	case TWO:
		pthread_create(&thread, NULL, second, &n);
		launches(w.own, n);
		pthread_join(thread, NULL);
		return;
	case OPERATION:
		for (int i = 0; i < n; i++)
			operation(i);
		return;
	case LOOP:
		loop(n);
		return;
	default:
		break;
	}
	for (int i = 0; i < n; i++)
		switch (what) {
		case EVENT_UNKNOWN:
			w.query((void *)0x1000);
			break;
		case RECORD_QUERY:
			w.record(w.event, w.own);
			w.query(w.event);
			break;
		case SYNC:
			launches(w.own, 1);
			w.sync(w.own);
			break;
		case RUNTIME:
			w.rt_launch((void *)0x2000, one, one, NULL, 0, w.own);
			break;
		case RUNTIME_QUERY:
			w.rt_query(w.event);
			break;
		case ALLOC_FREE:
			w.alloc(&d, 4096);
			w.release(d);
			break;
		case PROC:
			w.get("cuMemcpyHtoDAsync", &p, 12000, 0, NULL);
			break;
		case DLSYM_OURS:
			p = dlsym(w.cuda, "cuStreamSynchronize");
			break;
		default:
			p = dlsym(RTLD_DEFAULT, "strlen");
		}
}

static int set_up(void)
{
	int (*init)(unsigned int), (*retain)(void **, int), (*create)(void **, unsigned int);
	int (*create_event)(void **, unsigned int);
	void *cudart;

	w.cuda = dlopen("libcuda.so.1", RTLD_NOW);
	cudart = dlopen("libcudart.so.13", RTLD_NOW);
	if (!w.cuda || !cudart)
		return 1;
	*(void **)&init = dlsym(w.cuda, "cuInit");
	*(void **)&w.query = dlsym(w.cuda, "cuEventQuery");
	*(void **)&w.record = dlsym(w.cuda, "cuEventRecord");
	*(void **)&w.sync = dlsym(w.cuda, "cuStreamSynchronize");
	*(void **)&w.launch = dlsym(w.cuda, "cuLaunchKernel");
	*(void **)&w.alloc = dlsym(w.cuda, "cuMemAlloc_v2");
	*(void **)&w.release = dlsym(w.cuda, "cuMemFree_v2");
	*(void **)&w.get = dlsym(w.cuda, "cuGetProcAddress_v2");
	*(void **)&w.current = dlsym(w.cuda, "cuCtxSetCurrent");
	*(void **)&retain = dlsym(w.cuda, "cuDevicePrimaryCtxRetain");
	*(void **)&create = dlsym(w.cuda, "cuStreamCreate");
	*(void **)&create_event = dlsym(w.cuda, "cuEventCreate");
	*(void **)&w.rt_launch = dlsym(cudart, "cudaLaunchKernel");
	*(void **)&w.rt_query = dlsym(cudart, "cudaEventQuery");
	*(void **)&w.rt_device = dlsym(cudart, "cudaGetDevice");
	*(void **)&w.rt_peek = dlsym(cudart, "cudaPeekAtLastError");
	*(void **)&w.rt_capturing = dlsym(cudart, "cudaStreamIsCapturing");
	*(void **)&w.takes = dlsym(w.cuda, "bench_fake_takes");
	if (init(0) || retain(&w.ctx, 0) || w.current(w.ctx) || create(&w.own, 1) ||
	    create(&w.other, 1) || create_event(&w.event, 2) || w.record(w.event, w.own))
		return 2;
	/* The recorder looks for further runtimes for two seconds after the last dlopen(). */
	w.rt_query(w.event);
	usleep(2100000);
	w.rt_query(w.event);
	return 0;
}

/*
 * The best of many short rounds, each a fraction of a scheduler's slice: on a machine that does other work
 * some of them pass undisturbed.
 */
static int worker(void)
{
	static const struct {
		int calls, rounds;
	} how[FIGURES] = { { 5000, 200 }, { 3000, 200 }, { 2000, 200 }, { 3000, 300 }, { 3000, 300 },
			   { 3000, 200 }, { 5000, 200 }, { 30000, 30 }, { 500, 200 }, { 3000, 100 },
			   { 2000, 100 }, { 2000, 100 }, { 2000, 200 }, { 100, 400 } };
	double f[FIGURES];
	int rc = set_up();

	for (int what = 0; !rc && what < FIGURES; what++) {
		f[what] = 1e18;
		for (int round = 0; round < how[what].rounds; round++) {
			double t = now();

			calls(what, how[what].calls);
			t = (now() - t) / how[what].calls;
			if (t < f[what])
				f[what] = t;
		}
	}
	fwrite(f, sizeof(f), 1, stdout);
	return rc;
}

static int run(const char *self, const char *preload, const char *fake, const char *mode, double *out,
	       size_t size)
{
	int fd[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(fd))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(fd[1], 1);
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		setenv("LD_LIBRARY_PATH", fake, 1);
		setenv("WAITGRAPH_DIR", "/tmp/waitgraph-bench", 1);
		execl(self, self, mode, NULL);
		_exit(127);
	}
	close(fd[1]);
	while (n < size && (got = read(fd[0], (char *)out + n, size - n)) > 0)
		n += (size_t)got;
	close(fd[0]);
	waitpid(pid, &status, 0);
	return n == size && WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -1;
}

/* Time from exec to main of a program that does nothing, in us: median of many. */
static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double start_up(const char *preload)
{
	double t[300];

	for (int i = 0; i < 300; i++) {
		double began = now();
		pid_t pid = vfork();

		if (!pid) {
			char *argv[] = { "true", NULL };
			char env[512] = "LD_PRELOAD=";
			char *envp[] = { env, NULL };

			strcat(env, preload ? preload : "");
			execve("/bin/true", argv, preload ? envp : envp + 1);
			_exit(127);
		}
		waitpid(pid, NULL, 0);
		t[i] = (now() - began) / 1000;
	}
	qsort(t, 300, sizeof(t[0]), by_value);
	return t[150];
}

static int best(const char *self, const char *preload, const char *fake, double *out)
{
	double f[FIGURES];
	int rc = run(self, preload, fake, "worker", f, sizeof(f));

	for (int i = 0; !rc && i < FIGURES; i++)
		if (!out[i] || f[i] < out[i])
			out[i] = f[i];
	return rc;
}

int main(int argc, char **argv)
{
	double bare[FIGURES] = { 0 }, with[FIGURES] = { 0 }, before[FIGURES] = { 0 }, a, b;
	const char *preload = argc > 1 ? argv[1] : BENCH_PRELOAD;
	const char *fake = argc > 2 ? argv[2] : BENCH_FAKE;
	const char *another = argc > 3 ? argv[3] : NULL;
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc == 2 && !strcmp(argv[1], "worker"))
		return worker();
	if (argc == 4 && !strcmp(argv[1], "count")) {
		if (set_up() || atoi(argv[2]) < 0 || atoi(argv[2]) >= FIGURES)
			return 64;
		calls(atoi(argv[2]), atoi(argv[3]));
		return 0;
	}
	if (n < 0)
		return 1;
	self[n] = 0;
	for (int turn = 0; turn < TURNS; turn++)
		if (best(self, NULL, fake, bare) || best(self, preload, fake, with) ||
		    (another && best(self, another, fake, before))) {
			fprintf(stderr, "bench_wrapper: the worker failed\n");
			return 1;
		}
	printf("%-46s %8s %9s %8s %7s%s\n", "ns a call", "bare", "recorded", "added", "ratio",
	       another ? "   another    added" : "");
	for (int i = 0; i < FIGURES; i++) {
		printf("%-46s %8.1f %9.1f %8.1f %7.3f", names[i], bare[i], with[i], with[i] - bare[i],
		       with[i] / bare[i]);
		if (another)
			printf(" %9.1f %8.1f", before[i], before[i] - bare[i]);
		printf("\n");
	}
	a = start_up(NULL);
	b = start_up(preload);
	printf("%-46s %8.1f %9.1f %8.1f\n", "us to start and end /bin/true (median of 300)", a, b, b - a);
	return 0;
}
