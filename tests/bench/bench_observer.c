/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_observer.c - what waitgraphd costs others, as root: a futex-heavy, a write-heavy and a
 * switch-heavy loop, bare, beside the daemon, tracked by it, and under bpftrace programs that
 * count the same. Modes alternate, so that a machine's drift meets all alike; a figure is the
 * smallest of its rounds, in CPU time. Also: the idle daemon, and its answer for 200 threads.
 *
 * usage: bench_observer [ROUNDS]
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collect/observer_client.h"

#define CHUNKS 40
#define SOCKET "/tmp/wg-bench-observer.sock"

enum { FUTEX, WRITE, SWITCH, NWORK };
enum { BARE, IDLE, BESIDE, TRACKED, BESIDE_TRACE, TRACKED_TRACE, TRACE_WAKES, TRACE_CALLS, NMODE };
static const char *const work_names[NWORK] = { "futex", "pwrite", "switch" };
static const char *const mode_names[NMODE] = { "bare", "waitgraphd, nobody tracked", "another one tracked", "tracked itself", "--trace, another one tracked", "--trace, tracked itself",
	"bpftrace: wakes and sleeps", "bpftrace: futex and write calls" };

static double clock_of(clockid_t c)
{
	struct timespec t;

	clock_gettime(c, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the loops -------------------------------------------------------------------------- */

static int word, pipes[2][2], file;

static void *echo(void *arg)
{
	char c;

	while (read(pipes[0][0], &c, 1) == 1 && write(pipes[1][1], &c, 1) == 1)
		;
	return arg;
}

static double chunk(int work)
{
	int n = work == SWITCH ? 1500 : 15000;
	clockid_t c = work == SWITCH ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
	double from = clock_of(c);
	char b = 0;

	for (int i = 0; i < n; i++) {
		if (work == FUTEX) {
			syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		} else if (work == WRITE) {
			if (pwrite(file, &b, 1, 0) != 1)
				exit(1);
		} else if (write(pipes[0][1], &b, 1) != 1 || read(pipes[1][0], &b, 1) != 1) {
			exit(1);
		}
	}
	return (clock_of(c) - from) / n * 1e9;
}

/* A child that runs each loop when told to and says how long one turn took. */
static void worker(int in, int out)
{
	cpu_set_t cpu;
	pthread_t t;
	int work;

	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu); /* both threads: every round trip is two switches */
	sched_setaffinity(0, sizeof(cpu), &cpu);
	file = memfd_create("bench", 0);
	if (file < 0 || pipe(pipes[0]) || pipe(pipes[1]) || pthread_create(&t, NULL, echo, NULL))
		exit(1);
	while (read(in, &work, sizeof(work)) == sizeof(work)) {
		double least = 1e9;

		for (int i = 0; i < CHUNKS; i++) {
			double d = chunk(work);

			least = d < least ? d : least;
		}
		if (write(out, &least, sizeof(least)) != sizeof(least))
			break;
	}
	exit(0);
}

/* ---- what runs beside ----------------------------------------------------------------------- */

static pid_t start(char *const argv[], const char *wait_for)
{
	int fd[2];
	char buf[4096];
	size_t n = 0;
	pid_t pid;

	if (pipe(fd))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(fd[1], 1);
		dup2(fd[1], 2);
		close(fd[0]);
		close(fd[1]);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fd[1]);
	while (n < sizeof(buf) - 1) {
		struct pollfd p = { .fd = fd[0], .events = POLLIN };
		ssize_t k = poll(&p, 1, 20000) == 1 ? read(fd[0], buf + n, sizeof(buf) - 1 - n) : -1;

		if (k <= 0)
			break;
		n += (size_t)k;
		buf[n] = 0;
		if (strstr(buf, wait_for))
			return pid; /* fd[0] stays open for the program's sake */
	}
	buf[n] = 0;
	fprintf(stderr, "%s did not start: %s\n", argv[0], buf);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return -1;
}

static void stop(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
	}
}

static pid_t start_mode(int mode, pid_t subject)
{
	static char daemon_path[] = WG_BUILD_DIR "/bin/waitgraphd";
	char number[16];
	char *d[] = { daemon_path, "--socket", SOCKET, mode == IDLE ? NULL : "--pid", number,
		      mode >= BESIDE_TRACE ? "--trace" : NULL, NULL };
	char *wakes[] = { "bpftrace", "-B", "none", "-e",
		"BEGIN { printf(\"ready\\n\"); } tracepoint:sched:sched_waking { @w[args->pid] = count(); @by[args->pid] = tid; }"
		"tracepoint:sched:sched_switch { @off[tid] = nsecs; }", NULL };
	char *calls[] = { "bpftrace", "-B", "none", "-e",
		"BEGIN { printf(\"ready\\n\"); } tracepoint:syscalls:sys_enter_futex { @f[tid] = nsecs; } "
		"tracepoint:syscalls:sys_exit_futex { delete(@f[tid]); }"
		"tracepoint:syscalls:sys_enter_pwrite64 { @w[tid] = nsecs; } "
		"tracepoint:syscalls:sys_exit_pwrite64 { delete(@w[tid]); }", NULL };

	snprintf(number, sizeof(number), "%d", mode == TRACKED || mode == TRACKED_TRACE ? subject : getpid());
	return mode == BARE ? 0 : mode <= TRACKED_TRACE ? start(d, "listening") :
	       start(mode == TRACE_WAKES ? wakes : calls, "ready");
}

