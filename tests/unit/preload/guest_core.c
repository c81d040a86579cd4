// SPDX-License-Identifier: Apache-2.0
/*
 * guest_core.c - programs that test_core runs under the recorder, one a verb. Each checks itself
 * what it can see from inside: exit 0 is well, anything else says why on stdout.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (!(condition)) {                                           \
			printf("line %d: not so: %s (errno %d %s)\n", __LINE__, \
			       #condition, errno, strerror(errno));             \
			fflush(stdout);                                       \
			_exit(1);                                             \
		}                                                             \
	} while (0)

static void *cuda;
static int (*init)(unsigned int);
static int (*retain)(void **, int);
static int (*set_current)(void *);
static int (*mem_info)(size_t *, size_t *);
static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);
static int (*sync_stream)(void *);
static int (*query)(void *);
static int (*advise)(uint64_t, size_t, int, int);
static int (*proc)(const char *, void **, int, uint64_t, int *);

static void load(void)
{
	cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(cuda);
#define GET(f, name) CHECK((*(void **)&f = dlsym(cuda, name)))
	GET(init, "cuInit");
	GET(retain, "cuDevicePrimaryCtxRetain");
	GET(set_current, "cuCtxSetCurrent");
	GET(mem_info, "cuMemGetInfo_v2");
	GET(mem_alloc, "cuMemAlloc_v2");
	GET(mem_free, "cuMemFree_v2");
	GET(sync_stream, "cuStreamSynchronize");
	GET(query, "cuStreamQuery");
	GET(advise, "cuMemAdvise");
	GET(proc, "cuGetProcAddress_v2");
}

static void start(void)
{
	void *ctx;

	load();
	CHECK(!init(0));
	CHECK(!retain(&ctx, 0));
	CHECK(!set_current(ctx));
}

static int count_dir(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits for a line on stdin: the test has done its part. */
static void wait_go(void)
{
	char c;

	while (read(0, &c, 1) < 0 && errno == EINTR)
		;
}

static void say(const char *s)
{
	printf("%s\n", s);
	fflush(stdout);
}

/* ---- doors -------------------------------------------------------------------------- */

static void no_cuda(void)
{
	CHECK(count_dir("/proc/self/task") == 1);
	if (getenv("EXPECTED_FDS"))
		CHECK(count_dir("/proc/self/fd") == atoi(getenv("EXPECTED_FDS")));
	else
		printf("%d\n", count_dir("/proc/self/fd"));
	CHECK(!dlsym(RTLD_DEFAULT, "cuInit"));
	CHECK(!dlsym(RTLD_DEFAULT, "cudaMalloc"));
	CHECK(!dlsym(RTLD_DEFAULT, "ncclAllReduce"));
	CHECK(dlerror() && !dlerror());
}

/* A definition here must find libc's behind it, never itself: the return address decides. */
__attribute__((visibility("default"))) int rand(void)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "rand");

	CHECK(next && next != rand);
	return next() | 0x40000000;
}

static void next(void)
{
	int (*f)(void);
	Dl_info a;

	CHECK(rand() & 0x40000000);
	*(void **)&f = dlsym(RTLD_DEFAULT, "rand");
	CHECK(f == rand);
	*(void **)&f = dlvsym(RTLD_NEXT, "rand", "GLIBC_2.2.5");
#ifdef __x86_64__
	CHECK(f && f != rand);
#endif
	/* What is not ours comes as it is. */
	CHECK(dlsym(RTLD_DEFAULT, "strlen") && dladdr(dlsym(RTLD_DEFAULT, "strlen"), &a));
	CHECK(strstr(a.dli_fname, "libc.so"));
	CHECK(!dlsym(RTLD_DEFAULT, "nosuchsymbol") && strstr(dlerror(), "nosuchsymbol"));
	CHECK(!dlsym(RTLD_DEFAULT, "cudnnCreate"));
	load();
	/* The handle counts: libm has no cuInit, whatever else has. */
	CHECK(!dlsym(dlopen("libm.so.6", RTLD_NOW), "cuInit"));
	/* Only what the driver has. */
	CHECK(!dlsym(cuda, "cuMemPrefetchAsync") && dlerror());
	CHECK(dladdr((void *)init, &a) && strstr(a.dli_fname, "libwaitgraph"));
}

