/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_peers.c - who owes whom an answer: terminals and persons, requests without one,
 * proxies, wake-ups of one's own, threads that have been woken and wait for a processor.
 */
#include "graph_facts.h"

static struct wg_file *tty(struct wg_facts *f, struct wg_process *p, int fd, int pty, bool master)
{
	struct wg_file *x = file(f, p, fd, WG_FILE_TTY, (uint64_t)(pty + 3), O_RDWR);

	x->path = master ? "/dev/ptmx" : wg_fmt(f->arena, "/dev/pts/%d", pty);
	x->pty_index = pty;
	return x;
}

/* A shell at its prompt; whoever has the master side is left to the case. */
static struct wg_process *prompt(struct wg_facts *f, const char *who)
{
	struct wg_process *p = proc(f, 100, "bash"), *q = proc(f, 200, who);

	tty(f, p, 0, 4, false);
	io(MAIN(p), WG_OP_READ, 0);
	tty(f, q, 5, 4, true);
	return q;
}

static void emulator(struct wg_facts *f) /* polls the terminal and a person's connection */
{
	struct wg_process *q = prompt(f, "xterm");

	polls_fd(f, MAIN(q), WG_OP_POLL, 5, POLLIN);
	sock(f, q, 6, 500, 0)->sock_remote = "10.0.0.9:6000";
	polls_fd(f, MAIN(q), WG_OP_POLL, 6, POLLIN);
}

static void emulator_threads(struct wg_facts *f) /* one thread reads, another may write */
{
	struct wg_process *q = prompt(f, "ptyhost");

	io(MAIN(q), WG_OP_READ, 5);
	sleeps(thr(f, q, 201, "input"), 1000, 5);
}

static void emulator_stopped(struct wg_facts *f)
{
	emulator(f);
	stops(f->procs.v[1]);
}

static void driver(struct wg_facts *f) /* expect: it wants a line, the program wants one too */
{
	io(MAIN(prompt(f, "expect")), WG_OP_READ, 5);
}

static void held_output(struct wg_facts *f) /* Ctrl-S: one writes, one reads, nothing passes */
{
	struct wg_process *q = prompt(f, "xterm");

	io(MAIN(f->procs.v[0]), WG_OP_WRITE, 0);
	io(MAIN(q), WG_OP_READ, 5);
}

static void unread_output(struct wg_facts *f)
{
	struct wg_process *q = prompt(f, "driver");

	io(MAIN(f->procs.v[0]), WG_OP_WRITE, 0);
	sleeps(MAIN(q), 1000, 20);
}

/* A client of a server that in turn waits for a person's key presses, among others. */
static void client_of_person(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "client"), *q = proc(f, 200, "server");

	sock(f, p, 3, 500, 600);
	polls_fd(f, MAIN(p), WG_OP_POLL, 3, POLLIN);
	sock(f, q, 3, 600, 500);
	polls_fd(f, MAIN(q), WG_OP_POLL, 3, POLLIN);
	tty(f, q, 0, -1, false)->path = "/dev/tty1";
	polls_fd(f, MAIN(q), WG_OP_POLL, 0, POLLIN);
	timeout(MAIN(q), 10);
}

static void client_of_timer(struct wg_facts *f)
{
	client_of_person(f);
	f->procs.v[1]->files.v[1].kind = WG_FILE_TIMERFD;
	f->procs.v[1]->files.v[1].timer_left_s = 1000;
}

/* TCP: what was sent and received, and when last. */
static void account(struct wg_file *x, int64_t sent, double sent_ago, int64_t got, double got_ago)
{
	x->sock_type = 1;
	x->sock_role = 1;
	x->sock_rxq = 0;
	x->sock_sent_bytes = sent;
	x->sock_sent_age_s = sent_ago;
	x->sock_recv_bytes = got;
	x->sock_recv_age_s = got_ago;
}

static struct wg_process *looks_again(struct wg_facts *f, double sent_ago, double got_ago)
{
	struct wg_process *p = proc(f, 100, "client"), *q = proc(f, 200, "server");
	struct wg_file *x = sock(f, p, 3, 500, 600);

	x->sock_remote = "127.0.0.1:80";
	account(x, 70, sent_ago, 1000, got_ago);
	polls_fd(f, MAIN(p), WG_OP_POLL, 3, POLLIN);
	timeout(MAIN(p), 1);
	MAIN(p)->wait.since_s = 0.4;
	sock(f, q, 9, 600, 500)->sock_role = 2;
	sleeps(MAIN(q), 1000, 20);
	return q;
}

