/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: host-lock (LOADER_LOCK)
 * story: opening a plugin never returns
 * proof: the plugin's constructor calls plugin_registers() below while the loader holds its lock; the other thread
 *        holds what that function asks for, and does what its case says
 * case: ctor_cycle class=deadlock hung=true
 * case: ctor_owner_computing class=busy-cpu hung=false culprit=tid
 * case: phdr_cycle class=deadlock hung=true
 * case: ctor_reads class=peer-silent hung=true culprit=pid
 * case: ctor_behind class=lock-self hung=true culprit=tid
 * case: opened class=idle|progressing hung=false
 */
#include <dlfcn.h>
#include <libgen.h>
#include <link.h>
#include <stdbool.h>

#include "scenario.h"

__attribute__((visibility("default"))) void plugin_registers(void);

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static char path[512];
static const char *kase;
static int fds[2];

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

void plugin_registers(void)
{
	char c;

	if (in("ctor_reads") && read(fds[0], &c, 1) < 0)
		_exit(4);
	if (in("ctor_behind")) {
		tell("culprit_tid %d", tid_now());
		pthread_mutex_lock(&registry);
	}
	pthread_mutex_lock(&registry);
	pthread_mutex_unlock(&registry);
}

static int each_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)info;
	(void)size;
	(void)arg;
	usleep(300000);
	pthread_mutex_lock(&registry);
	pthread_mutex_unlock(&registry);
	return 1;
}

static void *other(void *arg)
{
	(void)arg;
	if (in("phdr_cycle")) {
		dl_iterate_phdr(each_object, NULL);
		return NULL;
	}
	if (in("ctor_behind") || in("ctor_reads")) {
		usleep(300000);
		dlopen("libutil.so.1", RTLD_NOW);
		return NULL;
	}
	pthread_mutex_lock(&registry);
	tell("culprit_tid %d", tid_now());
	if (in("ctor_owner_computing"))
		burn();
	usleep(300000);
	dlopen("libresolv.so.2", RTLD_NOW); /* wants the lock under which the constructor runs */
	return NULL;
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 16);

	if (argc < 2 || n < 0)
		return 2;
	kase = argv[1];
	path[n] = 0;
	strcpy(path + strlen(dirname(path)), "/plugin.so");
	if (in("opened")) {
		if (!dlopen(path, RTLD_NOW))
			return 3;
		ready();
		for (;;)
			sleep(1000);
	}
	if (in("ctor_reads")) {
		pid_t child;

		if (pipe(fds))
			return 3;
		child = fork();
		if (child == 0) {
			close(fds[0]);
			forever();
		}
		close(fds[1]);
		tell("culprit_pid %d", (int)child);
	}
	if (in("phdr_cycle")) {
		pthread_mutex_lock(&registry);
		spawn(other, NULL);
		usleep(600000);
		ready();
		dlopen(path, RTLD_NOW);
		return 0;
	}
	if (in("ctor_behind") || in("ctor_reads")) { /* main waits behind the thread that opens the plugin */
		spawn(other, NULL);
		ready();
		dlopen(path, RTLD_NOW);
		return 0;
	}
	spawn(other, NULL);
	usleep(100000);
	ready();
	dlopen(path, RTLD_NOW);
	return 0;
}
