// SPDX-License-Identifier: Apache-2.0
/*
 * signal.c - the signal that asks for a dump.
 *
 * Before CUDA is up a handler answers it, on the main thread: threads are born with the signal
 * blocked (pthread_create below), so the kernel gives it to main and no other call sees EINTR. When
 * CUDA comes up the main thread blocks it as well and our helper thread waits for it: from then on
 * no call of the program is interrupted, and it is answered even while main sleeps uninterruptibly.
 * A main thread that did not call cuInit() itself blocks it at its first CUDA call, or when the
 * signal first reaches it.
 *
 * The program does not see any of this: its own handler, its own mask and what it reads back are
 * kept here, and what it starts gets the mask that it set (exec.c). When it installs a handler of
 * its own for this signal, it is given back its signal: nothing is blocked, requests from outside
 * are answered by our handler, everything else goes to its handler.
 *
 * Whatever is here may run in a signal handler.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <poll.h>

#include "doors.h"
#include "inflight.h"
#include "lifecycle.h"
#include "sys.h"

extern int __sigaction(int, const struct sigaction *, struct sigaction *); /* libc's own */

static bool installed;
static uint64_t bit; /* in a kernel mask */

/* What the program believes to have set. A ring, so that a reader never sees half a change. */
#define ACTIONS 16u
static struct sigaction actions[ACTIONS];
static uint32_t action_at;
static volatile bool own_handler; /* the program has a function for it */

/* This thread: does the program want it blocked; did we block it. */
static __thread bool wanted_blocked WG_INITIAL_EXEC;
static __thread bool held WG_INITIAL_EXEC;
static volatile bool *main_wants_blocked; /* wanted_blocked of the main thread */
/* The task that is about to exec and not to be held now: a child of vfork() shares this memory. */
static __thread int leaving WG_INITIAL_EXEC;

uint64_t wg_signal_bit(void)
{
	return installed ? bit : 0;
}

static struct sigaction action_now(void)
{
	return actions[__atomic_load_n(&action_at, __ATOMIC_ACQUIRE) % ACTIONS];
}

static void set_action(const struct sigaction *act)
{
	static uint32_t next;
	uint32_t i = __atomic_add_fetch(&next, 1, __ATOMIC_ACQ_REL);

	actions[i % ACTIONS] = *act;
	__atomic_store_n(&action_at, i, __ATOMIC_RELEASE);
}

static bool is_function(const struct sigaction *a)
{
	return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN;
}

static bool is_main(void)
{
	return wg_sys_tid() == wg_sys_pid();
}

static bool ignored_by_default(int sig)
{
	return sig == SIGURG || sig == SIGCHLD || sig == SIGWINCH || sig == SIGCONT;
}

/* ---- whose signal is it --------------------------------------------------------------- */

/*
 * kill() and sigqueue() by a person or another program. tgkill() and raise() (Go preempts its own
 * threads with SIGURG), timers, SIGIO-like notices and children are the program's own affair; so is
 * what it sends to itself, unless that would do nothing at all.
 */
bool wg_signal_is_request(const siginfo_t *info)
{
	if (info->si_code != SI_USER && info->si_code != SI_QUEUE)
		return false;
	return info->si_pid != wg_sys_pid() || (!own_handler && ignored_by_default(info->si_signo));
}

static void default_action(int sig)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	if (ignored_by_default(sig))
		return;
	/* Everything else ends the process, as it would have without us. */
	__sigaction(sig, &dfl, NULL);
	wg_sys_mask(SIG_UNBLOCK, bit);
	wg_sys3(SYS_tgkill, wg_sys_pid(), wg_sys_tid(), sig);
}

static void to_program(int sig, siginfo_t *info, void *uc)
{
	struct sigaction a = action_now();
	uint64_t mask, was;

	if (a.sa_handler == SIG_IGN)
		return;
	if (a.sa_handler == SIG_DFL) {
		default_action(sig);
		return;
	}
	if (a.sa_flags & (int)SA_RESETHAND) {
		struct sigaction dfl = { .sa_handler = SIG_DFL };

		set_action(&dfl);
		own_handler = false;
	}
	memcpy(&mask, &a.sa_mask, sizeof(mask));
	was = wg_sys_mask(SIG_BLOCK, mask);
	if (a.sa_flags & SA_NODEFER)
		wg_sys_mask(SIG_UNBLOCK, bit);
	if (a.sa_flags & SA_SIGINFO)
		a.sa_sigaction(sig, info, uc);
	else
		a.sa_handler(sig);
	wg_sys_mask(SIG_SETMASK, was);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	int *errno_at = &errno, was = *errno_at;
	ucontext_t *uc = context;

	if (!wg_signal_is_request(info)) {
		to_program(sig, info, context);
	} else if (wg_helper_running()) {
		/* It reached a thread that does not hold it (yet): pass it on, and hold it from now. */
		wg_helper_kick(true);
		if (!own_handler && leaving != wg_sys_tid()) {
			sigaddset(&uc->uc_sigmask, sig);
			held = true;
		}
	} else {
		wg_dump_request();
	}
	*errno_at = was;
}

