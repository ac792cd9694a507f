// SPDX-License-Identifier: GPL-2.0-or-later
// Names and texts of all error codes.
#include "base/err.h"

#include <stddef.h>
#include <string.h>

static const struct {
    int code;
    const char *name;
    const char *text;
} errors[] = {
#define PMS_ERR_ROW(name, code, text) {code, #name, text},
    PMS_ERRORS(PMS_ERR_ROW)
#undef PMS_ERR_ROW
};

#define ERRORS_N (sizeof(errors) / sizeof(errors[0]))

const char *pms_err_name(int err)
{
    const char *name = NULL;

    if (err == 0)
        return "OK";
    for (size_t i = 0; i < ERRORS_N; i++) {
        if (errors[i].code == err)
            return errors[i].name;
    }
    if (err < 0 && err > -4096)
        name = strerrorname_np(-err);
    return name != NULL ? name : "E?";
}

const char *pms_err_text(int err)
{
    const char *text = NULL;

    if (err == 0)
        return "success";
    for (size_t i = 0; i < ERRORS_N; i++) {
        if (errors[i].code == err)
            return errors[i].text;
    }
    if (err < 0 && err > -4096)
        text = strerrordesc_np(-err);
    return text != NULL ? text : "unknown error";
}

int pms_err_from_name(const char *name)
{
    for (size_t i = 0; i < ERRORS_N; i++) {
        if (strcmp(errors[i].name, name) == 0)
            return errors[i].code;
    }
    return PMS_EUNKNOWN;
}
