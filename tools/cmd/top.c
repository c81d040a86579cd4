/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.c - a live screen over all recorded processes. The recorder files are read anew for
 * each picture, so what is watched is never disturbed. `why` is asked of a process of its
 * own, so that a question that takes long does not freeze the screen for good.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WG_HAVE_NCURSES
#include <locale.h>
#include <ncurses.h>
#endif

#include "cmd.h"
#include "recorded.h"

extern char **environ;

static const char help[] =
	"usage: waitgraph top [options]\n\n"
	"All recorded processes of this host, redrawn every second.\n"
	"Keys: arrows or j/k select, Enter or w asks why, d dumps, s sorts otherwise, q quits.\n\n"
	"  -i, --interval S  seconds between two pictures (1)\n"
	"  -n, --count N     end after N pictures\n"
	"  -b, --batch       plain text, one table after the other (also when stdout is no terminal)\n"
	"  -d, --dir DIR     from the snapshots and traces in DIR instead\n";

struct top {
	const char *dir;
	double interval;
	long count; /* 0: for ever */
	enum wg_recorded_sort sort;
	struct wg_recorded_list list;
	/* For rates: what was seen last time. */
	struct last { int32_t pid; uint64_t start; int64_t calls; } *last;
	size_t nlast;
	double last_at;
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int look(struct top *t, const char **why)
{
	double now = now_s(), gap = now - t->last_at;
	int rc;

	wg_recorded_free(&t->list);
	rc = wg_recorded_load(&t->list, t->dir, why);
	if (rc)
		return rc;
	for (size_t i = 0; i < t->list.rows.n; i++) {
		struct wg_recorded *r = &t->list.rows.v[i];

		for (size_t k = 0; k < t->nlast; k++)
			if (t->last[k].pid == r->p->pid && t->last[k].start == r->p->start_ticks &&
			    wg_has_int(r->p->calls) && wg_has_int(t->last[k].calls) && gap > 0 &&
			    r->p->calls >= t->last[k].calls)
				r->calls_per_s = (double)(r->p->calls - t->last[k].calls) / gap;
	}
	free(t->last);
	t->last = calloc(t->list.rows.n + 1, sizeof(*t->last));
	t->nlast = t->last ? t->list.rows.n : 0;
	for (size_t i = 0; i < t->nlast; i++) {
		const struct wg_process *p = t->list.rows.v[i].p;

		t->last[i] = (struct last){ p->pid, p->start_ticks, p->calls };
	}
	t->last_at = now;
	wg_recorded_sort(&t->list, t->sort);
	return 0;
}

static const char *row_text(struct top *t, const struct wg_recorded *r, int width)
{
	const char *rate = !r			       ? " CALLS/S" :
			   wg_has_sec(r->calls_per_s) ?
				   wg_fmt(t->list.f->arena, "%8.0f", r->calls_per_s) :
				   "       -";

	return wg_fmt(t->list.f->arena, "%s %s", rate, wg_recorded_line(&t->list, r, width - 9));
}

static int batch(struct top *t)
{
	for (long k = 0; !t->count || k < t->count; k++) {
		const char *why = NULL;
		int rc;

		if (k) {
			struct timespec ts = { (time_t)t->interval,
					       (long)((t->interval - (double)(time_t)t->interval) * 1e9) };

			nanosleep(&ts, NULL);
			putchar('\n');
		}
		rc = look(t, &why);
		if (rc)
			return wg_fail(wg_exit_of_errno(rc), "top", "%s", why ? why : strerror(-rc));
		puts(row_text(t, NULL, 4096));
		for (size_t i = 0; i < t->list.rows.n; i++)
			puts(row_text(t, &t->list.rows.v[i], 4096));
		if (fflush(stdout))
			return errno == EPIPE ? 0 : WG_EXIT_DEFECT;
	}
	return 0;
}

#ifdef WG_HAVE_NCURSES

/* Output of `waitgraph VERB PID` as lines, at most `seconds` long. The caller frees. */
static char *ask(const char *verb, int32_t pid, double seconds)
{
	char number[16], *argv[] = { "waitgraph", (char *)verb, number, NULL }, *out = NULL;
	posix_spawn_file_actions_t fa;
	double end = now_s() + seconds;
	size_t n = 0, cap = 0;
	int fd[2], status;
	pid_t child;

	snprintf(number, sizeof(number), "%d", pid);
	if (pipe2(fd, O_CLOEXEC))
		return NULL;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fd[1], 1);
	posix_spawn_file_actions_adddup2(&fa, fd[1], 2);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	if (posix_spawn(&child, "/proc/self/exe", &fa, NULL, argv, environ))
		child = -1;
	posix_spawn_file_actions_destroy(&fa);
	close(fd[1]);
	while (child > 0 && n < 4u << 20) {
		struct pollfd p = { .fd = fd[0], .events = POLLIN };
		double left = end - now_s();
		ssize_t k;

		if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
			break;
		if (cap - n < 4096) {
			char *more = realloc(out, cap = cap ? cap * 2 : 16384);

			if (!more)
				break;
			out = more;
		}
		k = read(fd[0], out + n, cap - n - 1);
		if (k <= 0)
			break;
		n += (size_t)k;
	}
	close(fd[0]);
	if (child > 0) {
		kill(child, SIGKILL); /* no effect once it has ended */
		waitpid(child, &status, 0);
	}
	if (out)
		out[n] = 0;
	return out;
}

