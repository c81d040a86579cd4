/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - a library whose constructor calls the program that opens it (see ../loader.c). */
extern void plugin_registers(void);

__attribute__((constructor)) static void registers(void)
{
	plugin_registers();
}
