/* SPDX-License-Identifier: Apache-2.0 */
/* tests.h - main() of a test program: runs the test that its argument names. */
#ifndef SIMGPU_TESTS_H
#define SIMGPU_TESTS_H

#include "check.h"

struct test {
	const char *name;
	void (*run)(void);
};

#define MAIN(...)                                                                                  \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		static const struct test tests[] = {__VA_ARGS__};                                  \
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {                    \
			if (argc == 2 && !strcmp(argv[1], tests[i].name)) {                        \
				tests[i].run();                                                    \
				return 0;                                                          \
			}                                                                          \
		}                                                                                  \
		fprintf(stderr, "no such test: %s\n", argc > 1 ? argv[1] : "(none named)");        \
		return 2;                                                                          \
	}

#endif
