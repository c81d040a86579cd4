// SPDX-License-Identifier: Apache-2.0
/*
 * lifecycle.c - load, the start with CUDA, fork, and the end.
 *
 * At load next to nothing happens: the environment is read, libc's functions behind ours are found,
 * the signal's handler is set. Everything else waits for a successful cuInit(): then the file, the
 * trace and the helper thread come to be. A child made by fork() is at load's state again.
 */
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "doors.h"
#include "inflight.h"
#include "lifecycle.h"
#include "memory.h"
#include "nccl.h"
#include "streams.h"
#include "sys.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static volatile uint32_t closed_gate;
volatile uint32_t *wg_gate = &closed_gate;
volatile uint32_t wg_bypassed;

enum { NOT_STARTED, STARTING, STARTED };
static uint32_t state;
static int started_pid;

/* Zero in every child, also in one that was made without telling us. */
static volatile uint32_t *gate_page(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, 4096, MADV_WIPEONFORK))
		wg_note("kernel before 4.14: a child made by clone() could write to this record");
	return p;
}

static void forget_parent(void)
{
	state = NOT_STARTED;
	if (wg_gate != &closed_gate)
		*wg_gate = 0;
	memset(&wg_self, 0, sizeof(wg_self));
	wg_recorder_fork_child();
	wg_helper_fork_child();
	wg_dump_fork_child();
	wg_mem_fork_child();
	wg_streams_fork_child();
	wg_nccl_fork_child();
}

static void fork_child(void)
{
	if (wg_settings.disabled)
		return;
	if (started_pid) /* most forks are of programs without CUDA: not a page is touched for them */
		forget_parent();
	else
		wg_dump_fork_child();
	wg_signal_fork_child();
}

bool wg_started(void)
{
	return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTED && started_pid == wg_sys_pid();
}

void wg_start(const struct wg_clock_sample *before)
{
	uint32_t want = NOT_STARTED;
	bool forked;
	int rc;

	if (wg_settings.disabled)
		return;
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTED && started_pid != wg_sys_pid())
		forget_parent(); /* a child by clone(): no fork handler ran */
	if (!__atomic_compare_exchange_n(&state, &want, STARTING, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return;
	forked = started_pid != 0;
	started_pid = wg_sys_pid();
	wg_settings_report();
	wg_pin_driver();
	wg_thread_key();
	if (!forked)
		at_quick_exit(wg_ended); /* that way no destructor is run */
	if (wg_gate == &closed_gate) {
		volatile uint32_t *gate = gate_page();

		if (!gate)
			return; /* stays in STARTING: this process is not recorded */
		__atomic_store_n(&wg_gate, gate, __ATOMIC_RELEASE);
	}
	rc = wg_recorder_create();
	if (rc) {
		static const char text[] = "waitgraph: no shared memory for the recorder: this "
					   "process' calls will not be seen\n";

		wg_say(2, text, sizeof(text) - 1);
	}
	wg_clock_start(before);
	wg_recorder_flag(WGREC_F_CUDA_UP | (forked ? WGREC_F_FORKED : 0) |
			 (wg_bypassed ? WGREC_F_DEEPBIND : 0), 0);
	wg_mem_start();
	wg_streams_start();
	__atomic_store_n(wg_gate, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&state, STARTED, __ATOMIC_RELEASE);
	wg_dump_reap(); /* one that the handler started before */
	wg_helper_start();
	wg_signal_hold();
}

/* exit(), _exit(), quick_exit() have begun. May be called several times, and by vfork children. */
void wg_exiting(void)
{
	if (wg_started())
		wg_recorder_flag(WGREC_F_EXITING, 0);
}

/* The very last: after the program's own destructors. Does not lock, join, or ask the GPU. */
void wg_ended(void)
{
	static uint32_t done;

	if (!wg_started() || __atomic_exchange_n(&done, 1, __ATOMIC_ACQ_REL))
		return;
	wg_recorder_flag(WGREC_F_EXITING, 0);
	wg_mem_exit();
	wg_recorder_remove();
}

__attribute__((destructor)) static void unloaded(void)
{
	wg_dump_reap(); /* one from before CUDA, if it is over */
	wg_ended();
}

__attribute__((constructor)) static void loaded(int argc, char **argv, char **envp)
{
	(void)argc;
	(void)argv;
	wg_doors_init();
	if (getauxval(AT_SECURE)) {
		wg_settings.disabled = true; /* somebody else's privileges: keep out */
		return;
	}
	wg_settings_read(envp ? envp : environ);
	if (wg_settings.disabled)
		return;
	pthread_atfork(NULL, NULL, fork_child);
	wg_signal_install();
}
