/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h - how dump and why get their facts, and what they do with the verdict. */
#ifndef WG_ASK_H
#define WG_ASK_H

#include <stdio.h>

#include "../collect/collect.h"
#include "../graph/graph.h"
#include "cmd.h"

struct wg_ask {
	const char *verb;
	bool json, dot, svg, all, no_color;
	const char *output; /* NULL: stdout */
	bool force;	    /* overwrite output */
	struct wg_collect_options collect;
	double signal_wait_s; /* how long to wait for an answer by signal; 0: do not ask that way */
};

/*
 * Facts of live processes. Where the kernel forbids this user to read them and they carry the
 * recorder, they are asked through their signal and their own snapshots are taken instead.
 * 0 or -errno (the message has been printed).
 */
int wg_ask_live(struct wg_facts *f, const struct wg_ask *q);
/* Render as asked; returns the exit code for the verdict, or of the failure. */
int wg_answer(const struct wg_graph *g, const struct wg_ask *q, bool full);
int wg_exit_of_verdict(const struct wg_graph *g);

/* The options that dump and why share; returns 0 when c was one of them. */
#define WG_ASK_OPTIONS                                                                          \
	{ "json", no_argument, NULL, 'j' }, { "output", required_argument, NULL, 'o' },         \
	{ "force", no_argument, NULL, 'f' }, { "dot", no_argument, NULL, 'D' },                 \
	{ "svg", no_argument, NULL, 'V' }, { "all", no_argument, NULL, 'a' },                   \
	{ "ptrace", no_argument, NULL, 'P' }, { "no-bpf", no_argument, NULL, 'B' },             \
	{ "no-follow", no_argument, NULL, 'F' }, { "no-stacks", no_argument, NULL, 'K' },       \
	{ "gap", required_argument, NULL, 'g' }, { "deadline", required_argument, NULL, 'L' },  \
	{ "no-color", no_argument, NULL, 'C' }, { "help", no_argument, NULL, 'h' }
void wg_ask_init(struct wg_ask *q, const char *verb);
int wg_ask_option(struct wg_ask *q, int c, const char *arg); /* 0, -EINVAL (printed), -ENOENT not ours */
extern const char wg_ask_help[];

#endif
