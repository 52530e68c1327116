//! Text for messages: did-you-mean suggestions, counts with nouns, and byte sizes.

/// The candidate closest to `name`, if it is close enough: at most one edit per three characters (one for
/// names of two characters), and never more than three. Swapping two adjacent characters is one edit. A
/// one-letter name matches only in the other case. Ties go to the alphabetically first candidate.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let limit = (length.max(3) / 3).min(3).min(length.saturating_sub(1));
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .filter(|c| *c != name)
        .map(|c| (distance(&lower, &c.to_lowercase()), c))
        .filter(|&(d, _)| d <= limit)
        .min_by_key(|&(d, c)| (d, c.len().abs_diff(name.len()), c))
        .map(|(_, c)| c)
}

/// Optimal string alignment distance, in characters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// A number with its noun: `1 dimension`, `2 dimensions`, `3 indices`.
pub fn counted(count: usize, noun: &str) -> String {
    match (count, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "index") => format!("{count} indices"),
        _ => format!("{count} {noun}s"),
    }
}

/// A byte count in readable form, rounded as in PyTorch: `512 bytes`, `20.00 MiB`.
pub fn bytes_text(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let value = bytes as f64;
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{:.2} KiB", value / KIB),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", value / KIB / KIB),
        _ => format!("{:.2} GiB", value / KIB / KIB / KIB),
    }
}

/// Parses a number of bytes: `4GiB`, `512MiB`, `64KiB`, `4_096`.
///
/// # Errors
/// The help text.
pub fn bytes_from(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "B" => Some(1u64),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1 << 40),
        _ => None,
    };
    let number = number.replace('_', "").parse::<u64>().ok();
    match (number, scale) {
        (Some(n), Some(scale)) => {
            n.checked_mul(scale).ok_or_else(|| "this is more than any machine has".into())
        }
        _ => Err("write a size such as `4GiB`, `512MiB` or a number of bytes".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_absent() {
        let names = ["wait_stream", "wait_event", "matmul", "relu"];
        assert_eq!(suggest("wait_straem", names), Some("wait_stream"));
        assert_eq!(suggest("rleu", names), Some("relu"));
        assert_eq!(suggest("Matmul", names), Some("matmul"));
        assert_eq!(suggest("zebra", names), None);
        assert_eq!(suggest("a", ["b", "A"]), Some("A"));
        assert_eq!(suggest("a", ["b"]), None);
        assert_eq!(suggest("tan", ["tam", "tab", "tal"]), Some("tab"));
    }

    #[test]
    fn sizes_read_as_pytorch_writes_them() {
        assert_eq!(bytes_text(512), "512 bytes");
        assert_eq!(bytes_text(20 << 20), "20.00 MiB");
        assert_eq!(bytes_text(3 << 29), "1.50 GiB");
    }
}
