// SPDX-License-Identifier: Apache-2.0
/*
 * watchdog.c - our one thread in the program: waits for the signal, and looks round once a second.
 *
 * It makes no call that can wait for anything of the program's: no loader lock, no malloc, no CUDA
 * call that synchronises. All signals are blocked in it but those that libc needs between threads.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "doors.h"
#include "lifecycle.h"
#include "memory.h"
#include "nccl.h"
#include "streams.h"
#include "sys.h"

#define ROUND_NS 1000000000ull
#define END_NS 100000000ull /* while the program may be about to end */

static _Atomic int helper_tid; /* 0: none in this process */
static uint32_t wanted, kicks;

bool wg_helper_running(void)
{
	return helper_tid != 0;
}

/* Out of whatever it waits in. `request`: a dump was asked for. */
void wg_helper_kick(bool request)
{
	siginfo_t info;
	int tid = helper_tid;

	if (!tid)
		return;
	if (request)
		__atomic_store_n(&wanted, 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&kicks, 1, __ATOMIC_RELEASE);
	wg_sys6(SYS_futex, WG_SYS_ARG(&kicks), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
	memset(&info, 0, sizeof(info));
	info.si_signo = wg_settings.signal;
	info.si_code = SI_QUEUE;
	info.si_pid = wg_sys_pid();
	info.si_value.sival_ptr = (void *)&kicks;
	wg_sys4(SYS_rt_tgsigqueueinfo, wg_sys_pid(), tid, wg_settings.signal, &info);
}

static bool is_kick(const siginfo_t *info)
{
	return info->si_code == SI_QUEUE && info->si_value.sival_ptr == (void *)&kicks;
}

void wg_helper_fork_child(void)
{
	helper_tid = 0;
	wanted = 0;
}

/* Anything that means that the job moves: calls that ended, work that the GPU finished. */
static uint64_t progress(void)
{
	uint64_t sum = wg_calls_done(), n = 0, cap;
	struct wgrec_stream *st = wg_rec_section(WGREC_STREAMS, &cap);
	struct wgrec_comm *c;

	for (unsigned int i = 0; wg_rec && i < WGREC_MAX_SECTIONS; i++)
		if (wg_rec->sections[i].kind == WGREC_STREAMS)
			n = wg_rec->sections[i].used < cap ? wg_rec->sections[i].used : cap;
	for (uint64_t i = 0; st && i < n; i++)
		sum = sum * 31 + st[i].seen;
	c = wg_rec_section(WGREC_COMMS, &cap);
	for (unsigned int i = 0; wg_rec && i < WGREC_MAX_SECTIONS; i++)
		if (wg_rec->sections[i].kind == WGREC_COMMS)
			n = wg_rec->sections[i].used < cap ? wg_rec->sections[i].used : cap;
	for (uint64_t i = 0; c && i < n; i++)
		sum = sum * 31 + c[i].entered + c[i].done;
	return sum;
}

static void watch(uint64_t now)
{
	static uint64_t last, stood, before, next;
	uint64_t p, step = now - before;

	if (!wg_settings.stall_s)
		return;
	/*
	 * Only time that we ourselves were given counts: when the whole process was frozen, stopped
	 * or starved, nothing could move, and after it nothing hangs.
	 */
	if (!before || step > 2 * ROUND_NS)
		step = before ? ROUND_NS : 0;
	before = now;
	stood += step;
	p = progress();
	if (p != last || !next) {
		last = p;
		stood = 0;
		next = (uint64_t)wg_settings.stall_s * 1000000000u;
	} else if (stood >= next) {
		/*
		 * Again when the stall is five times as old: at its start a long kernel cannot be told
		 * from one that never ends, and the newest snapshot is the one that counts. A stall
		 * of a day leaves a handful.
		 */
		next = stood * 5;
		wg_dump_request();
	}
}

static void look_round(uint64_t now)
{
	struct wgrec_header *h = wg_rec;

	wg_clock_improve();
	wg_thread_gc();
	wg_streams_tick();
	wg_nccl_tick();
	wg_mem_tick();
	wg_signal_look();
	if (h) {
		__atomic_store_n(&h->calls, wg_calls_done(), __ATOMIC_RELAXED);
		if (wg_bypassed && !(h->flags & WGREC_F_DEEPBIND)) {
			wg_recorder_flag(WGREC_F_DEEPBIND, 0);
			wg_note("a library was opened with RTLD_DEEPBIND or dlmopen: its calls may be "
				"unseen");
		}
		__atomic_store_n(&h->heartbeat, wg_ticks(), __ATOMIC_RELEASE);
	}
	watch(now);
}

/*
 * A program whose main thread left by pthread_exit() ends with its last thread, and libc counts ours:
 * then we are the one to go, and what libc does at the last thread's end is what would have been
 * done. Asked without a descriptor: the number of threads is the directory's link count, and what
 * the kernel keeps for a thread's robust locks is set by libc at its start and gone with its end.
 */
enum { MAIN_LIVES, MAIN_LEFT, WE_ARE_LAST };
static int who_is_left(void)
{
	int pid = wg_sys_pid();
	void *head = NULL;
	size_t length;
	struct stat st;

	if (wg_sys3(SYS_get_robust_list, pid, &head, &length) || head)
		return MAIN_LIVES;
	/* ".", "..", the main thread's rest, and us. */
	if (stat("/proc/self/task", &st) || st.st_nlink != 4)
		return MAIN_LEFT;
	return WE_ARE_LAST;
}

static void *helper(void *arg)
{
	uint64_t next = 0, set = wg_signal_bit();
	struct timespec timeout;
	siginfo_t info;
	int left;
	long rc;

	(void)arg;
	wg_sys5(SYS_prctl, PR_SET_NAME, "waitgraph", 0, 0, 0);
	helper_tid = wg_sys_tid();
	if (wg_rec)
		wg_rec->helper_tid = (uint32_t)helper_tid;
	for (;;) {
		uint64_t now = wg_mono_ns(), wait;
		uint32_t seen = __atomic_load_n(&kicks, __ATOMIC_ACQUIRE);

		if (__atomic_exchange_n(&wanted, 0, __ATOMIC_ACQ_REL))
			wg_dump_request();
		if (now >= next) {
			look_round(now);
			wg_dump_reap();
			now = wg_mono_ns();
			next = now + ROUND_NS;
		}
		left = who_is_left();
		if (left == WE_ARE_LAST)
			break;
		wait = next - now;
		if (left == MAIN_LEFT && wait > END_NS)
			wait = END_NS;
		timeout.tv_sec = (time_t)(wait / 1000000000u);
		timeout.tv_nsec = (long)(wait % 1000000000u);
		if (!set || wg_signal_is_programs()) {
			wg_sys6(SYS_futex, WG_SYS_ARG(&kicks), FUTEX_WAIT | FUTEX_PRIVATE_FLAG,
				(long)seen, WG_SYS_ARG(&timeout), 0, 0);
			continue;
		}
		memset(&info, 0, sizeof(info));
		rc = wg_sys4(SYS_rt_sigtimedwait, &set, &info, &timeout, 8);
		if (rc <= 0 || is_kick(&info))
			continue;
		if (wg_signal_is_request(&info))
			wg_dump_request();
		else
			wg_signal_hand_on(&info);
	}
	helper_tid = 0;
	wg_sys_mask(SIG_SETMASK, 0); /* the program's exit handlers run here now */
	return NULL;
}

int wg_helper_start(void)
{
	typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	pthread_attr_t attr;
	pthread_t thread;
	uint64_t was;
	int rc = ENOSYS;

	if (helper_tid || !wg_libc.pthread_create)
		return 0;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	was = wg_sys_mask(SIG_SETMASK, WG_MASK_ALL);
	rc = ((create_fn)wg_libc.pthread_create)(&thread, &attr, helper, NULL);
	if (rc == EINVAL) /* much thread-local memory: the stack must be larger */
		rc = ((create_fn)wg_libc.pthread_create)(&thread, NULL, helper, NULL);
	wg_sys_mask(SIG_SETMASK, was);
	pthread_attr_destroy(&attr);
	if (rc) {
		wg_note("no helper thread: no headroom samples, and the signal interrupts calls");
		return -rc;
	}
	/* The signal is held from here on: somebody must be there to take it. */
	for (int i = 0; i < 1000 && !helper_tid; i++) {
		struct timespec tick = { 0, 50000 };

		wg_sys2(SYS_nanosleep, &tick, NULL);
	}
	return 0;
}
