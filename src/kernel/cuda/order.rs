//! Elements as unsigned numbers in sort order: nan is the largest, and -0 equals 0.

use crate::array::Dtype;

/// Statements that map the bits `k` of an element of a dtype.
pub(in crate::kernel) fn sortable(dtype: Dtype, descending: bool) -> String {
    let bits = 8 * dtype.size();
    let sign = format!("(Key)((Key)1 << {})", bits - 1);
    let order = match dtype {
        Dtype::Bool => "(Key)(k != 0)".to_string(),
        _ if !dtype.is_float() => match dtype.range() {
            Some((0, _)) => "k".to_string(),
            _ => format!("(Key)(k ^ {sign})"),
        },
        _ => {
            let infinity = format!("{:#x}ull", dtype.infinity_bits());
            format!(
                "((Key)(k & (Key)~{sign}) > (Key){infinity} ? (Key)~(Key)0 \
                 : (Key)(k & (Key)~{sign}) == 0 ? {sign} \
                 : (k & {sign}) != 0 ? (Key)~k : (Key)(k | {sign}))"
            )
        }
    };
    match descending {
        true => format!("    return (Key)~{order};"),
        false => format!("    return {order};"),
    }
}

/// The statements of [`sortable`] for the dtype and direction that the word `order` encodes ([`order`]). A narrow
/// element may also occupy the highest bits of a wider key.
pub(in crate::kernel) const SORTABLE_ANY: &str = "\
    const Key sign = (Key)((Key)1 << (8 * sizeof(Key) - 1));
    const Key size = (Key)(k & (Key)~sign);
    const Key infinity = (Key)((Key)(order >> 48) << (sizeof(Key) > 1 ? 8 * sizeof(Key) - 16 : 0));
    Key place = order & 4 ? (Key)(k != 0) : order & 2 ? (Key)(k ^ sign) : k;
    if (order & 8) place = size > infinity ? (Key)~(Key)0 : size == 0 ? sign : (k & sign) ? (Key)~k : (Key)(k | sign);
    return order & 1 ? (Key)~place : place;";

/// A dtype and direction as a word: the low bits flag descending, signed, bool and float; the highest 16 bits are those
/// of infinity.
pub(in crate::kernel) fn order(dtype: Dtype, descending: bool) -> u64 {
    let kind = match dtype {
        Dtype::Bool => 4,
        _ if dtype.is_float() => 8 | dtype.infinity_bits() >> (8 * dtype.size() - 16) << 48,
        _ => u64::from(!matches!(dtype.range(), Some((0, _)))) << 1,
    };
    kind | u64::from(descending)
}
