// SPDX-License-Identifier: GPL-2.0-or-later
// Every error of pms: functions return 0, a negative errno (-1..-4095), or one of the codes listed here.
#ifndef PMS_BASE_ERR_H
#define PMS_BASE_ERR_H

// X(name, code, text). Codes never change their meaning: they travel in the control protocol.
#define PMS_ERRORS(X)                                                                                        \
    X(PMS_ENOQUORUM, -5001, "no quorum: too few nodes reach each other")                                     \
    X(PMS_ENOTLEADER, -5002, "this node is not the leader")                                                  \
    X(PMS_EUNKNOWN, -5003, "outcome unknown")                                                                \
    X(PMS_EEXISTS, -5004, "already exists")                                                                  \
    X(PMS_ENOTFOUND, -5005, "not found")                                                                     \
    X(PMS_EREFUSED, -5006, "refused")                                                                        \
    X(PMS_EUSAGE, -5007, "wrong usage")                                                                      \
    X(PMS_EPROTO, -5008, "garbled or unexpected message")                                                    \
    X(PMS_EAUTH, -5009, "authentication failed")                                                             \
    X(PMS_EIDENTITY, -5010, "belongs to another cluster, array or slot")                                     \
    X(PMS_ESTALE, -5011, "epoch is older than the one already promised")                                     \
    X(PMS_ECORRUPT, -5012, "stored data is damaged")                                                         \
    X(PMS_EVERSION, -5013, "version not supported")                                                          \
    X(PMS_EFULL, -5014, "full")                                                                              \
    X(PMS_EBUSY, -5015, "busy")                                                                              \
    X(PMS_ESHUTDOWN, -5016, "shutting down")                                                                 \
    X(PMS_ESUPERSEDED, -5017, "the cluster was recovered without this node")

#define PMS_ERR_ENUM(name, code, text) name = (code),
enum pms_err { PMS_ERRORS(PMS_ERR_ENUM) };
#undef PMS_ERR_ENUM

// The code's symbol, "PMS_EBUSY" or "EIO"; "OK" for 0, "E?" for a code nobody defined. Static storage.
const char *pms_err_name(int err);

// The code as a phrase for a person. Static storage (thread-safe).
const char *pms_err_text(int err);

// The code whose symbol is name (as pms_err_name gives it for the codes of PMS_ERRORS), or PMS_EUNKNOWN.
int pms_err_from_name(const char *name);

#endif