/* Text with a scroll position, until a key leaves it. */
static void show(const char *title, const char *text)
{
	int top = 0, lines = 1, c;

	for (const char *s = text; *s; s++)
		lines += *s == '\n';
	for (;;) {
		const char *s = text;

		erase();
		attron(A_REVERSE);
		mvprintw(0, 0, "%-*.*s", COLS, COLS, title);
		attroff(A_REVERSE);
		for (int i = 0; i < top && s; i++)
			s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL;
		for (int y = 1; s && *s && y < LINES - 1; y++) {
			int n = (int)strcspn(s, "\n");

			mvaddnstr(y, 0, s, n < COLS * 4 ? n : COLS * 4);
			s += n;
			if (*s)
				s++;
		}
		mvprintw(LINES - 1, 0, "arrows scroll, q goes back");
		refresh();
		timeout(-1);
		c = getch();
		if (c == KEY_DOWN || c == 'j')
			top += top + LINES - 2 < lines;
		else if (c == KEY_UP || c == 'k')
			top -= top > 0;
		else if (c == KEY_NPAGE || c == ' ')
			top = top + LINES - 2 < lines ? top + LINES - 3 : top;
		else if (c == KEY_PPAGE)
			top = top > LINES - 3 ? top - (LINES - 3) : 0;
		else if (c != KEY_RESIZE)
			return;
	}
}

static int screen(struct top *t)
{
	const char *why = NULL;
	int32_t selected = 0; /* pid: rows move */
	int rc = 0, first = 0;
	bool done = false;
	long pictures = 0;
	double next = 0;

	setlocale(LC_CTYPE, "");
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	while (!done) {
		int at = 0, c, rows;
		double left;

		if (now_s() >= next) {
			if (t->count && pictures++ >= t->count)
				break;
			rc = look(t, &why);
			if (rc)
				break;
			next = now_s() + t->interval;
		}
		rows = (int)t->list.rows.n;
		for (int i = 0; i < rows; i++)
			if (t->list.rows.v[i].p->pid == selected)
				at = i;
		if (at < first)
			first = at;
		if (at >= first + LINES - 3)
			first = at - (LINES - 4);
		erase();
		mvprintw(0, 0, "waitgraph top on %s: %d recorded, by %s",
			 t->list.f->host ? t->list.f->host : "?", rows,
			 wg_recorded_sort_names[t->sort]);
		attron(A_REVERSE);
		mvprintw(1, 0, "%-*.*s", COLS, COLS, row_text(t, NULL, COLS));
		attroff(A_REVERSE);
		for (int i = first; i < rows && i - first < LINES - 3; i++) {
			const struct wg_recorded *r = &t->list.rows.v[i];
			bool stuck = r->wait && r->wait->since_s > 60;

			if (i == at)
				attron(A_STANDOUT);
			else if (!r->p->alive)
				attron(A_DIM);
			else if (stuck)
				attron(A_BOLD);
			mvaddstr(2 + i - first, 0, row_text(t, r, COLS));
			attrset(A_NORMAL);
		}
		if (!rows)
			mvaddstr(3, 2, "no recorded processes (start one: waitgraph run -- CMD)");
		mvprintw(LINES - 1, 0, "Enter why   d dump   s sort   q quit");
		refresh();
		left = next - now_s();
		timeout(left > 0 ? (int)(left * 1000) + 1 : 1);
		c = getch();
		switch (c) {
		case 'q':
		case 3:
			done = true;
			break;
		case 's':
			t->sort = (t->sort + 1) % WG_SORT_KINDS;
			wg_recorded_sort(&t->list, t->sort);
			break;
		case KEY_DOWN:
		case 'j':
			if (at + 1 < rows)
				selected = t->list.rows.v[at + 1].p->pid;
			break;
		case KEY_UP:
		case 'k':
			if (at > 0)
				selected = t->list.rows.v[at - 1].p->pid;
			break;
		case KEY_ENTER:
		case '\n':
		case 'w':
		case 'd':
			if (at < rows) {
				int32_t pid = t->list.rows.v[at].p->pid;
				const char *verb = c == 'd' ? "dump" : "why";
				char title[64], *text;

				mvprintw(LINES - 1, 0, "asking %s %d ...                    ", verb, pid);
				refresh();
				text = ask(verb, pid, 30);
				snprintf(title, sizeof(title), "waitgraph %s %d", verb, pid);
				show(title, text ? text : "no answer");
				free(text);
				next = 0;
			}
			break;
		default:
			break;
		}
	}
	endwin();
	if (rc)
		return wg_fail(wg_exit_of_errno(rc), "top", "%s", why ? why : strerror(-rc));
	return 0;
}
#endif

