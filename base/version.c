// SPDX-License-Identifier: GPL-2.0-or-later
// The versions of this build. PMS_VERSION_BUMP makes the builds that tests of upgrades need: 1 is the next
// version of everything, which still speaks this one; 2 the one after it had stopped to.
#include "base/version.h"
#include "base/check.h"

#include <stdio.h>

#ifndef PMS_VERSION_BUMP
#define PMS_VERSION_BUMP 0
#endif

#define RANGE                                                                                                \
    {                                                                                                        \
        PMS_VERSION_BUMP == 2 ? 2 : 1, PMS_VERSION_BUMP > 0 ? 2 : 1                                          \
    }

const struct pms_versions pms_node_versions = RANGE;
const struct pms_versions pms_ring_versions = RANGE;
const struct pms_versions pms_brick_versions = RANGE;
const unsigned pms_feature_level_max = PMS_VERSION_BUMP > 0 ? 2 : 1;

// Since which feature level a superblock version is written, rising.
static const struct {
    unsigned version, level;
} brick_since[] = {
    {1, 1},
#if PMS_VERSION_BUMP > 0
    {2, 2},
#endif
};

bool pms_versions_valid(struct pms_versions v)
{
    return v.min >= 1 && v.min <= v.max;
}

bool pms_versions_has(struct pms_versions v, unsigned version)
{
    return version >= v.min && version <= v.max;
}

unsigned pms_versions_common(struct pms_versions a, struct pms_versions b)
{
    unsigned max = a.max < b.max ? a.max : b.max;

    PMS_CHECK(pms_versions_valid(a) && pms_versions_valid(b));
    return max >= a.min && max >= b.min ? max : 0;
}

unsigned pms_brick_version_at(unsigned level)
{
    unsigned version = brick_since[0].version;

    PMS_CHECK(level >= 1);
    for (unsigned i = 0; i < sizeof(brick_since) / sizeof(brick_since[0]); i++)
        if (brick_since[i].level <= level)
            version = brick_since[i].version;
    return version;
}

const char *pms_versions_format(struct pms_versions v, char text[PMS_VERSIONS_TEXT_SIZE])
{
    if (v.min == v.max)
        snprintf(text, PMS_VERSIONS_TEXT_SIZE, "%u", v.max);
    else
        snprintf(text, PMS_VERSIONS_TEXT_SIZE, "%u to %u", v.min, v.max);
    return text;
}