static void owed(struct wg_facts *f) { looks_again(f, 8, 20); }
static void owed_stopped(struct wg_facts *f) { stops(looks_again(f, 8, 20)); }
static void owed_works(struct wg_facts *f) { runs(MAIN(looks_again(f, 8, 20))); }
static void owed_young(struct wg_facts *f) { looks_again(f, 0.7, 20); }
static void answered(struct wg_facts *f) { looks_again(f, 20, 8); }
static void owed_unread(struct wg_facts *f) /* it lies there: whoever asked has not read it */
{
	looks_again(f, 8, 20);
	f->procs.v[0]->files.v[0].sock_rxq = 400;
}

static void accepted_end(struct wg_facts *f) /* a server that has answered waits the same way */
{
	looks_again(f, 8, 20);
	f->procs.v[0]->files.v[0].sock_role = 2;
}

/* Beside the connection it polls what wakes itself. */
static void owed_and_wakeup(struct wg_facts *f)
{
	looks_again(f, 8, 20);
	pipe_end(f, f->procs.v[0], 4, 900, false);
	pipe_end(f, f->procs.v[0], 5, 900, true);
	polls_fd(f, MAIN(f->procs.v[0]), WG_OP_POLL, 4, POLLIN);
	timeout(MAIN(f->procs.v[0]), 1);
}

static void owed_and_listens(struct wg_facts *f)
{
	struct wg_file *l;

	looks_again(f, 8, 20);
	l = file(f, f->procs.v[0], 4, WG_FILE_SOCKET, 700, O_RDWR);
	l->sock_state = WG_SOCK_LISTEN;
	polls_fd(f, MAIN(f->procs.v[0]), WG_OP_POLL, 4, POLLIN);
	timeout(MAIN(f->procs.v[0]), 1);
}

static void owed_helper_works(struct wg_facts *f) /* another thread may wake it with work */
{
	looks_again(f, 8, 20);
	runs(thr(f, f->procs.v[0], 101, "worker"));
}

/* client -> proxy (an event loop that listens) -> upstream */
static struct wg_process *proxied(struct wg_facts *f, double asked_ago)
{
	struct wg_process *p = proc(f, 100, "client"), *q = proc(f, 200, "proxy");
	struct wg_process *u = proc(f, 300, "upstream");
	struct wg_file *x;

	account(sock(f, p, 3, 500, 600), 70, 9, 0, 9);
	io(MAIN(p), WG_OP_READ, 3);
	since(MAIN(p), 9);
	x = file(f, q, 3, WG_FILE_SOCKET, 700, O_RDWR);
	x->sock_state = WG_SOCK_LISTEN;
	sock(f, q, 4, 600, 500)->sock_role = 2;
	account(sock(f, q, 5, 800, 900), 70, asked_ago, 0, asked_ago);
	for (int fd = 3; fd <= 5; fd++)
		polls_fd(f, MAIN(q), WG_OP_EPOLL, fd, POLLIN);
	sock(f, u, 3, 900, 800)->sock_role = 2;
	sleeps(MAIN(u), 1000, 20);
	return u;
}

static void proxy_silent(struct wg_facts *f) { proxied(f, 9); }
static void proxy_stopped(struct wg_facts *f) { stops(proxied(f, 9)); }
static void proxy_works(struct wg_facts *f) { runs(MAIN(proxied(f, 9))); }
static void proxy_other_request(struct wg_facts *f) /* asked long before our request */
{
	stops(proxied(f, 60));
}

static void woken(struct wg_facts *f) /* woken, and no processor yet: nobody need signal it */
{
	struct wg_process *p = proc(f, 100, "app");

	file(f, p, 5, WG_FILE_EVENTFD, 44, O_RDWR);
	polls_fd(f, MAIN(p), WG_OP_POLL, 5, POLLIN);
	pauses(thr(f, p, 101, "helper"));
	MAIN(p)->state = 'R';
}

static void own_eventfd(struct wg_facts *f) /* a handler writes it when the child ends */
{
	struct wg_process *p = proc(f, 100, "ruby"), *q = proc(f, 200, "gzip");

	child_of(f, q, p);
	stops(q);
	file(f, p, 5, WG_FILE_EVENTFD, 44, O_RDWR);
	polls_fd(f, MAIN(p), WG_OP_POLL, 5, POLLIN);
}

static void daemon_of_same_program(struct wg_facts *f) /* it left its parent on purpose */
{
	struct wg_process *p = proc(f, 100, "tmux"), *q = proc(f, 200, "tmux");
	struct wg_process *gone = proc(f, 150, "tmux");
	struct wg_file *l;

	p->exe = q->exe = "/usr/bin/tmux";
	q->forked = true;
	child_of(f, gone, p);
	p->children.n = 0;
	dead(gone, 0, 0);
	sock(f, p, 3, 500, 600)->sock_remote = "/run/t.sock";
	io(MAIN(p), WG_OP_READ, 3);
	l = file(f, q, 3, WG_FILE_SOCKET, 700, O_RDWR);
	l->sock_state = WG_SOCK_LISTEN;
	sock(f, q, 4, 600, 500);
	stops(q);
}

