/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - the verbs, and what they share. A verb gets argc/argv with argv[0] the
 * verb's name and returns the exit code of the contract.
 */
#ifndef WG_CMD_H
#define WG_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../facts.h"

enum {
	WG_EXIT_OK = 0,
	WG_EXIT_HUNG = 10,	   /* cause found */
	WG_EXIT_HUNG_UNKNOWN = 11, /* hung, cause unknown */
	WG_EXIT_UNDECIDED = 12,
	WG_EXIT_USAGE = 64,
	WG_EXIT_DATA = 65,  /* corrupt or foreign input */
	WG_EXIT_NOINPUT = 66, /* no such process or file */
	WG_EXIT_DEFECT = 70,
	WG_EXIT_PERM = 77,
};

int wg_cmd_run(int argc, char **argv);
int wg_cmd_ps(int argc, char **argv);
int wg_cmd_dump(int argc, char **argv);
int wg_cmd_why(int argc, char **argv);
int wg_cmd_mem(int argc, char **argv);
int wg_cmd_diff(int argc, char **argv);
int wg_cmd_report(int argc, char **argv);
int wg_cmd_export(int argc, char **argv);
int wg_cmd_top(int argc, char **argv);
int wg_cmd_demo(int argc, char **argv);

/* Message to stderr, prefixed "waitgraph VERB: "; returns code for `return wg_fail(...)`. */
int wg_fail(int code, const char *verb, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int wg_exit_of_errno(int err); /* -ESRCH, -ENOENT -> 66; -EPERM, -EACCES -> 77; ... */

/* WAITGRAPH_DIR, else $XDG_STATE_HOME/waitgraph, else ~/.local/state/waitgraph. */
const char *wg_state_dir(struct wg_arena *a);
/* Directory of the running waitgraph binary (/proc/self/exe). */
const char *wg_own_dir(struct wg_arena *a);
/* Columns of the terminal that f is; 0: it is none, or does not tell. */
int wg_terminal_columns(FILE *f);
/* A decimal PID of the whole string, > 0; 0 when it is not one. */
int32_t wg_parse_pid(const char *s);

#endif
