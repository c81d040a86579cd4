/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifecycle.h - what the recorder's own core files tell each other: clock, settings, file, life
 * cycle, signal, helper thread, dump.
 */
#ifndef WG_LIFECYCLE_H
#define WG_LIFECYCLE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "hooks.h"

/* clock.c */
struct wg_clock_sample {
	uint64_t ticks, mono_ns, real_ns;
};
void wg_clock_sample(struct wg_clock_sample *s);
uint64_t wg_mono_ns(void);
void wg_clock_start(const struct wg_clock_sample *before); /* fills in header.clock */
void wg_clock_improve(void);

/* settings.c */
void wg_settings_read(char **envp);  /* at load: no messages, no files */
void wg_settings_report(void);	     /* bad values, once, to stderr */
extern char wg_tool_env[][512];	     /* what the tool gets of the environment; "" ends it */
#define WG_TOOL_ENV 24

/* recorder.c */
int wg_recorder_create(void); /* 0 or -errno; then there is no file */
void wg_recorder_remove(void);
void wg_recorder_flag(uint32_t set, uint32_t clear);
void wg_recorder_fork_child(void);
void wg_thread_key(void);     /* makes threads tell when they end */
void wg_thread_gc(void);      /* slots of threads that no longer exist */
void wg_thread_release(void); /* this thread's slot */
uint64_t wg_calls_done(void); /* completed by all threads so far */

/* lifecycle.c */
void wg_start(const struct wg_clock_sample *before); /* cuInit succeeded */
bool wg_started(void);				     /* in this very process */
void wg_exiting(void);
void wg_ended(void); /* the very last */

/* signal.c */
void wg_signal_install(void); /* at load */
void wg_signal_hold(void);    /* this thread is not to be interrupted by our signal */
void wg_signal_look(void);    /* has the program set a handler past libc? */
void wg_signal_fork_child(void);
unsigned int wg_signal_unhold(void); /* before this thread starts a program ... */
void wg_signal_rehold(unsigned int undo); /* ... and when it goes on */
uint64_t wg_signal_bit(void); /* our signal in a kernel mask, 0 none */
bool wg_signal_is_request(const siginfo_t *info);
void wg_signal_hand_on(const siginfo_t *info); /* one that is the program's, from our thread */
bool wg_signal_is_programs(void); /* it has a handler of its own: our thread keeps away from it */

/* watchdog.c: the helper thread */
int wg_helper_start(void);
bool wg_helper_running(void);
void wg_helper_kick(bool request); /* signal-safe */
void wg_helper_fork_child(void);

/* dump.c */
void wg_dump_request(void); /* starts the tool, or lets it run once more. Signal-safe */
void wg_dump_reap(void);
void wg_dump_fork_child(void);

/* scout.c: our threads' blocked system calls into the record. Waits for at most some 100 ms. */
void wg_scout(void);
void wg_scout_fork_child(void);

/* plain.c: what can be said without the tool. Signal-safe; writes to fd, and a file beside. */
void wg_plain_report(int fd);
void wg_say(int fd, const char *s, size_t n); /* with a deadline, and never SIGPIPE */

extern volatile uint32_t wg_bypassed; /* RTLD_DEEPBIND or dlmopen was used */

#endif
