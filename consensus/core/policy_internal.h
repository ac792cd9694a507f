// SPDX-License-Identifier: GPL-2.0-or-later
// Private to consensus/core: what the policy files share.
#ifndef PMS_CONSENSUS_CORE_POLICY_INTERNAL_H
#define PMS_CONSENSUS_CORE_POLICY_INTERNAL_H

#include "consensus/core/policy.h"

bool pms_view_alive(const struct pms_policy_view *view, uint64_t node_id);

#endif
