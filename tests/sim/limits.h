// SPDX-License-Identifier: GPL-2.0-or-later
// Sizes of the simulated cluster.
#ifndef PMS_TESTS_SIM_LIMITS_H
#define PMS_TESTS_SIM_LIMITS_H

enum {
    SIM_NODES = 4, // voters: data nodes and a witness
    SIM_SLOTS = 3,
    SIM_CLIENTS = 3,
    SIM_LINEAGE = 128,
    SIM_SECTORS = 512, // of the array, at most
};

#endif