static void proc_address(void)
{
	static const char *const flavoured[] = { "cuStreamSynchronize", "cuStreamQuery" };
	void *legacy, *own, *v2, *p;
	int status = 9, (*f)(void *);
	Dl_info a;

	start();
	for (int i = 0; i < 2; i++) {
		CHECK(!proc(flavoured[i], &legacy, 12000, 0, &status) && !status);
		CHECK(!proc(flavoured[i], &own, 12000, 2, NULL));
		CHECK(legacy != own && legacy == dlsym(cuda, flavoured[i]));
		CHECK(dladdr(legacy, &a) && strstr(a.dli_fname, "libwaitgraph"));
		CHECK(dladdr(own, &a) && strstr(a.dli_fname, "libwaitgraph"));
	}
	CHECK(!proc("cuStreamSynchronize", &own, 12000, 2, NULL));
	*(void **)&f = own;
	CHECK(f(NULL) == 77); /* really the other function */
	CHECK(!proc("cuCtxSynchronize", &legacy, 12000, 0, NULL));
	CHECK(!proc("cuCtxSynchronize", &v2, 13000, 0, NULL));
	CHECK(legacy != v2);
	*(void **)&f = v2;
	CHECK(f(NULL) == 201 && f((void *)0x100) == 0);
	/* Nothing is invented, and the status is the driver's. */
	status = 9;
	CHECK(proc("cuMemPrefetchAsync", &p, 12000, 0, &status) == 500 && !p && status == 1);
	/* Unknown to us: as it came. */
	CHECK(!proc("cuFutureThing", &p, 12000, 0, NULL));
	CHECK(dladdr(p, &a) && !strstr(a.dli_fname, "libwaitgraph"));
	CHECK(!proc("cuEventQuery", &p, 99001, 0, NULL));
	CHECK(dladdr(p, &a) && !strstr(a.dli_fname, "libwaitgraph"));
	/* Itself, through itself. */
	CHECK(!proc("cuGetProcAddress", &p, 12000, 0, NULL) && p == (void *)proc);
}

static void reopened(void)
{
	void *p, *was;

	load();
	CHECK(!proc("cuStreamQuery", &p, 12000, 0, NULL));
	was = (void *)init;
	CHECK(!dlclose(cuda));
	/* Something else lies there now. */
	CHECK(mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	start();
	CHECK((void *)init == was); /* the wrapper is the same, what is behind it is not */
	CHECK(!query((void *)1) && !mem_info(NULL, NULL));
	CHECK(!dlclose(cuda));
	CHECK(!query((void *)1) && !mem_info(NULL, NULL));
	usleep(1300000); /* our thread has looked round */
	CHECK(!query((void *)1));
}

static void transparent(void)
{
	size_t t = 0;
	uint64_t p;

	start();
	CHECK(!mem_info(NULL, &t) && t == 1ul << 33);
	CHECK(!mem_info(NULL, NULL));
	errno = 0;
	CHECK(!mem_alloc(&p, 100) && errno == ENOMSG);
	CHECK(mem_alloc(&p, 1ul << 40) == 2);
	errno = 123;
	CHECK(!query((void *)1) && errno == 123);
	CHECK(query(NULL) == 600 && errno == 123);
	CHECK(!mem_free(p) && errno == 123);
	CHECK(mem_free(0) == 1 && errno == 123);
	CHECK(!sync_stream((void *)0x5000) && errno == 123);
	/* No unwinder of ours in front of the program's. */
	CHECK(!dlsym(RTLD_DEFAULT, "_Unwind_Backtrace") || ({
		Dl_info a;
		dladdr(dlsym(RTLD_DEFAULT, "_Unwind_Backtrace"), &a) && !strstr(a.dli_fname, "libwaitgraph");
	}));
}

/* ---- calls in flight ------------------------------------------------------------------- */

static jmp_buf away;
static void leave(size_t n)
{
	(void)n;
	longjmp(away, 1);
}
static void again(size_t n)
{
	if (n)
		advise((uintptr_t)again, n - 1, 0, 0);
	else
		sync_stream((void *)0x91);
}

static void left(void)
{
	start();
	for (int i = 0; i < 20; i++)
		if (!setjmp(away))
			advise((uintptr_t)leave, 0, 0, 0);
	say("in");
	sync_stream((void *)0x91);
}

static void nested(void)
{
	start();
	say("in");
	advise((uintptr_t)again, 6, 0, 0);
}

static void *blocks(void *stream)
{
	sync_stream(stream);
	return NULL;
}

static void cancelled(void)
{
	pthread_t t;
	void *r;

	start();
	for (int i = 0; i < 50; i++) {
		CHECK(!pthread_create(&t, NULL, blocks, (void *)0x91));
		usleep(2000);
		CHECK(!pthread_cancel(t));
		CHECK(!pthread_join(t, &r) && r == PTHREAD_CANCELED);
	}
	say("in");
	wait_go();
}

static void *short_life(void *arg)
{
	(void)arg;
	CHECK(!query((void *)1));
	return NULL;
}

static void *long_life(void *arg)
{
	CHECK(!query((void *)1));
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	return NULL;
}

static void threads(void)
{
	enum { N = 300 };
	pthread_barrier_t barrier;
	pthread_attr_t attr;
	pthread_t t[N];

	start();
	for (int i = 0; i < 2000; i++) {
		CHECK(!pthread_create(t, NULL, short_life, NULL));
		pthread_join(t[0], NULL);
	}
	pthread_barrier_init(&barrier, NULL, N + 1);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int i = 0; i < N; i++)
		CHECK(!pthread_create(&t[i], &attr, long_life, &barrier));
	pthread_barrier_wait(&barrier);
	say("in");
	wait_go();
	pthread_barrier_wait(&barrier);
}

