// SPDX-License-Identifier: GPL-2.0-or-later
// The version that the programs tell.
#ifndef PMS_CMD_VERSION_H
#define PMS_CMD_VERSION_H

#define PMS_VERSION "0.2"

#endif
