/* SPDX-License-Identifier: Apache-2.0 */
/* Can this machine's libiberty.a go into a shared object? */
char *cplus_demangle(const char *mangled, int options);
int probe(void);
int probe(void)
{
	return cplus_demangle("_Z1fv", 1 << 14) != 0;
}