/* ---- children ----------------------------------------------------------------------------- */

static int child_of(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100; i++)
		query((void *)1);
	return 0;
}

static void forked(void)
{
	pid_t pid;
	int status;

	start();
	query((void *)1);
	pid = fork();
	if (!pid) {
		sigset_t now_blocked;

		for (int i = 0; i < 100; i++)
			CHECK(!query((void *)1));
		CHECK(count_dir("/proc/self/task") == 1);
		sigprocmask(SIG_BLOCK, NULL, &now_blocked);
		CHECK(!sigismember(&now_blocked, SIGURG));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	/* Without fork handlers, too. */
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		_exit(child_of(NULL));
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	/* A child that starts CUDA itself is a process of its own. */
	pid = fork();
	if (!pid) {
		start();
		say("child");
		wait_go();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	say("in");
	wait_go();
}

static bool urg_blocked(int pid)
{
	char path[64], line[256];
	unsigned long long mask = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SigBlk: %llx", &mask) == 1)
			break;
	fclose(f);
	return mask >> (SIGURG - 1) & 1;
}

/* Runs in what is started: does it have the mask that the job set? */
static void mask_of_mine(void)
{
	char line[256];
	unsigned long long mask = ~0ull;
	FILE *f = fopen("/proc/self/status", "r");

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SigBlk: %llx", &mask) == 1)
			break;
	_exit(mask >> (SIGURG - 1) & 1 ? 1 : 0);
}

static int finished(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return status;
}

static void *start_others(void *self)
{
	char *argv[] = { self, "mask-of-mine", NULL }, command[600];
	extern char **environ;
	pid_t pid;
	FILE *f;

	/* The recorder is not loaded in there, so nothing of it puts the mask right again. */
	unsetenv("LD_PRELOAD");
	CHECK(urg_blocked((int)syscall(SYS_gettid)));
	if (!(pid = fork()))
		execv(self, argv);
	CHECK(!finished(pid));
	if (!(pid = vfork())) {
		execve(self, argv, environ);
		_exit(127);
	}
	CHECK(!finished(pid));
	if (!(pid = vfork())) { /* a failing one first, as a PATH search does */
		execve("/nonexistent", argv, environ);
		execlp(self, self, "mask-of-mine", (char *)NULL);
		_exit(127);
	}
	CHECK(!finished(pid));
	if (!(pid = fork()))
		execle(self, self, "mask-of-mine", (char *)NULL, environ);
	CHECK(!finished(pid));
	if (!(pid = fork()))
		execvpe(self, argv, environ);
	CHECK(!finished(pid));
	if (!(pid = fork()))
		fexecve(open(self, O_RDONLY), argv, environ);
	CHECK(!finished(pid));
	CHECK(!posix_spawn(&pid, self, NULL, NULL, argv, environ));
	CHECK(!finished(pid));
	CHECK(!posix_spawnp(&pid, self, NULL, NULL, argv, environ));
	CHECK(!finished(pid));
	snprintf(command, sizeof(command), "exec %s mask-of-mine", (char *)self);
	CHECK(!system(command));
	CHECK((f = popen(command, "r")) && !pclose(f));
	/* It stayed in force for us. */
	CHECK(urg_blocked((int)syscall(SYS_gettid)));
	return NULL;
}

static void starts_others(const char *self)
{
	pthread_t t;

	start();
	start_others((void *)self);
	CHECK(!pthread_create(&t, NULL, start_others, (void *)self) && !pthread_join(t, NULL));
}

/* ---- the signal ------------------------------------------------------------------------------ */

static volatile int stop;
static void *interruptible(void *arg)
{
	int kind = (int)(intptr_t)arg, e = epoll_create1(0), pair[2];
	struct timeval tv = { 0, 50000 };
	struct epoll_event event;
	struct pollfd p;
	sigset_t none;
	sem_t sem;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	p = (struct pollfd){ pair[0], POLLIN, 0 };
	sem_init(&sem, 0, 0);
	sigemptyset(&none);
	while (!stop) {
		struct timespec ts = { 0, 50000000 }, until;
		char c;
		int rc = 0;

		errno = 0;
		switch (kind) {
		case 0:
			rc = epoll_wait(e, &event, 1, 50);
			break;
		case 1:
			rc = nanosleep(&ts, NULL);
			break;
		case 2:
			rc = poll(&p, 1, 50);
			break;
		case 3:
			rc = select(0, NULL, NULL, NULL, &tv);
			tv.tv_usec = 50000;
			break;
		case 4:
			recv(pair[0], &c, 1, 0);
			rc = errno == EINTR ? -1 : 0;
			break;
		case 5:
			clock_gettime(CLOCK_REALTIME, &until);
			until.tv_nsec += 50000000;
			until.tv_sec += until.tv_nsec / 1000000000;
			until.tv_nsec %= 1000000000;
			sem_timedwait(&sem, &until);
			rc = errno == EINTR ? -1 : 0;
			break;
		case 6:
			rc = ppoll(&p, 1, &ts, &none);
			break;
		case 7:
			rc = epoll_pwait(e, &event, 1, 50, &none);
			break;
		case 8:
			rc = pselect(0, NULL, NULL, NULL, &ts, &none);
			break;
		}
		CHECK(rc >= 0);
	}
	return NULL;
}

static void *stopper(void *arg)
{
	(void)arg;
	wait_go();
	stop = 1;
	return NULL;
}

/* Threads from before CUDA and from after it, and main: none sees EINTR. */
static void undisturbed(void)
{
	pthread_t t;

	for (intptr_t k = 0; k < 9; k++)
		CHECK(!pthread_create(&t, NULL, interruptible, (void *)k));
	start();
	for (intptr_t k = 0; k < 9; k++)
		CHECK(!pthread_create(&t, NULL, interruptible, (void *)k));
	CHECK(!pthread_create(&t, NULL, stopper, NULL));
	say("in");
	interruptible((void *)0);
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}

static void *starter(void *arg)
{
	(void)arg;
	start();
	return NULL;
}

/* CUDA initialised by another thread: main is let alone after its first CUDA call. */
static void undisturbed_main(void)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, starter, NULL) && !pthread_join(t, NULL));
	query((void *)1);
	CHECK(!pthread_create(&t, NULL, stopper, NULL));
	say("in");
	interruptible((void *)0);
}

