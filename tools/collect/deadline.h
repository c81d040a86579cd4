/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline.h - a thread kept for many short jobs that may never come back.
 *
 * wg_with_deadline() makes a thread a call; this one keeps it, and hands over by spinning
 * for some microseconds before it sleeps, for what happens hundreds of times a dump.
 */
#ifndef WG_DEADLINE_H
#define WG_DEADLINE_H

struct wg_patient;

/*
 * Run fn(arg) on *p's thread (made when *p is NULL) for at most `seconds`. 0 done;
 * -ETIMEDOUT: the thread was left behind with arg, which must never be touched or freed
 * again, and *p is NULL; -EAGAIN, -ENOMEM: no thread. One caller at a time.
 */
int wg_patient_do(struct wg_patient **p, double seconds, void (*fn)(void *), void *arg);
void wg_patient_end(struct wg_patient **p);

#endif