/*
 * Our thread took one that is the program's: only in the moment before the program's handler was
 * installed, since afterwards our thread does not wait for it. The kernel lets nobody repeat a code
 * of its own to another thread, so it arrives as queued.
 */
void wg_signal_hand_on(const siginfo_t *info)
{
	siginfo_t copy = *info;

	copy.si_code = SI_QUEUE;
	/*
	 * One that it keeps blocked it will ask for (sigtimedwait): not to end it is the least. Where
	 * another thread than main would have asked it is late; RULES.md says so.
	 */
	if (own_handler || (main_wants_blocked && *main_wants_blocked))
		wg_sys4(SYS_rt_tgsigqueueinfo, wg_sys_pid(), wg_sys_pid(), wg_settings.signal, &copy);
	else
		default_action(wg_settings.signal);
}

bool wg_signal_is_programs(void)
{
	return own_handler;
}

static int install(const struct sigaction *program)
{
	struct sigaction ours = {
		.sa_sigaction = handler,
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART,
	};

	if (program && is_function(program)) {
		ours.sa_mask = program->sa_mask;
		ours.sa_flags = SA_SIGINFO | (program->sa_flags & (SA_RESTART | SA_ONSTACK));
	}
	return __sigaction(wg_settings.signal, &ours, NULL);
}

void wg_signal_install(void)
{
	struct sigaction before;

	if (!wg_settings.signal || __sigaction(wg_settings.signal, NULL, &before))
		return;
	set_action(&before); /* SIG_DFL, or the SIG_IGN that we were started with */
	own_handler = is_function(&before);
	bit = 1ull << (wg_settings.signal - 1);
	wanted_blocked = (wg_sys_mask_now() & bit) != 0;
	main_wants_blocked = &wanted_blocked;
	installed = !install(own_handler ? &before : NULL);
}

/* ---- holding: blocked without the program knowing ------------------------------------------ */

static bool should_hold(void)
{
	return installed && !own_handler && (wg_helper_running() || !is_main());
}

static void let_go(void)
{
	held = false;
	if (!wanted_blocked)
		wg_sys_mask(SIG_UNBLOCK, bit);
}

/*
 * A runtime that sets its handlers by system call does not tell us: Go does so, for this very
 * signal, and stops a thread by it. Where it is blocked that thread never hears it, and the program
 * stands still. So the kernel is asked whose handler stands before anything is blocked. (SIG_IGN
 * may be our own for a moment: another thread is starting a program.)
 */
void wg_signal_look(void)
{
	struct sigaction now;

	if (!installed || own_handler || __sigaction(wg_settings.signal, NULL, &now) ||
	    !is_function(&now) || now.sa_sigaction == handler)
		return;
	set_action(&now);
	own_handler = true;
	wg_note("the program handles the dump's signal past libc: it asks for no dump");
	if (held)
		let_go();
	wg_helper_kick(false);
}

void wg_signal_hold(void)
{
	if (!installed || own_handler || held || !wg_helper_running())
		return;
	wg_signal_look();
	if (own_handler)
		return;
	wg_sys_mask(SIG_BLOCK, bit);
	held = true;
}

/*
 * Before the program starts another one from this thread: what exec() hands on is the mask, and
 * whether the signal is ignored. Returns what has to be undone if the thread goes on.
 */
unsigned int wg_signal_unhold(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	unsigned int undo = 0;

	if (!installed)
		return 0;
	leaving = wg_sys_tid();
	if (action_now().sa_handler == SIG_IGN && !__sigaction(wg_settings.signal, &ignore, NULL))
		undo |= 1;
	if (!wanted_blocked && (wg_sys_mask_now() & bit)) {
		wg_sys_mask(SIG_UNBLOCK, bit);
		undo |= 2;
	}
	return undo;
}

void wg_signal_rehold(unsigned int undo)
{
	leaving = 0;
	if (undo & 2)
		wg_sys_mask(SIG_BLOCK, bit);
	if (undo & 1)
		install(NULL);
}

/* Its only thread is its main thread now, and it has no helper. */
void wg_signal_fork_child(void)
{
	if (!installed)
		return;
	main_wants_blocked = &wanted_blocked;
	let_go();
}

