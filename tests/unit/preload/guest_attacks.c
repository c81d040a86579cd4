// SPDX-License-Identifier: Apache-2.0
/*
 * guest_attacks.c - programs that do to a preloaded library what programs do, one a verb; test_attacks
 * runs each bare and recorded. Exit 0 is well; anything else says why on stdout.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                    \
	do {                                                                                \
		if (!(condition)) {                                                         \
			dprintf(say, "%d: not so: %s (errno %d)\n", __LINE__, #condition, errno); \
			_exit(1);                                                           \
		}                                                                           \
	} while (0)

extern char **environ;
static int say = 1;
static void *cuda;
static const char *self;

static void *fn(const char *name)
{
	void *p = dlsym(cuda, name);

	CHECK(p);
	return p;
}

#define CALL(name, types, ...) (((int (*)types)fn(#name))(__VA_ARGS__))

static void found(void)
{
	if (!cuda)
		cuda = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(cuda);
}

static void begin(void)
{
	found();
	CHECK(!CALL(cuInit, (unsigned int), 0));
}

static void use(void)
{
	void *context;
	uint64_t p;
	int device;

	CHECK(!CALL(cuDeviceGet, (int *, int), &device, 0));
	CHECK(!CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device));
	CHECK(!CALL(cuCtxSetCurrent, (void *), context));
	for (int i = 0; i < 20; i++) {
		CHECK(!CALL(cuMemAlloc_v2, (uint64_t *, size_t), &p, 4096));
		CHECK(!CALL(cuMemFree_v2, (uint64_t), p));
	}
	CHECK(!CALL(cuCtxSynchronize, (void)));
}

static void up(void)
{
	begin();
	use();
}

static void gone(pid_t pid, int status)
{
	int got = -1;

	while (waitpid(pid, &got, 0) == -1)
		CHECK(errno == EINTR);
	if (got != status)
		dprintf(say, "ended with 0x%x, not with 0x%x\n", got, status);
	CHECK(got == status);
}

/* ---- children of every kind, while other threads are in CUDA ---- */

static volatile int stop;

static void *busy(void *arg)
{
	(void)arg;
	while (!stop)
		use();
	return NULL;
}

static void *nothing(void *arg)
{
	return arg;
}

static void in_child(int kind)
{
	pthread_t t;
	void *p;

	switch (kind % 4) {
	case 0:
		execl("/bin/true", "true", (char *)NULL);
		_exit(9);
	case 1: /* goes on as a process of its own */
		p = malloc(100000);
		setenv("ATTACK", "1", 1);
		if (!p || pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL))
			_exit(8);
		free(p);
		exit(0);
	case 2: /* CUDA does not work here, and may say so: it must come back */
		CALL(cuMemFree_v2, (uint64_t), 0);
		dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
		_exit(0);
	default: /* and its children */
		kind = fork();
		if (!kind)
			_exit(0);
		gone(kind, 0);
		_exit(0);
	}
}

static void *forks(void *arg)
{
	for (int i = 0; i < 12; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid)
			in_child(i);
		gone(pid, 0);
	}
	return arg;
}

static void fork_storm(void)
{
	pthread_t t[3], b[2];

	up();
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&b[i], NULL, busy, NULL));
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&t[i], NULL, forks, NULL));
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(b[i], NULL);
	use();
}

static int cloned(void *arg)
{
	(void)arg;
	return 0;
}

static void children(void)
{
	char *const argv[] = { "true", NULL };
	static char stack[65536] __attribute__((aligned(16)));
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t all;
	pid_t pid;

	up();
	for (int i = 0; i < 10; i++) {
		pid = vfork();
		if (!pid) {
			execve("/bin/true", argv, environ);
			_exit(9);
		}
		gone(pid, 0);
		pid = vfork();
		if (!pid)
			_exit(3);
		gone(pid, 3 << 8);
		pid = vfork();
		if (!pid) {
			execve("/nowhere", argv, environ);
			_exit(4);
		}
		gone(pid, 4 << 8);
		CHECK(!posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ));
		gone(pid, 0);
		CHECK(posix_spawn(&pid, "/nowhere", NULL, NULL, argv, environ) == ENOENT);
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
		posix_spawnattr_init(&attr);
		sigfillset(&all);
		posix_spawnattr_setsigmask(&attr, &all);
		posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
		CHECK(!posix_spawnp(&pid, "true", &actions, &attr, argv, environ));
		posix_spawnattr_destroy(&attr);
		posix_spawn_file_actions_destroy(&actions);
		gone(pid, 0);
		CHECK(!system("exit 0"));
		pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* no handler of fork runs */
		if (!pid) {
			CALL(cuMemFree_v2, (uint64_t), 0);
			syscall(SYS_exit_group, 5);
		}
		gone(pid, 5 << 8);
		pid = clone(cloned, stack + sizeof(stack), CLONE_VM | CLONE_FS | SIGCHLD, NULL);
		CHECK(pid > 0);
		gone(pid, 0);
		use();
	}
	/* Nobody else's child is left to be waited for. */
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}