static void waits(void)
{
	int rc;

	rc = waitpid(-1, NULL, 0);
	CHECK(rc == -1 && errno == ECHILD);
	say("in");
	wait_go();
	for (int i = 0; i < 200; i++) {
		rc = waitpid(-1, NULL, WNOHANG);
		CHECK(rc == -1 && errno == ECHILD);
		usleep(10000);
	}
}

static void waits_up(void)
{
	start();
	waits();
}

static volatile int handled, handled_code;
static void on_signal(int sig, siginfo_t *info, void *uc)
{
	(void)uc;
	CHECK(sig == SIGURG);
	handled_code = info->si_code;
	handled++;
}
static void on_simple(int sig)
{
	handled += sig == SIGURG ? 1 : 100;
}

static void own_handler(bool after)
{
	struct sigaction act = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART }, old;
	sigset_t urg, old_mask;

	sigemptyset(&urg);
	sigaddset(&urg, SIGURG);
	if (after)
		start();
	/* Nothing of ours is seen. */
	CHECK(!sigaction(SIGURG, NULL, &old) && old.sa_handler == SIG_DFL && !(old.sa_flags & SA_SIGINFO));
	CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &old_mask) && !sigismember(&old_mask, SIGURG));
	CHECK(!sigprocmask(SIG_UNBLOCK, &urg, &old_mask) && !sigismember(&old_mask, SIGURG));
	CHECK(!sigprocmask(SIG_BLOCK, &urg, &old_mask) && !sigismember(&old_mask, SIGURG));
	CHECK(!sigprocmask(SIG_SETMASK, &old_mask, &urg) && sigismember(&urg, SIGURG) == 1);
	CHECK(!sigprocmask(SIG_BLOCK, NULL, &old_mask) && !sigismember(&old_mask, SIGURG));
	CHECK(signal(SIGURG, SIG_IGN) == SIG_DFL);
	CHECK(signal(SIGURG, on_simple) == SIG_IGN);
	raise(SIGURG);
	CHECK(handled == 1);
	handled = 0;
	CHECK(!sigaction(SIGURG, &act, &old) && old.sa_handler == on_simple);
	CHECK(!sigaction(SIGURG, NULL, &old) && old.sa_sigaction == on_signal &&
	      (old.sa_flags & SA_SIGINFO) && (old.sa_flags & SA_RESTART));
	raise(SIGURG); /* as Go does with its threads */
	CHECK(handled == 1 && handled_code == SI_TKILL);
	kill(getpid(), SIGURG);
	for (int i = 0; i < 200 && handled < 2; i++)
		usleep(10000);
	CHECK(handled == 2);
	if (!after) {
		start();
		raise(SIGURG);
		CHECK(handled == 3);
	}
	/* A notice of the kernel that the program asked for. */
	{
		int pair[2];

		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
		CHECK(!fcntl(pair[0], F_SETOWN, getpid()) && !fcntl(pair[0], F_SETSIG, SIGURG) &&
		      !fcntl(pair[0], F_SETFL, O_ASYNC));
		handled = 0;
		CHECK(write(pair[1], "x", 1) == 1);
		for (int i = 0; i < 200 && !handled; i++)
			usleep(10000);
		CHECK(handled == 1);
		fcntl(pair[0], F_SETFL, 0);
	}
	handled = 0;
	say("in");
	wait_go(); /* a request from outside */
	usleep(300000);
	CHECK(!handled); /* went to the dump */
	CHECK(signal(SIGURG, SIG_DFL) != SIG_ERR);
}

