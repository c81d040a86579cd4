/* SPDX-License-Identifier: Apache-2.0 */
#include "pyread.h"

void wg_python_locks(struct wg_py *py)
{
	(void)py;
}