static void exec_chain(void)
{
	const char *n = getenv("ATTACK_LEFT");
	char left[16];

	up();
	if (n && !strcmp(n, "0"))
		return;
	snprintf(left, sizeof(left), "%d", n ? atoi(n) - 1 : 4);
	setenv("ATTACK_LEFT", left, 1);
	execl(self, self, "exec-chain", (char *)NULL);
	CHECK(!"exec");
}

/* ---- the end, in every way, while others are in CUDA ---- */

static void *in_cuda(void *arg)
{
	found();
	CALL(cuDeviceGet, (int *, int), arg, 0);
	for (;;)
		CALL(cuCtxSynchronize, (void));
	return NULL;
}

static void ends(void)
{
	static const int ways[] = { 3 << 8, 4 << 8, SIGABRT, SIGKILL, SIGSEGV, 6 << 8, SIGTERM };
	static int device;
	pthread_t t;

	for (int way = 0; way < 7; way++) {
		pid_t pid = fork(); /* before CUDA: each is a program of its own */

		if (!pid) {
			struct rlimit none = { 0, 0 };

			setrlimit(RLIMIT_CORE, &none);
			up();
			for (int i = 0; i < 3; i++)
				CHECK(!pthread_create(&t, NULL, in_cuda, &device));
			usleep(2000);
			switch (way) {
			case 0:
				exit(3);
			case 1:
				_exit(4);
			case 2:
				abort();
			case 3:
				raise(SIGKILL);
				break;
			case 4:
				raise(SIGSEGV);
				break;
			case 5:
				quick_exit(6);
			default:
				raise(SIGTERM);
			}
		}
		gone(pid, ways[way]);
	}
}

/* ---- threads whose last act is CUDA ---- */

static pthread_key_t key;
static __thread int once_more;

static void at_thread_end(void *arg)
{
	use();
	if (once_more++ < 2)
		pthread_setspecific(key, arg); /* and again, after others' destructors */
}

static void *ends_in_cuda(void *arg)
{
	if (arg)
		use();
	pthread_setspecific(key, &key);
	return NULL;
}

static void thread_ends(void)
{
	pthread_t t[8];

	up();
	CHECK(!pthread_key_create(&key, at_thread_end));
	for (int round = 0; round < 6; round++) {
		for (intptr_t i = 0; i < 8; i++)
			CHECK(!pthread_create(&t[i], NULL, ends_in_cuda, (void *)(i & 1)));
		for (int i = 0; i < 8; i++)
			pthread_join(t[i], NULL);
	}
}

static pthread_barrier_t together;

static void *first_use(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&together);
	begin();
	use();
	return NULL;
}

static void all_at_once(void)
{
	pthread_t t[8];

	found();
	CHECK(!pthread_barrier_init(&together, NULL, 8));
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, first_use, NULL));
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	use();
}

static void in_constructor(void)
{
	use(); /* begun before main */
}

__attribute__((constructor)) static void before_main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "constructor"))
		up();
}

static void after_reset(void)
{
	int device = 0;

	up();
	for (int i = 0; i < 10; i++) {
		CHECK(!CALL(cuDevicePrimaryCtxReset_v2, (int), device));
		CALL(cuCtxSynchronize, (void)); /* of a context that is gone */
		CALL(cuStreamQuery, (void *), NULL);
		use();
	}
}

/* ---- descriptors ---- */

static void untouched(int fd)
{
	struct stat st;

	CHECK(!fstat(fd, &st));
	if (st.st_size) {
		char text[200] = "";

		CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0);
		dprintf(say, "somebody wrote: %s\n", text);
	}
	CHECK(!st.st_size);
}