/* Without a terminal library: the table over and over on a cleared terminal, Ctrl-C ends. */
static int plain(struct top *t)
{
	for (long k = 0; !t->count || k < t->count; k++) {
		struct timespec ts = { (time_t)t->interval,
				       (long)((t->interval - (double)(time_t)t->interval) * 1e9) };
		struct winsize ws = { .ws_row = 24, .ws_col = 80 };
		const char *why = NULL;
		int rc = look(t, &why);

		if (rc)
			return wg_fail(wg_exit_of_errno(rc), "top", "%s", why ? why : strerror(-rc));
		ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws);
		if (ws.ws_col < 40)
			ws.ws_col = 80;
		fputs("\033[H\033[2J", stdout);
		puts(row_text(t, NULL, ws.ws_col));
		for (size_t i = 0; i < t->list.rows.n && i + 3 < ws.ws_row; i++)
			puts(row_text(t, &t->list.rows.v[i], ws.ws_col));
		if (fflush(stdout))
			return errno == EPIPE ? 0 : WG_EXIT_DEFECT;
		nanosleep(&ts, NULL);
	}
	return 0;
}

int wg_cmd_top(int argc, char **argv)
{
	static const struct option options[] = { { "interval", required_argument, NULL, 'i' },
						 { "count", required_argument, NULL, 'n' },
						 { "batch", no_argument, NULL, 'b' },
						 { "dir", required_argument, NULL, 'd' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct top t = { .interval = 1, .sort = WG_SORT_WAIT };
	bool in_batch = false;
	char *end;
	int c, rc;

	optind = 0;
	while ((c = getopt_long(argc, argv, "i:n:bd:h", options, NULL)) != -1) {
		switch (c) {
		case 'i':
			t.interval = strtod(optarg, &end);
			if (end == optarg || *end || !(t.interval >= 0.1 && t.interval <= 3600))
				return wg_fail(WG_EXIT_USAGE, "top",
					       "interval: 0.1 to 3600 seconds, not '%s'", optarg);
			break;
		case 'n':
			t.count = strtol(optarg, &end, 10);
			if (end == optarg || *end || t.count < 1)
				return wg_fail(WG_EXIT_USAGE, "top", "not a count: '%s'", optarg);
			break;
		case 'b':
			in_batch = true;
			break;
		case 'd':
			t.dir = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return WG_EXIT_OK;
		default:
			return WG_EXIT_USAGE;
		}
	}
	if (optind < argc)
		return wg_fail(WG_EXIT_USAGE, "top", "takes no arguments: '%s'", argv[optind]);
	if (in_batch || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		if (!in_batch && !t.count)
			t.count = 1;
		rc = batch(&t);
	} else {
#ifdef WG_HAVE_NCURSES
		const char *term = getenv("TERM");
		SCREEN *s = term && *term ? newterm(NULL, stdout, stdin) : NULL;

		if (s) {
			set_term(s);
			rc = screen(&t);
			delscreen(s);
		} else {
			rc = plain(&t);
		}
#else
		rc = plain(&t);
#endif
	}
	wg_recorded_free(&t.list);
	free(t.last);
	return rc;
}
