/* scenario
 * section: host-lock (HOST_LOCK_CYCLE)
 * story: a team of OpenMP threads stands still, or one of them is late
 * proof: which thread takes which lock, and which one never comes, stands below; libgomp's locks name no owner
 * case: lock_self class=lock-self|no-waker|deadlock hung=true
 * case: lock_cycle class=deadlock|no-waker hung=true settle=3
 * case: owner_computes class=busy-cpu hung=false culprit=tid
 * case: barrier_member_reads class=peer-silent hung=true culprit=pid
 * case: barrier_member_late class=busy-cpu hung=false culprit=tid
 * case: polling_member_late class=busy-cpu hung=false culprit=tid env=OMP_WAIT_POLICY=active
 */
#include <omp.h>
#include <stdbool.h>

#include "scenario.h"

static const char *kase;
static omp_lock_t a, b;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void late(void)
{
	tell("culprit_tid %d", tid_now());
	burn();
}

int main(int argc, char **argv)
{
	int fds[2];
	char c;

	if (argc < 2 || pipe(fds))
		return 2;
	kase = argv[1];
	omp_set_num_threads(3);
	omp_init_lock(&a);
	omp_init_lock(&b);
	if (in("lock_self")) {
		omp_set_lock(&a);
		ready();
		omp_set_lock(&a);
	}
	if (in("barrier_member_reads")) {
		pid_t child = fork();

		if (child == 0) {
			close(fds[0]);
			forever();
		}
		close(fds[1]);
		tell("culprit_pid %d", (int)child);
	}
	ready();
#pragma omp parallel
	{
		int me = omp_get_thread_num();

		if (in("lock_cycle") && me) {
			omp_set_lock(me == 1 ? &a : &b);
			usleep(300000);
			omp_set_lock(me == 1 ? &b : &a);
		}
		if (in("owner_computes") && me == 1) {
			omp_set_lock(&a);
			late();
		}
		if (in("owner_computes")) {
			usleep(300000);
			omp_set_lock(&a);
		}
		if (in("barrier_member_reads") && me == 2 && read(fds[0], &c, 1) < 0)
			_exit(4);
		if (me == 1 && (in("barrier_member_late") || in("polling_member_late")))
			late();
#pragma omp barrier
	}
	return 0;
}