/* All that is above 2 closed, as daemons do; what it then opens must stay its own. */
static void closes_all(void)
{
	char name[] = "/tmp/wg-attack-XXXXXX";
	int fd;

	up();
	for (fd = 3; fd < 1024; fd++)
		close(fd);
	fd = mkstemp(name);
	unlink(name);
	CHECK(fd == 3);
	for (int i = 4; i < 40; i++)
		CHECK(dup(3) == i);
	kill(getpid(), SIGURG); /* asks for a dump */
	for (int i = 0; i < 50; i++) {
		use();
		usleep(2000);
	}
	for (int i = 3; i < 40; i++)
		CHECK(fcntl(i, F_GETFL) != -1);
	untouched(3);
	use();
}

static void daemonizes(void)
{
	char name[] = "/tmp/wg-attack-XXXXXX", result[2] = "";
	int pipes[2], report, fd;
	pid_t pid;

	found();
	CHECK(!pipe(pipes));
	pid = fork();
	if (pid) {
		close(pipes[1]);
		gone(pid, 0);
		CHECK(read(pipes[0], result, 1) == 1 && result[0] == 'w');
		return;
	}
	setsid();
	if (fork())
		_exit(0);
	CHECK(!chdir("/"));
	report = fcntl(pipes[1], F_DUPFD, 900);
	if (report < 0)
		report = fcntl(pipes[1], F_DUPFD, 200);
	say = report;
	for (fd = 0; fd < 1024; fd++)
		if (fd != report)
			close(fd);
	CHECK(mkstemp(name) == 0); /* its stdin, stdout and stderr are this file */
	unlink(name);
	CHECK(dup(0) == 1 && dup(0) == 2);
	up();
	close(2);
	kill(getpid(), SIGURG);
	use();
	usleep(20000);
	untouched(0);
	CHECK(write(report, "w", 1) == 1);
	_exit(0);
}

/* ---- limits ---- */

static void limited(int what, rlim_t value)
{
	struct rlimit l = { value, value };

	found();
	CHECK(!setrlimit(what, &l));
	up();
	kill(getpid(), SIGURG);
	use();
}

static void no_file_size(void) { limited(RLIMIT_FSIZE, 0); }
static void little_file_size(void) { limited(RLIMIT_FSIZE, 100000); }
static void no_descriptors(void) { limited(RLIMIT_NOFILE, 3); }
static void no_locked_memory(void) { limited(RLIMIT_MEMLOCK, 0); }
static void no_processes(void) { limited(RLIMIT_NPROC, 1); }
static void little_stack(void) { limited(RLIMIT_STACK, 65536); }

static void no_memory(void)
{
	char line[256];
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	CHECK(f && fgets(line, sizeof(line), f));
	sscanf(line, "%lu", &pages);
	fclose(f);
	limited(RLIMIT_AS, pages * 4096 + (256 << 10));
}

/* What a strict container answers to what it does not know. */
static void refused_calls(void)
{
	static const int refused[] = {
		SYS_memfd_create, SYS_fallocate, SYS_prctl, SYS_mkdir, SYS_mkdirat, SYS_process_vm_readv,
		SYS_rt_sigtimedwait, SYS_statx, SYS_get_robust_list, SYS_uname, SYS_readlink, SYS_readlinkat,
	};
	struct sock_filter code[64];
	struct sock_fprog program = { .filter = code };
	unsigned int n = 0, count = sizeof(refused) / sizeof(refused[0]);

	found();
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < count; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)refused[i],
							 (unsigned char)(count - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	program.len = (unsigned short)n;
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	up();
	kill(getpid(), SIGURG);
	use();
	usleep(50000);
	use();
}

/* One that kills this thread's process for what it does not know, put on by the thread itself. */
static void killed_calls(void)
{
	static const int killed[] = { SYS_memfd_create, SYS_mkdir, SYS_mkdirat, SYS_fallocate, SYS_statx,
				      SYS_kill, SYS_clone, SYS_clone3, SYS_execve };
	struct sock_filter code[64];
	struct sock_fprog program = { .filter = code };
	unsigned int n = 0, count = sizeof(killed) / sizeof(killed[0]);

	up();
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < count; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)killed[i],
							 (unsigned char)(count - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	program.len = (unsigned short)n;
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	for (int i = 0; i < 20; i++)
		use();
}

/* ---- somebody else, somewhere else (root only) ---- */

static void becomes_nobody(void)
{
	if (getuid())
		_exit(77);
	up();
	CHECK(!setgid(65534) && !setuid(65534));
	use();
	kill(getpid(), SIGURG);
	usleep(20000);
	use();
}

static void is_nobody(void)
{
	if (getuid())
		_exit(77);
	found();
	CHECK(!setgid(65534) && !setuid(65534));
	up();
}

