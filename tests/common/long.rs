//! How much work a test does: `.ci/run` does less than `.ci/long`, which runs before a release.

/// `few`, or `many` with `RUNNEL_LONG=1`.
pub fn few_or_many<T>(few: T, many: T) -> T {
    if std::env::var_os("RUNNEL_LONG").is_some() { many } else { few }
}
