// SPDX-License-Identifier: Apache-2.0
/*
 * settings.c - the environment, read once at load.
 *
 * A bad value never fails a start: it is remembered, its default is used, and it is named on stderr
 * when CUDA comes up (a program that never uses CUDA says nothing).
 */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "lifecycle.h"
#include "sys.h"
#include "text.h"

struct wg_settings wg_settings;
char wg_tool_env[WG_TOOL_ENV][512];

static struct {
	const char *name;
	char value[48];
	const char *instead;
} bad[8];
static unsigned int nbad;

static void complain(const char *name, const char *value, const char *instead)
{
	struct wg_text t;

	if (nbad >= sizeof(bad) / sizeof(bad[0]))
		return;
	t = wg_text(bad[nbad].value, sizeof(bad[nbad].value));
	wg_puts(&t, value);
	bad[nbad].name = name;
	bad[nbad].instead = instead;
	nbad++;
}

void wg_settings_report(void)
{
	char line[256];
	struct wg_text t;

	for (unsigned int i = 0; i < nbad; i++) {
		t = wg_text(line, sizeof(line));
		wg_puts(&t, "waitgraph: ");
		wg_puts(&t, bad[i].name);
		wg_puts(&t, "='");
		wg_puts(&t, bad[i].value);
		wg_puts(&t, "' is not understood; using ");
		wg_puts(&t, bad[i].instead);
		wg_puts(&t, "\n");
		wg_say(2, line, t.n);
	}
	nbad = 0;
}

/* Decimal digits only; false: none, others, or too large. */
static bool number(const char *s, uint64_t *v, const char **end)
{
	uint64_t n = 0;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (n > (UINT64_MAX - 9) / 10)
			return false;
		n = n * 10 + (uint64_t)(*s - '0');
	}
	*v = n;
	*end = s;
	return true;
}

static const struct {
	const char *name;
	int signal;
} signal_names[] = {
	{ "HUP", SIGHUP },     { "INT", SIGINT },   { "QUIT", SIGQUIT },     { "USR1", SIGUSR1 },
	{ "USR2", SIGUSR2 },   { "PIPE", SIGPIPE }, { "ALRM", SIGALRM },     { "TERM", SIGTERM },
	{ "CHLD", SIGCHLD },   { "CONT", SIGCONT }, { "URG", SIGURG },	     { "XCPU", SIGXCPU },
	{ "XFSZ", SIGXFSZ },   { "PROF", SIGPROF }, { "VTALRM", SIGVTALRM }, { "WINCH", SIGWINCH },
	{ "IO", SIGIO },       { "POLL", SIGPOLL }, { "PWR", SIGPWR },
};

/* Those that cannot be caught, that mean a fault of the program, or that libc uses itself. */
static bool usable(uint64_t s)
{
	switch (s) {
	case SIGKILL: case SIGSTOP: case SIGILL: case SIGTRAP: case SIGABRT: case SIGBUS:
	case SIGFPE: case SIGSEGV: case SIGSYS: case SIGSTKFLT: case SIGTSTP: case SIGTTIN:
	case SIGTTOU: case 32: case 33:
		return false;
	default:
		return s >= 1 && s <= 64;
	}
}

static bool signal_number(const char *s, int *out)
{
	const char *end, *name = s;
	uint64_t v;

	if (number(s, &v, &end)) {
		*out = (int)v;
		return !*end && (!v || usable(v)); /* 0: no signal */
	}
	if (!strncmp(name, "SIG", 3))
		name += 3;
	if (!strcmp(name, "NONE") || !strcmp(name, "none") || !strcmp(name, "off")) {
		*out = 0;
		return true;
	}
	for (unsigned int i = 0; i < sizeof(signal_names) / sizeof(signal_names[0]); i++)
		if (!strcmp(name, signal_names[i].name)) {
			*out = signal_names[i].signal;
			return true;
		}
	if (!strncmp(name, "RTMIN", 5) || !strncmp(name, "RTMAX", 5)) {
		bool max = name[3] == 'A';

		v = 0;
		if (name[5] && (name[5] != (max ? '-' : '+') || !number(name + 6, &v, &end) || *end))
			return false;
		if (v > 29)
			return false;
		*out = max ? 64 - (int)v : 34 + (int)v;
		return usable((uint64_t)*out);
	}
	return false;
}

static bool bytes(const char *s, uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *end, *unit;
	uint64_t v;
	int shift = 0;

	if (!number(s, &v, &end))
		return false;
	if (*end) {
		char c = *end >= 'a' && *end <= 'z' ? (char)(*end - 32) : *end;

		unit = strchr(units, c);
		if (!unit)
			return false;
		shift = 10 * (int)(unit - units + 1);
		end++;
		if (*end == 'i')
			end++;
		if (*end == 'B' || *end == 'b')
			end++;
	}
	if (*end || v > UINT64_MAX >> shift)
		return false;
	*out = v << shift;
	return true;
}

static void path(char *to, size_t size, const char *value, const char *name, const char *instead)
{
	struct wg_text t = wg_text(to, size);
	size_t n = strlen(value);

	if (*value != '/' && strchr(value, '/')) { /* the program may change its directory */
		char cwd[PATH_MAX];

		if (wg_sys2(SYS_getcwd, cwd, sizeof(cwd)) > 0 && cwd[0] == '/') {
			wg_puts(&t, cwd);
			wg_puts(&t, "/");
		}
	}
	if (t.n + n + 1 > size) {
		*to = 0;
		complain(name, value, instead);
		return;
	}
	wg_puts(&t, value);
}

