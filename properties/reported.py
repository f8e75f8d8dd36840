"""Every reported case in its place: a value, a refusal, or not expressible here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["PLACES", "Kind", "Place"]


class Kind(StrEnum):
    """What becomes of a reported fault here."""

    VALUE = "value"
    REFUSED = "refused"
    NOT_EXPRESSIBLE = "not expressible here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a case stands: the tests that hold its right value or refusal, and why if none."""

    kind: Kind
    tests: tuple[str, ...] = ()
    code: str = ""
    reason: str = ""


def _value(*tests: str) -> Place:
    return Place(kind=Kind.VALUE, tests=tests)


def _refused(code: str, *tests: str) -> Place:
    return Place(kind=Kind.REFUSED, code=code, tests=tests)


def _absent(reason: str, *tests: str) -> Place:
    return Place(kind=Kind.NOT_EXPRESSIBLE, reason=reason, tests=tests)


PLACES: dict[str, Place] = {
    "kv-window-off-by-one": _absent(
        "there is no sliding window; a configuration that states one is refused by every block",
        "test_reported_cases.test_a_context_window_has_no_kernel",
    ),
    "kv-trim-contract": _value(
        "test_session.test_a_step_after_truncation_sees_the_kept_rows_alone"
    ),
    "kv-offset-stale-chunk": _value(
        "test_session.test_a_token_after_a_prompt_has_its_own_position"
    ),
    "kv-prefill-no-mask": _value("test_session.test_every_split_of_a_prompt_is_causal"),
    "kv-failed-step-dirty": _value("test_session.test_a_failed_extension_can_be_repeated"),
    "rope-pairing": _value("test_reported_cases.test_rope_pairing_turns_neighbours"),
    "rope-freq-low-precision": _value(
        "test_reported_cases.test_rope_table_keeps_full_precision_at_late_positions"
    ),
    "rope-left-pad-decode": _absent(
        "cached serving holds one growing row without padding, and layouts pad on the right: no "
        "row has positions that count padding",
        "test_session.test_positions_count_tokens_where_others_count_padding",
    ),
    "mask-full-row": _value(
        "test_reported_cases.test_an_inactive_query_gives_and_receives_exactly_zero"
    ),
    "mask-future-leak": _value(
        "test_reported_cases.test_a_later_token_changes_no_earlier_bit_on_any_path",
        "test_reported_cases.test_no_gradient_flows_from_an_earlier_output_to_a_later_input",
    ),
    "mask-packed-leak": _value("test_reported_cases.test_packed_documents_do_not_see_each_other"),
    "mask-gqa-head-map": _refused(
        "support/grouped-heads", "test_reported_cases.test_grouped_heads_have_no_kernel"
    ),
    "tied-grad-two-paths": _value("test_reported_cases.test_the_tied_table_gets_both_gradients"),
    "tied-flag-vs-storage": _value(
        "test_reported_cases.test_a_copied_decoder_stays_tied",
        "test_reported_cases.test_a_decoder_of_other_nodes_for_one_name_is_refused",
    ),
    "tied-count": _value("test_reported_cases.test_the_tied_table_is_counted_once"),
    "emb-repeated-ids": _value("test_order_of_bits.test_a_repeated_id_gathers_all_its_gradients"),
    "emb-id-range": _refused(
        "index/token-id-out-of-bounds",
        "test_reported_cases.test_a_bad_id_is_refused_with_its_place",
    ),
    "emb-id-narrowing": _value("test_reported_cases.test_large_ids_survive_storage_in_a_batch"),
    "loss-all-ignored": _refused(
        "shape/no-valid-target", "test_batched_losses.test_a_loss_without_any_target_is_refused"
    ),
    "loss-label-range": _refused(
        "index/target-id-out-of-bounds",
        "test_reported_cases.test_both_losses_refuse_the_same_labels",
        "test_reported_cases.test_the_largest_label_has_the_reported_loss",
    ),
    "loss-accum-weighting": _value(
        "test_batched_losses.test_accumulated_losses_weigh_every_target_alike"
    ),
    "loss-huge-logits": _value(
        "test_order_of_bits.test_huge_logits_have_their_exact_loss_and_gradient"
    ),
    "act-sigmoid-grad": _value("test_order_of_bits.test_silu_has_its_slope_far_from_zero"),
    "norm-eps-rescale": _value(
        "test_reported_cases.test_a_spike_row_is_normalised_with_its_own_epsilon",
        "test_reported_cases.test_a_zero_row_has_a_finite_norm_gradient",
    ),
    "norm-huge-row": _refused(
        "numeric/non-finite-forward",
        "test_reported_cases.test_a_row_whose_squares_overflow_is_refused",
    ),
    "ad-reused-node": _value(
        "test_order_of_bits.test_a_reused_node_adds_both_of_its_gradients",
        "test_tape.test_doublings_visit_every_node_once",
    ),
    "ad-backward-twice": _value("test_order_of_bits.test_a_second_backward_adds_the_same_gradient"),
    "ad-dropout-recompute": _absent(
        "there is no dropout: a recomputed block draws nothing, and the generator is no operand",
        "test_reported_cases.test_recomputation_draws_nothing",
    ),
    "ad-mode-restore": _value(
        "test_reported_cases.test_an_error_leaves_no_mode_behind",
    ),
    "plan-kv-bytes": _value("test_planner.test_kv_bytes_count_key_heads_and_no_groups"),
    "cfg-head-dim": _refused(
        "shape/model-width-not-divisible",
        "test_reported_cases.test_a_head_count_that_does_not_divide_is_refused_by_field",
    ),
    "plan-ceil-float": _value("test_sizes.test_ceiling_quotient_of_the_reported_size_is_exact"),
    "json-duplicate-key": _refused(
        "record/duplicate-key",
        "test_canonical.test_decode_refuses_a_key_twice_at_every_depth_and_names_it",
    ),
    "json-nonfinite": _refused(
        "record/text-syntax",
        "test_records.test_the_reported_numbers_that_are_not_finite_are_refused",
        "test_canonical.test_encode_refuses_what_canonical_json_does_not_hold",
    ),
    "num-exp-ulp": _value("test_reported_cases.test_exp_is_correctly_rounded_where_reported"),
    "num-sum-layout": _value("test_order_of_bits.test_a_sum_ignores_the_memory_layout"),
    "num-signed-zero": _value("test_reported_cases.test_a_maximum_over_both_zeros_decides_no_bit"),
    "num-ftz": _value("test_reported_cases.test_subnormal_numbers_are_not_flushed"),
    "num-comparator-nan": _value("test_compare.test_same_bits_says_where_two_arrays_differ"),
    "num-repr": _value("test_reported_cases.test_figures_are_stored_as_bits"),
    "num-example-db": _value("test_reported_cases.test_derandomised_profiles_keep_no_examples"),
    "tok-byte-length": _value("test_tokenizer.test_token_byte_lengths_are_those_of_bytes"),
}