static void in_an_empty_root(void)
{
	char name[] = "/tmp/wg-attack-XXXXXX";

	if (getuid())
		_exit(77);
	found();
	CHECK(mkdtemp(name) && !chroot(name) && !chdir("/"));
	up();
	kill(getpid(), SIGURG);
	usleep(20000);
	use();
}

/* ---- signals ---- */

static volatile sig_atomic_t heard, on_alt;
static char alt[16384];

static void hear(int sig, siginfo_t *info, void *context)
{
	char here;

	(void)sig;
	(void)info;
	(void)context;
	heard++;
	on_alt += &here >= alt && &here < alt + sizeof(alt);
}

static void *sends(void *arg)
{
	pthread_t to = *(pthread_t *)arg;

	for (int i = 0; i < 50; i++) {
		int before = heard;

		pthread_kill(to, SIGURG); /* SI_TKILL: as Go's runtime preempts its threads */
		while (heard == before)
			sched_yield();
	}
	stop = 1;
	return NULL;
}

static void preempted(void)
{
	struct sigaction act = { .sa_sigaction = hear, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	stack_t st = { .ss_sp = alt, .ss_size = sizeof(alt) };
	struct sigaction back;
	pthread_t t, me = pthread_self();

	CHECK(!sigaltstack(&st, NULL));
	sigfillset(&act.sa_mask);
	CHECK(!sigaction(SIGURG, &act, NULL));
	up();
	CHECK(!sigaction(SIGURG, NULL, &back) && back.sa_sigaction == hear);
	dprintf(say, "flags %x\n", (unsigned int)back.sa_flags); /* the same as without the recorder */
	CHECK(!pthread_create(&t, NULL, sends, &me));
	while (!stop)
		use();
	pthread_join(t, NULL);
	CHECK(heard == 50 && on_alt == 50);
}

/* Nobody expects a handler: this thread's stack for signals is as small as it may be. */
static void small_signal_stack(void)
{
	size_t least = (size_t)sysconf(_SC_MINSIGSTKSZ), page = 4096;
	size_t size = (least + page - 1) / page * page;
	char *at = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t st = { .ss_sp = at + page, .ss_size = size };

	found();
	CHECK(at != MAP_FAILED && !mprotect(at + page, size, PROT_READ | PROT_WRITE));
	CHECK(!sigaltstack(&st, NULL));
	kill(getpid(), SIGURG); /* before CUDA a handler answers it */
	up();
	kill(getpid(), SIGURG);
	usleep(20000);
	use();
}

/* ---- a runtime that is closed and comes again ---- */

static void runtime_again(void)
{
	const char *dir = getenv("ATTACK_FAKES");
	int (*query)(void *);
	char path[512];

	begin();
	for (int i = 0; i < 6; i++) {
		void *held = mmap(NULL, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int release = i & 1 ? 12 : 13;
		void *runtime;

		CHECK(held != MAP_FAILED);
		snprintf(path, sizeof(path), "%s/libcudart.so.%d", dir ? dir : ".", release);
		runtime = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		CHECK(runtime);
		*(void **)&query = dlsym(runtime, "cudaStreamQuery");
		CHECK(query && query(NULL) == release);
		dlclose(runtime);
	}
}

/* ---- doors, and calls that make no sense: what is printed is the same without the recorder ---- */

/* Names that begin like the driver's and are somebody else's. */
__attribute__((visibility("default"))) int cudnnCreate(void **handle);
int cudnnCreate(void **handle) { return handle ? 4711 : 4712; }
__attribute__((visibility("default"))) int cublasCreate_v2(void **handle);
int cublasCreate_v2(void **handle) { return handle ? 4713 : 4714; }

static void doors(void)
{
	static const char *const names[] = { "cuMemAlloc_v2", "cuLaunchKernel", "cuInit", "cuGetProcAddress_v2",
					     "cuStreamSynchronize" };
	int (*get)(const char *, void **, int, uint64_t, int *);
	void *a, *b, *module;
	int status;

	CHECK(!dlsym(RTLD_DEFAULT, "cuGetExportTable"));
	CHECK(dlsym(RTLD_DEFAULT, "cudnnCreate") == (void *)cudnnCreate);
	CHECK(dlsym(NULL, "cublasCreate_v2") == (void *)cublasCreate_v2);
	found();
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		a = dlsym(cuda, names[i]);
		b = dlsym(cuda, names[i]);
		dprintf(say, "%s %d %d\n", names[i], a != NULL, a == b);
	}
	begin();
	*(void **)&get = dlsym(cuda, "cuGetProcAddress_v2");
	for (int i = 0; get && i < 3; i++) {
		static const char *const asked[] = { "cuGetProcAddress", "cuInit", "cuNoSuchThing" };

		a = b = NULL;
		status = 4711;
		dprintf(say, "%d", get(asked[i], &a, 12000, 0, &status));
		dprintf(say, " %d", get(asked[i], &b, 12000, 0, NULL)); /* its status is optional */
		dprintf(say, " %d %d %d\n", a != NULL, a == b, status);
	}
	CHECK(!dlsym(cuda, "cuNoSuchThing") && dlerror());
	/* One that keeps to itself: its own view goes past us, and it works as before. */
	module = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	CHECK(module && dlsym(module, "cuInit"));
	use();
}

#define SAYS(name, types, ...)                                               \
	do {                                                                 \
		void *f_ = dlsym(cuda, #name);                               \
		int r_ = -1;                                                 \
		errno = 0;                                                   \
		if (f_)                                                      \
			r_ = ((int (*)types)f_)(__VA_ARGS__);                \
		dprintf(say, "%d " #name " %d %d\n", __LINE__, r_, errno);   \
	} while (0)

static void odd_calls(void)
{
	struct {
		int type, handles, location, id;
		void *win;
		uint64_t flags;
	} on_host = { 1, 0, 2, 0, NULL, 0 };
	uint64_t p = 0;
	size_t n = 0;
	void *out = NULL;

	found();
	for (int round = 0; round < 3; round++) { /* before cuInit, without a context, with one */
		SAYS(cuMemGetInfo_v2, (size_t *, size_t *), NULL, NULL);
		SAYS(cuMemGetInfo_v2, (size_t *, size_t *), &n, NULL);
		SAYS(cuMemAlloc_v2, (uint64_t *, size_t), &p, 0);
		SAYS(cuMemAlloc_v2, (uint64_t *, size_t), &p, 1ul << 50);
		SAYS(cuMemFree_v2, (uint64_t), 0);
		SAYS(cuMemFree_v2, (uint64_t), 0xdead000);
		SAYS(cuMemCreate, (void **, size_t, void *, uint64_t), &out, 0, &on_host, 0);
		SAYS(cuMemRelease, (uint64_t), 0);
		SAYS(cuMemFreeHost, (void *), NULL);
		SAYS(cuEventQuery, (void *), NULL);
		SAYS(cuEventDestroy_v2, (void *), NULL);
		SAYS(cuStreamQuery, (void *), NULL);
		SAYS(cuStreamSynchronize, (void *), NULL);
		SAYS(cuCtxSynchronize, (void));
		SAYS(cuCtxGetDevice, (int *), (int *)&n);
		SAYS(cuCtxPopCurrent_v2, (void **), NULL);
		SAYS(cuCtxSetCurrent, (void *), NULL);
		SAYS(cuModuleUnload, (void *), NULL);
		SAYS(cuLaunchKernel, (void *, int, int, int, int, int, int, int, void *, void *, void *), NULL, 1,
		     1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		if (round == 0)
			begin();
		else if (round == 1)
			use();
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*f)(void);
	} verbs[] = {
		{ "fork-storm", fork_storm }, { "children", children }, { "exec-chain", exec_chain },
		{ "ends", ends }, { "thread-ends", thread_ends }, { "all-at-once", all_at_once },
		{ "constructor", in_constructor }, { "after-reset", after_reset },
		{ "closes-all", closes_all }, { "daemonizes", daemonizes },
		{ "no-file-size", no_file_size }, { "little-file-size", little_file_size },
		{ "no-descriptors", no_descriptors }, { "no-locked-memory", no_locked_memory },
		{ "no-processes", no_processes }, { "little-stack", little_stack },
		{ "no-memory", no_memory }, { "refused-calls", refused_calls },
		{ "killed-calls", killed_calls }, { "becomes-nobody", becomes_nobody },
		{ "is-nobody", is_nobody }, { "empty-root", in_an_empty_root },
		{ "preempted", preempted }, { "small-signal-stack", small_signal_stack },
		{ "doors", doors }, { "odd-calls", odd_calls },
		{ "runtime-again", runtime_again }, { "plain", up },
	};

	self = argv[0];
	for (unsigned int i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name)) {
			verbs[i].f();
			return 0;
		}
	return 64;
}