static void default_dir(const char *state, const char *home)
{
	struct wg_text t = wg_text(wg_settings.dir, sizeof(wg_settings.dir));

	if (state && *state == '/' && strlen(state) < sizeof(wg_settings.dir) - 16) {
		wg_puts(&t, state);
		wg_puts(&t, "/waitgraph");
	} else if (home && *home == '/' && strlen(home) < sizeof(wg_settings.dir) - 32) {
		wg_puts(&t, home);
		wg_puts(&t, "/.local/state/waitgraph");
	}
}

static void keep(const char *entry)
{
	static const char *const wanted[] = {
		"PATH=", "HOME=", "XDG_STATE_HOME=", "XDG_RUNTIME_DIR=", "LD_LIBRARY_PATH=", "LANG=",
		"LC_ALL=", "TERM=", "NO_COLOR=", "TMPDIR=", "USER=", "TZ=", "CUDA_VISIBLE_DEVICES=",
		"WAITGRAPH_SOCKET=",
	};
	static unsigned int n;

	/* Two more are put behind: WAITGRAPH_DIR and the end. */
	for (unsigned int i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && n + 2 < WG_TOOL_ENV; i++)
		if (!strncmp(entry, wanted[i], strlen(wanted[i])) &&
		    strlen(entry) < sizeof(wg_tool_env[0])) {
			strcpy(wg_tool_env[n++], entry);
			return;
		}
}

void wg_settings_read(char **envp)
{
	const char *state = NULL, *home = NULL, *dir = NULL;
	const char *end;
	struct wg_text t;
	uint64_t v;

	wg_settings = (struct wg_settings){
		.signal = SIGURG,
		.stacks = WG_STACKS_ALLOC,
		.trace_max = 1ull << 30,
	};
	for (; envp && *envp; envp++) {
		const char *e = *envp, *value = strchr(e, '=');

		if (!value)
			continue;
		value++;
		if (strncmp(e, "WAITGRAPH_", 10)) {
			if (!strncmp(e, "HOME=", 5))
				home = value;
			else if (!strncmp(e, "XDG_STATE_HOME=", 15))
				state = value;
			else if (!strncmp(e, "LD_PRELOAD=", 11) && strstr(value, "/vgpreload_"))
				wg_settings.emulated = true;
			keep(e);
			continue;
		}
		e += 10;
		if (!strncmp(e, "DISABLE=", 8)) {
			wg_settings.disabled = *value && strcmp(value, "0");
		} else if (!strncmp(e, "DIR=", 4)) {
			dir = value;
		} else if (!strncmp(e, "SIGNAL=", 7)) {
			if (*value && !signal_number(value, &wg_settings.signal)) {
				wg_settings.signal = SIGURG;
				complain("WAITGRAPH_SIGNAL", value, "URG");
			}
		} else if (!strncmp(e, "STALL_S=", 8)) {
			if (*value && (!number(value, &v, &end) || *end || v > 10000000))
				complain("WAITGRAPH_STALL_S", value, "0 (off)");
			else if (*value)
				wg_settings.stall_s = (unsigned int)v;
		} else if (!strncmp(e, "STACKS=", 7)) {
			if (!strcmp(value, "off"))
				wg_settings.stacks = WG_STACKS_OFF;
			else if (!strcmp(value, "all"))
				wg_settings.stacks = WG_STACKS_ALL;
			else if (*value && strcmp(value, "alloc"))
				complain("WAITGRAPH_STACKS", value, "alloc");
		} else if (!strncmp(e, "TRACE_MAX=", 10)) {
			if (*value && !bytes(value, &wg_settings.trace_max))
				complain("WAITGRAPH_TRACE_MAX", value, "1G");
		} else if (!strncmp(e, "TOOL=", 5)) {
			path(wg_settings.tool, sizeof(wg_settings.tool), value, "WAITGRAPH_TOOL",
			     "the one beside the library");
		} else {
			keep(*envp);
		}
	}
	default_dir(state, home);
	if (dir && *dir) {
		char was[sizeof(wg_settings.dir)];

		memcpy(was, wg_settings.dir, sizeof(was));
		if (*dir != '/' && !strchr(dir, '/')) { /* a plain name is a directory, too */
			char relative[sizeof(was)];

			t = wg_text(relative, sizeof(relative));
			wg_puts(&t, "./");
			wg_puts(&t, dir);
			path(wg_settings.dir, sizeof(wg_settings.dir), relative, "WAITGRAPH_DIR",
			     "the default");
		} else {
			path(wg_settings.dir, sizeof(wg_settings.dir), dir, "WAITGRAPH_DIR",
			     "the default");
		}
		if (!wg_settings.dir[0])
			memcpy(wg_settings.dir, was, sizeof(was));
	}
	for (unsigned int i = 0; i < WG_TOOL_ENV - 1 && wg_settings.dir[0]; i++)
		if (!wg_tool_env[i][0]) {
			t = wg_text(wg_tool_env[i], sizeof(wg_tool_env[i]));
			wg_puts(&t, "WAITGRAPH_DIR=");
			wg_puts(&t, wg_settings.dir);
			break;
		}
}