/* ---- what the program calls ------------------------------------------------------------------- */

static bool kernel_signal(int sig)
{
	return installed && sig == wg_settings.signal;
}

#define LIBC_CALL(type, name, ...)                                                                 \
	((type)(wg_libc.name ? wg_libc.name : (wg_doors_init(), wg_libc.name)))(__VA_ARGS__)

static void program_sets(const struct sigaction *act)
{
	struct sigaction kept = *act;
	bool function = is_function(act);

#if defined(__x86_64__)
	kept.sa_flags |= 0x04000000; /* SA_RESTORER: libc sets it, and a program reads it back */
#endif
	set_action(&kept);
	if (function) {
		own_handler = true;
		install(act);
		if (held || !wanted_blocked)
			let_go();
	} else {
		own_handler = false;
		install(NULL);
		wg_signal_hold();
	}
	wg_helper_kick(false); /* it waits for the signal, or does not */
}

WG_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction was;

	if (!kernel_signal(sig))
		return __sigaction(sig, act, old);
	was = action_now();
	if (act)
		program_sets(act);
	if (old)
		*old = was;
	return 0;
}

typedef void (*handler_fn)(int);
typedef handler_fn (*signal_fn)(int, handler_fn);
static bool interrupts; /* siginterrupt() */

static handler_fn set_simple(handler_fn h, int flags)
{
	struct sigaction act = { .sa_handler = h, .sa_flags = flags }, was = action_now();

	if (h == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	program_sets(&act);
	return was.sa_handler;
}

#define BSD_SIGNAL(name)                                                                           \
	WG_EXPORT handler_fn name(int sig, handler_fn h);                                          \
	WG_EXPORT handler_fn name(int sig, handler_fn h)                                           \
	{                                                                                          \
		if (!kernel_signal(sig))                                                           \
			return LIBC_CALL(signal_fn, name, sig, h);                                 \
		return set_simple(h, interrupts ? 0 : SA_RESTART);                                 \
	}
BSD_SIGNAL(signal)
BSD_SIGNAL(bsd_signal)
BSD_SIGNAL(ssignal)

#define SYSV_SIGNAL(name)                                                                          \
	WG_EXPORT handler_fn name(int sig, handler_fn h);                                          \
	WG_EXPORT handler_fn name(int sig, handler_fn h)                                           \
	{                                                                                          \
		if (!kernel_signal(sig))                                                           \
			return LIBC_CALL(signal_fn, name, sig, h);                                 \
		return set_simple(h, (int)(SA_RESETHAND | SA_NODEFER));                            \
	}
SYSV_SIGNAL(sysv_signal)
SYSV_SIGNAL(__sysv_signal)

WG_EXPORT handler_fn sigset(int sig, handler_fn h);
WG_EXPORT handler_fn sigset(int sig, handler_fn h)
{
	handler_fn was;

	if (!kernel_signal(sig))
		return LIBC_CALL(signal_fn, sigset, sig, h);
	was = wanted_blocked ? SIG_HOLD : action_now().sa_handler;
	if (h == SIG_HOLD) {
		wanted_blocked = true;
		wg_sys_mask(SIG_BLOCK, bit);
		return was;
	}
	wanted_blocked = false;
	if (set_simple(h, 0) == SIG_ERR)
		return SIG_ERR;
	return was;
}

WG_EXPORT int sigignore(int sig);
WG_EXPORT int sigignore(int sig)
{
	if (!kernel_signal(sig))
		return LIBC_CALL(int (*)(int), sigignore, sig);
	set_simple(SIG_IGN, 0);
	return 0;
}

WG_EXPORT int siginterrupt(int sig, int flag)
{
	struct sigaction act;

	if (!kernel_signal(sig))
		return LIBC_CALL(int (*)(int, int), siginterrupt, sig, flag);
	interrupts = flag != 0;
	act = action_now();
	act.sa_flags = flag ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	program_sets(&act);
	return 0;
}

/* The mask as the program set it, in both directions. */
static int mask_call(int (*real)(int, const sigset_t *, sigset_t *), int how, const sigset_t *set,
		     sigset_t *old)
{
	bool was_wanted = wanted_blocked, has;
	sigset_t mine, was;
	int rc;

	if (!installed)
		return real(how, set, old);
	if (set) {
		mine = *set;
		has = sigismember(set, wg_settings.signal) == 1;
		if (should_hold()) {
			if (how == SIG_UNBLOCK)
				sigdelset(&mine, wg_settings.signal);
			else if (how == SIG_SETMASK)
				sigaddset(&mine, wg_settings.signal);
		}
		rc = real(how, &mine, &was);
		if (!rc && (has || how == SIG_SETMASK))
			wanted_blocked = how == SIG_UNBLOCK ? false : has;
		if (!rc && held && how == SIG_SETMASK && !sigismember(&mine, wg_settings.signal))
			held = false;
	} else {
		rc = real(how, NULL, &was);
	}
	if (!rc && old) {
		*old = was;
		if (was_wanted)
			sigaddset(old, wg_settings.signal);
		else if (held || should_hold())
			sigdelset(old, wg_settings.signal);
	}
	return rc;
}

typedef int (*mask_fn)(int, const sigset_t *, sigset_t *);

WG_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	if (!wg_libc.pthread_sigmask)
		wg_doors_init();
	return mask_call((mask_fn)wg_libc.pthread_sigmask, how, set, old);
}

