// SPDX-License-Identifier: GPL-2.0-or-later
// base/list: order, removal while walking, splice.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/list.h"

struct item {
    int value;
    struct pms_list link;
};

static void values_assert(struct pms_list *head, const int *want, size_t n)
{
    size_t i = 0;

    pms_list_for_each (it, head) {
        assert_true(i < n);
        assert_int_equal(pms_list_entry(it, struct item, link)->value, want[i]);
        assert_ptr_equal(it->next->prev, it);
        i++;
    }
    assert_int_equal(i, n);
}

static void test_list_when_added_then_in_order(void **state)
{
    struct item a = {1, {0}}, b = {2, {0}}, c = {3, {0}};
    struct pms_list head = PMS_LIST_INIT(head);

    (void)state;
    assert_true(pms_list_empty(&head));
    pms_list_add_tail(&head, &b.link);
    pms_list_add_tail(&head, &c.link);
    pms_list_add_head(&head, &a.link);
    assert_false(pms_list_empty(&head));
    values_assert(&head, (const int[]){1, 2, 3}, 3);
}

static void test_list_when_deleted_while_walking_then_rest_stays(void **state)
{
    struct item items[6];
    struct pms_list head;

    (void)state;
    pms_list_init(&head);
    for (int i = 0; i < 6; i++) {
        items[i].value = i;
        pms_list_add_tail(&head, &items[i].link);
    }
    pms_list_for_each_safe (it, &head) {
        if (pms_list_entry(it, struct item, link)->value % 2 == 0)
            pms_list_del(it);
    }
    values_assert(&head, (const int[]){1, 3, 5}, 3);
    pms_list_del(&items[0].link);
    values_assert(&head, (const int[]){1, 3, 5}, 3);
}

static void test_list_pop_then_first_out_until_null(void **state)
{
    struct item a = {1, {0}}, b = {2, {0}};
    struct pms_list head = PMS_LIST_INIT(head);

    (void)state;
    pms_list_add_tail(&head, &a.link);
    pms_list_add_tail(&head, &b.link);
    assert_ptr_equal(pms_list_pop(&head), &a.link);
    assert_true(pms_list_empty(&a.link));
    assert_ptr_equal(pms_list_pop(&head), &b.link);
    assert_null(pms_list_pop(&head));
}

static void test_list_splice_then_order_kept_and_source_empty(void **state)
{
    struct item a = {1, {0}}, b = {2, {0}}, c = {3, {0}};
    struct pms_list to = PMS_LIST_INIT(to), from = PMS_LIST_INIT(from);

    (void)state;
    pms_list_splice_tail(&to, &from);
    assert_true(pms_list_empty(&to));
    pms_list_add_tail(&to, &a.link);
    pms_list_add_tail(&from, &b.link);
    pms_list_add_tail(&from, &c.link);
    pms_list_splice_tail(&to, &from);
    assert_true(pms_list_empty(&from));
    values_assert(&to, (const int[]){1, 2, 3}, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_when_added_then_in_order),
        cmocka_unit_test(test_list_when_deleted_while_walking_then_rest_stays),
        cmocka_unit_test(test_list_pop_then_first_out_until_null),
        cmocka_unit_test(test_list_splice_then_order_kept_and_source_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