/* ---- the daemon itself ---------------------------------------------------------------------- */

static void *sleeper(void *arg)
{
	pause();
	return arg;
}

static void count_record(const void *record, int size, void *arg)
{
	(void)record;
	(void)size;
	++*(int *)arg;
}

static long proc_number(pid_t pid, const char *file_name, const char *key)
{
	char path[64], line[256];
	long v = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file_name);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			v = strtol(line + strlen(key), NULL, 10);
	if (f)
		fclose(f);
	return v;
}

static double daemon_cpu(pid_t pid)
{
	clockid_t c;

	return clock_getcpuclockid(pid, &c) ? 0 : clock_of(c);
}

static void the_daemon(void)
{
	pid_t many = fork(), d;
	double least = 1e9, cpu;
	struct wg_observer_client *c;
	struct wg_wire_done done;

	if (!many) {
		pthread_attr_t a;
		pthread_t t;

		pthread_attr_init(&a);
		pthread_attr_setstacksize(&a, 64 << 10);
		for (int i = 0; i < 199; i++)
			pthread_create(&t, &a, sleeper, NULL);
		pause();
	}
	d = start_mode(IDLE, 0);
	setenv("WAITGRAPH_SOCKET", SOCKET, 1);
	sleep(1);
	for (int i = 0; d > 0 && i < 20 && !wg_observer_client_open(&c); i++) {
		double from = clock_of(CLOCK_MONOTONIC), took;
		int n = 0;

		if (wg_observer_client_ask(c, WG_WIRE_ASK_TASKS, many, count_record, &n, &done) || done.error)
			fprintf(stderr, "no answer: %s\n", done.why);
		took = (clock_of(CLOCK_MONOTONIC) - from) * 1e3;
		if (n >= 200 && took < least)
			least = took;
		wg_observer_client_close(c);
	}
	cpu = daemon_cpu(d);
	sleep(10);
	printf("\nwaitgraphd: %.2f ms for the threads of a process with 200 (best of 20); idle %.3f %% of a core over 10 s; "
	       "%.1f MiB resident, %.1f at most\n", least, (daemon_cpu(d) - cpu) * 10,
	       (double)proc_number(d, "status", "VmRSS:") / 1024, (double)proc_number(d, "status", "VmHWM:") / 1024);
	stop(d);
	kill(many, SIGKILL);
	waitpid(many, NULL, 0);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5, in[2], out[2];
	double best[NWORK][NMODE];
	pid_t w;

	if (geteuid()) {
		fprintf(stderr, "bench_observer: needs root\n");
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < NWORK * NMODE; i++)
		best[i / NMODE][i % NMODE] = 1e9;
	for (int r = 0; r < rounds; r++)
		for (int mode = 0; mode < NMODE; mode++) {
			pid_t beside;

			/* A fresh one each time: once tracked, always tracked. */
			if (pipe(in) || pipe(out))
				return 1;
			w = fork();
			if (!w)
				worker(in[0], out[1]);
			usleep(20000);
			beside = start_mode(mode, w);
			for (int work = 0; beside >= 0 && work < NWORK; work++) {
				double d;

				if (write(in[1], &work, sizeof(work)) != sizeof(work) ||
				    read(out[0], &d, sizeof(d)) != sizeof(d))
					return 1;
				if (d < best[work][mode])
					best[work][mode] = d;
			}
			stop(beside);
			kill(w, SIGKILL);
			waitpid(w, NULL, 0);
			close(in[0]);
			close(in[1]);
			close(out[0]);
			close(out[1]);
		}
	printf("%-34s", "ns of CPU a turn, ratio to bare");
	for (int work = 0; work < NWORK; work++)
		printf("%18s", work_names[work]);
	puts("");
	for (int mode = 0; mode < NMODE; mode++) {
		printf("%-34s", mode_names[mode]);
		for (int work = 0; work < NWORK; work++)
			if (best[work][mode] < 1e9)
				printf("%10.0f %7.3f", best[work][mode], best[work][mode] / best[work][BARE]);
			else
				printf("%18s", "-");
		puts("");
	}
	the_daemon();
	return 0;
}
