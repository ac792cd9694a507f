// SPDX-License-Identifier: GPL-2.0-or-later
// test_state_upgrade.c once more, linked with the objects of the next version (see the Makefile).
#include "tests/unit/test_state_upgrade.c"