static struct wg_process *retries_lock(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "apt"), *q = proc(f, 200, "dpkg");
	struct wg_file_lock *l = wg_push(f->arena, &f->locks);

	l->kind = 'p';
	l->write = true;
	l->pid = l->taken_by = 200;
	l->dev = 8;
	l->ino = 77;
	l->end = WG_NO_INT;
	sleeps(MAIN(p), 1, 0.4);
	MAIN(p)->repeat_syscall = "fcntl";
	MAIN(p)->repeat_errno = 11;
	MAIN(p)->repeat_dev = 8;
	MAIN(p)->repeat_ino = 77;
	file(f, q, 3, WG_FILE_REG, 77, O_RDWR)->path = "/var/lib/dpkg/lock-frontend";
	return q;
}

static void lock_retried(struct wg_facts *f) { retries_lock(f); }
static void lock_retried_stopped(struct wg_facts *f) { stops(retries_lock(f)); }
static void lock_retried_works(struct wg_facts *f) { runs(MAIN(retries_lock(f))); }
static void lock_retried_unknown(struct wg_facts *f) /* neither the file nor who has it is known */
{
	retries_lock(f);
	MAIN(f->procs.v[0])->repeat_ino = 0;
}

#define Y WG_HUNG_YES
#define N WG_HUNG_NO
#define U WG_HUNG_NULL
static const struct graph_case cases[] = {
	{"prompt behind an emulator", emulator, "idle", N, 0, 0, "xterm", 0},
	{"prompt behind a program with threads", emulator_threads, "idle", N, 0, 0, NULL, 0},
	{"the emulator is stopped", emulator_stopped, "stopped", Y, 200, 0, NULL, 0},
	{"two who expect each other's line", driver, "deadlock", Y, 0, 0, NULL, 0},
	{"output held by Ctrl-S", held_output, "pipe-full", Y, 0, 0, "Ctrl-S", 0},
	{"output that nobody reads", unread_output, "pipe-full", Y, 200, 0, NULL, 0},
	{"client of one that waits for a person", client_of_person, "idle", N, 0, 0, NULL, 0},
	{"client of one that waits for a timer", client_of_timer, "peer-silent", Y, 200, 0, NULL, 0},
	{"polls for an answer", owed, "peer-silent", Y, 200, 0, "answer", 0},
	{"polls for an answer of one stopped", owed_stopped, "stopped", Y, 200, 0, NULL, 0},
	{"polls for an answer that is being made", owed_works, "busy-cpu", N, 200, 0, NULL, 0},
	{"asked just now", owed_young, "idle|unknown", N, 0, 0, NULL, 0},
	{"has its answer", answered, "idle", N, 0, 0, NULL, 0},
	{"has not read its answer", owed_unread, "idle|unknown", N, 0, 0, NULL, 0},
	{"a server between two requests", accepted_end, "idle", N, 0, 0, NULL, 0},
	{"polls for an answer and its own pipe", owed_and_wakeup, "peer-silent", Y, 200, 0, NULL, 0},
	{"polls for an answer and listens", owed_and_listens, "idle", N, 0, 0, NULL, 0},
	{"polls for an answer, a helper works", owed_helper_works, "idle|busy-cpu", N, 0, 0, NULL, 0},
	{"proxy, upstream silent", proxy_silent, "peer-silent", Y, 300, 0, "proxy", 0},
	{"proxy, upstream stopped", proxy_stopped, "stopped", Y, 300, 0, "proxy", 0},
	{"proxy, upstream works", proxy_works, "busy-cpu", N, 300, 0, NULL, 0},
	{"proxy, an older request of somebody's", proxy_other_request, "peer-silent", Y, 200, 0, NULL, 0},
	{"woken, no processor yet", woken, "progressing|idle|unknown", N, 0, 0, NULL, 0},
	{"own eventfd and a child", own_eventfd, "stopped", Y, 200, 0, NULL, 0},
	{"a daemon is no orphan", daemon_of_same_program, "stopped", Y, 200, 0, NULL, 0},
	{"lock asked for again and again", lock_retried, "file-lock", Y, 200, 0, "lock-frontend", 0},
	{"the same, holder stopped", lock_retried_stopped, "stopped", Y, 200, 0, NULL, 0},
	{"the same, holder works", lock_retried_works, "busy-cpu", N, 200, 0, NULL, 0},
	{"the same, file unknown", lock_retried_unknown, "file-lock", Y, 0, 0, NULL, 0},
};

RUN_CASES(cases)