static void own_handler_before(void)
{
	own_handler(false);
}
static void own_handler_after(void)
{
	own_handler(true);
}

static void no_descriptors(void)
{
	struct rlimit limit = { 32, 32 };

	start();
	setrlimit(RLIMIT_NOFILE, &limit);
	while (dup(0) >= 0)
		;
	say("in");
	wait_go();
}

static void idle(void)
{
	start();
	say("in");
	wait_go();
}

static void idle_not_up(void)
{
	say("in");
	wait_go();
}

static void blocked(void)
{
	start();
	say("in");
	sync_stream((void *)0x91);
}

/* ---- ends -------------------------------------------------------------------------------------- */

static void ends(const char *how, const char *self)
{
	start();
	say("in");
	wait_go();
	if (!strcmp(how, "exit"))
		exit(0);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "quick_exit"))
		quick_exit(0);
	if (!strcmp(how, "vfork")) {
		pid_t pid = vfork();

		if (!pid)
			_exit(0);
		CHECK(!finished(pid));
		say("after");
		wait_go();
	}
	if (!strcmp(how, "exec"))
		execl(self, self, "idle-not-up", (char *)NULL);
	if (!strcmp(how, "exec-up"))
		execl(self, self, "idle", (char *)NULL);
}

static void deepbind(void)
{
	start();
	dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
	say("in");
	wait_go();
}

static void self_closing(void)
{
	start();
	for (int fd = 3; fd < 1000; fd++)
		close(fd);
	for (int i = 0; i < 100; i++)
		CHECK(!query((void *)1));
	say("in");
	wait_go();
}

static void not_found(void)
{
	load();
	CHECK(init(0) == 100);
	CHECK(count_dir("/proc/self/task") == 1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*f)(void);
	} verbs[] = {
		{ "no-cuda", no_cuda }, { "next", next }, { "proc-address", proc_address },
		{ "transparent", transparent }, { "reopened", reopened }, { "left", left }, { "nested", nested },
		{ "cancelled", cancelled }, { "threads", threads }, { "forked", forked },
		{ "mask-of-mine", mask_of_mine }, { "undisturbed", undisturbed },
		{ "undisturbed-main", undisturbed_main }, { "waits", waits }, { "waits-up", waits_up },
		{ "own-handler-before", own_handler_before }, { "own-handler-after", own_handler_after },
		{ "no-descriptors", no_descriptors }, { "idle", idle }, { "idle-not-up", idle_not_up },
		{ "blocked", blocked }, { "deepbind", deepbind }, { "self-closing", self_closing },
		{ "not-found", not_found },
	};
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc < 2 || n < 0)
		return 64;
	self[n] = 0;
	(void)now;
	if (!strcmp(argv[1], "starts-others")) {
		starts_others(self);
		return 0;
	}
	if (!strncmp(argv[1], "ends-", 5)) {
		ends(argv[1] + 5, self);
		return 0;
	}
	for (unsigned int i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name)) {
			verbs[i].f();
			return 0;
		}
	return 64;
}
