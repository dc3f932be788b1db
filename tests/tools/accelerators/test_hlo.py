"""Counts from HLO texts that are small enough to count by hand."""

from __future__ import annotations

import pytest

from tools.accelerators.hlo import count

pytestmark = pytest.mark.program

TURNS = 12  # of a loop whose length only the data decide, as the rule of counting has it

BODY = """
%body (b: (s32[], f32[8])) -> (s32[], f32[8]) {
  %b = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[8]{0} get-tuple-element(%b), index=1
  %next = s32[] fusion(%i), kind=kLoop, calls=%increment
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%double
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %y)
}

%condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]{0}) parameter(0)
  %k = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(48)
  ROOT %less = pred[] compare(%k, %n), direction=LT
}
"""
LOOP = "%l = (s32[], f32[8]{0}) while(%t), condition=%condition, body=%body"
KNOWN = ', backend_config={"known_trip_count":{"n":"48"},"other":[]}'
ELSEWHERE = ', backend_config={"known_trip_count":{"n":"2"}}'


def entry(*lines: str, before: str = BODY) -> str:
    """A module with these lines in its entry."""
    inner = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule m\n{before}\nENTRY %main (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n{inner}\n}}\n"
    )


def test_names_views_and_constants_are_no_kernels():
    text = entry(
        "%z = f32[8]{0} constant({...})",
        "%v = f32[2,4]{1,0} bitcast(%p)",
        "%w = f32[8]{0} fusion(%p, %z), kind=kLoop, calls=%f",
        "ROOT %c = f32[8]{0} copy(%w)",
    )
    assert count(text).kernels == 2


def test_a_loop_of_known_length_counts_its_length_times_and_asks_nothing():
    found = count(entry(LOOP + KNOWN), length=48)
    assert (found.kernels, found.loops, found.branches) == (2, 0, 0)


def test_what_stands_outside_the_steps_is_less_than_a_kernel_a_step():
    assert count(entry(LOOP + KNOWN, "%a = f32[8]{0} copy(%p)"), length=48).kernels == 2


def test_a_loop_of_unknown_length_counts_its_turns_and_one_question():
    # elsewhere a length is written, so the compiler writes those that it knows
    found = count(entry(LOOP, "%m = (s32[], f32[8]{0}) while(%t), condition=%condition, body=%body" + ELSEWHERE))
    assert (found.kernels, found.loops, found.branches) == (TURNS * (2 + 1) + 2 * 2, 1, 0)


def test_without_written_lengths_a_counter_below_a_constant_is_a_known_length():
    assert count(entry(LOOP), length=48) == count(entry(LOOP + KNOWN), length=48)


@pytest.mark.parametrize(
    "root", ["and(%less, %more)", "compare(%k, %n), direction=GT", "compare(%k, %j), direction=LT"]
)
def test_without_written_lengths_any_other_condition_is_a_question(root):
    text = entry(LOOP).replace("ROOT %less = pred[] compare(%k, %n), direction=LT", f"ROOT %less = pred[] {root}")
    assert count(text).loops == 1


def test_a_loop_inside_a_loop_of_unknown_length_counts_once_a_turn_and_asks_once():
    outer = """
%outer_body (o: (s32[], f32[8])) -> (s32[], f32[8]) {
  %o = (s32[], f32[8]{0}) parameter(0)
  %first = f32[8]{0} fusion(%o), kind=kLoop, calls=%f
  ROOT %inner = (s32[], f32[8]{0}) while(%o), condition=%any, body=%body
}

%any (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}) parameter(0)
  ROOT %r = pred[] fusion(%q), kind=kLoop, calls=%g
}
"""
    found = count(entry("%l = (s32[], f32[8]{0}) while(%t), condition=%any, body=%outer_body", before=BODY + outer))
    assert found.kernels == TURNS * (1 + 1 + (2 + 1)) and found.loops == 2