WG_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	if (!wg_libc.sigprocmask)
		wg_doors_init();
	return mask_call((mask_fn)wg_libc.sigprocmask, how, set, old);
}

/* libc's own forms of these call the mask's function inside, where no door is. */
static int one_signal(int how, int sig)
{
	sigset_t set;

	sigemptyset(&set);
	return sigaddset(&set, sig) < 0 ? -1 : sigprocmask(how, &set, NULL);
}

WG_EXPORT int sighold(int sig);
WG_EXPORT int sighold(int sig)
{
	return one_signal(SIG_BLOCK, sig);
}

WG_EXPORT int sigrelse(int sig);
WG_EXPORT int sigrelse(int sig)
{
	return one_signal(SIG_UNBLOCK, sig);
}

static int old_mask(int how, int bits)
{
	sigset_t set, was;
	int old = 0;

	sigemptyset(&set);
	for (int sig = 1; sig <= 32; sig++)
		if ((unsigned int)bits >> (sig - 1) & 1)
			sigaddset(&set, sig);
	if (sigprocmask(how, &set, &was))
		return -1;
	for (int sig = 1; sig <= 32; sig++)
		if (sigismember(&was, sig) == 1)
			old |= (int)(1u << (sig - 1));
	return old;
}

WG_EXPORT int sigblock(int bits);
WG_EXPORT int sigblock(int bits)
{
	return old_mask(SIG_BLOCK, bits);
}

WG_EXPORT int sigsetmask(int bits);
WG_EXPORT int sigsetmask(int bits)
{
	return old_mask(SIG_SETMASK, bits);
}

/* Waiting calls that bring a mask of their own: the signal stays held during them, too. */
static const sigset_t *with_ours(const sigset_t *mask, sigset_t *room)
{
	if (!mask || !should_hold())
		return mask;
	*room = *mask;
	sigaddset(room, wg_settings.signal);
	return room;
}

WG_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	return LIBC_CALL(int (*)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *),
			 ppoll, fds, n, timeout, with_ours(mask, &room));
}

WG_EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout,
		      const sigset_t *mask)
{
	sigset_t room;

	return LIBC_CALL(int (*)(int, fd_set *, fd_set *, fd_set *, const struct timespec *,
				 const sigset_t *),
			 pselect, n, r, w, e, timeout, with_ours(mask, &room));
}

WG_EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
	sigset_t room;

	return LIBC_CALL(int (*)(int, struct epoll_event *, int, int, const sigset_t *), epoll_pwait, fd,
			 events, n, timeout, with_ours(mask, &room));
}

WG_EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
			   const sigset_t *mask);
WG_EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
			   const sigset_t *mask)
{
	sigset_t room;

	if (!wg_libc.epoll_pwait2) {
		errno = ENOSYS;
		return -1;
	}
	return LIBC_CALL(int (*)(int, struct epoll_event *, int, const struct timespec *,
				 const sigset_t *),
			 epoll_pwait2, fd, events, n, timeout, with_ours(mask, &room));
}

WG_EXPORT int sigsuspend(const sigset_t *mask)
{
	sigset_t room;

	return LIBC_CALL(int (*)(const sigset_t *), sigsuspend, with_ours(mask, &room));
}

/*
 * Threads are born with the signal blocked: it is main's until CUDA is up, our helper's afterwards.
 * libc gives the new thread the mask that its maker has at this moment.
 */
WG_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			     void *arg)
{
	typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	bool undo = false;
	int rc;

	if (!wg_libc.pthread_create)
		wg_doors_init();
	wg_signal_look();
	if (installed && !own_handler && !held)
		undo = !(wg_sys_mask(SIG_BLOCK, bit) & bit);
	rc = ((create_fn)wg_libc.pthread_create)(thread, attr, start, arg);
	if (undo)
		wg_sys_mask(SIG_UNBLOCK, bit);
	return rc;
}