BRANCHES = """
%few (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %f1 = f32[8]{0} copy(%a)
}

%many (d: f32[8]) -> f32[8] {
  %d = f32[8]{0} parameter(0)
  %m1 = f32[8]{0} fusion(%d), kind=kLoop, calls=%f
  %m2 = f32[8]{0} fusion(%m1), kind=kLoop, calls=%f
  ROOT %m3 = f32[8]{0} copy(%m2)
}
"""
CHOICE = 'ROOT %c = f32[8]{0} conditional(%flag, %p, %p), metadata={op_name="jit(run)/restart/cond"}, '
FORMS = ("branch_computations={%few, %many}", "true_computation=%many, false_computation=%few")


@pytest.mark.parametrize("form", FORMS)
def test_a_conditional_is_one_question_and_its_larger_branch_is_rare(form):
    found = count(entry(CHOICE + form, before=BRANCHES))
    assert (found.kernels, found.branches, found.rare) == (0, 1, 3)


def test_a_conditional_that_is_often_taken_counts_as_unconditional():
    found = count(entry(CHOICE + FORMS[0], before=BRANCHES), often=["restart"])
    assert (found.kernels, found.branches, found.rare) == (3, 1, 0)


def test_factorisations_are_counted_and_products_of_a_library_are_not():
    text = entry(
        '%lu = (f64[8,8]{1,0}, s32[8]{0}) custom-call(%p), custom_call_target="cusolver_getrf_ffi"',
        '%ord = s32[8]{0} custom-call(%lu), custom_call_target="cu_lu_pivots_to_permutation"',
        '%s = f64[8,1]{0,1} custom-call(%lu), custom_call_target="__cublas$triangularSolve"',
        '%g = f32[8,8]{1,0} custom-call(%p, %p), custom_call_target="__cublas$gemm"',
        "%h = f32[8,8]{1,0} cholesky(%p), lower=true",
        '%q = f32[8,8]{1,0} custom-call(%p), custom_call_target="LuDecomposition"',
        "ROOT %u = f32[8,8]{1,0} triangular-solve(%h, %p), left_side=true",
    )
    found = count(text)
    assert (found.library, found.kernels) == (5, 7)


def test_operations_in_double_precision_are_counted_and_their_names_are_not():
    text = entry(
        "%d = f64[8]{0} convert(%p)",
        "%e = (f64[8]{0}, f32[8]{0}) tuple(%d, %p)",
        "%f = f64[8]{0} get-tuple-element(%e), index=0",
        "%g = c128[8]{0} complex(%f, %d)",
        "ROOT %h = f32[8]{0} convert(%f)",
    )
    assert count(text).wide == 2


PRODUCTS = {
    "%y = f32[8]{0} dot(%p, %m), lhs_contracting_dims={0}, rhs_contracting_dims={0}": 1,
    "%y = f32[8]{0} dot(%p, %m), lhs_contracting_dims={0}, operand_precision={highest,highest}": 0,
    "%y = f32[8]{0} dot(%p, %m), lhs_contracting_dims={0}, operand_precision={highest,default}": 1,
    "%y = f32[8]{0} convolution(%p, %m), dim_labels=bf_oi->bf, operand_precision={high,high}": 1,
    "%y = f32[8]{0} dot(%r, %r), lhs_contracting_dims={0}": 0,
    '%y = f32[8]{0} custom-call(%p, %m), custom_call_target="__cublas$lt$matmul", backend_config='
    '{"gemm_backend_config":{"precision_config":{"operand_precision":["DEFAULT","DEFAULT"]}}}': 1,
    '%y = f32[8]{0} custom-call(%p, %m), custom_call_target="__cublas$lt$matmul", backend_config='
    '{"gemm_backend_config":{"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}}': 0,
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_of_float32_is_pinned_only_if_both_operands_ask_for_all_digits(product):
    text = entry("%m = f32[8,8]{1,0} copy(%p)", "%r = bf16[8]{0} convert(%p)", product)
    assert count(text).unpinned == PRODUCTS[product]


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="ENTRY"):
        count("HloModule m\n")
